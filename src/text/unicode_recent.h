/* SPDX-License-Identifier: Apache-2.0 */
/* Characters younger than the Unicode versions of the libraries in use. */
#ifndef AG_TEXT_UNICODE_RECENT_H
#define AG_TEXT_UNICODE_RECENT_H

#include "text/bytes.h"

/* Whether cp is one of them, of a category that begins with this letter ('L', 'N', ...). */
bool ag_unicode_recent_has(uint32_t cp, char major);

/* Appends those of a category ("L", "Nd") as ranges of a PCRE2 character class. */
ag_status ag_unicode_recent_class(const char *category, size_t n, ag_text *out, ag_error *err);

#endif
