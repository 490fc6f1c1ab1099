/* SPDX-License-Identifier: Apache-2.0 */
/* Characters newer than the Unicode versions of PCRE2 and utf8proc. */
#ifndef AG_TEXT_UNICODE_RECENT_H
#define AG_TEXT_UNICODE_RECENT_H

#include "text/bytes.h"

/* Returns whether cp is one of them and its category starts with `major` ('L', 'N', ...). */
bool ag_unicode_recent_has(uint32_t cp, char major);

/* Appends the characters of a category ("L", "Nd") as ranges of a PCRE2 character class. */
ag_status ag_unicode_recent_class(const char *category, size_t n, ag_text *out, ag_error *err);

#endif
