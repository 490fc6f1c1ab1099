/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on the system's pages. */
#ifndef AG_MEMORY_PAGES_H
#define AG_MEMORY_PAGES_H

#include <stddef.h>

size_t ag_page_size(void); /* asked of the system */
/* bytes up to the next whole page; the caller has excluded overflow. */
size_t ag_pages_round_up(size_t bytes);
/* Gives back the whole pages inside [offset, offset + n) of a mapping of `size` bytes at `data`,
 * which begins on a page; the page that holds the mapping's end counts as whole when the range
 * reaches that end. Returns the bytes given back. */
size_t ag_pages_discard(void *data, size_t size, size_t offset, size_t n);
/* Asks for huge pages where there are whole ones in [p, p + bytes): working space that is gone
 * through again and again. The system may refuse, and nothing is lost. */
void ag_pages_want_huge(void *p, size_t bytes);

#endif
