/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the page, as cmake/EmbedPage.cmake embeds them. */
#ifndef ANTIGRAVITY_SERVE_PAGE_PAGE_FILES_H
#define ANTIGRAVITY_SERVE_PAGE_PAGE_FILES_H

#include <stddef.h>

typedef struct page_file {
    const char *name;
    const char *etag; /* with its quotation marks */
    const unsigned char *data;
    size_t n;
} page_file;

extern const page_file page_files[];
extern const size_t n_page_files;

#endif
