/* SPDX-License-Identifier: Apache-2.0 */
/* Character classes and letter case as Python's str methods define them. */
#ifndef AG_JINJA_VALUE_UNICODE_H
#define AG_JINJA_VALUE_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool ag_jchar_is_space(uint32_t cp);    /* str.isspace, strip, split */
bool ag_jchar_is_line_end(uint32_t cp); /* str.splitlines; callers must handle \r  */
bool ag_jchar_is_digit(uint32_t cp);
bool ag_jchar_is_lower(uint32_t cp);
bool ag_jchar_is_upper(uint32_t cp);
bool ag_jchar_is_title(uint32_t cp);
bool ag_jchar_is_printable(uint32_t cp);
bool ag_jchar_is_word(uint32_t cp); /* \w of a regular expression */
bool ag_jchar_is_cased(uint32_t cp);

/* Writes cp in upper or lower case, at most three characters. Returns how many. */
size_t ag_jchar_case(uint32_t cp, bool upper, uint32_t out[3]);

#endif
