/* SPDX-License-Identifier: Apache-2.0 */
/* Character sets: sets of Unicode code points. */
#ifndef AG_CONSTRAIN_REGEX_CHAR_SET_H
#define AG_CONSTRAIN_REGEX_CHAR_SET_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { AG_CHAR_MAX = 0x10FFFF };

typedef struct ag_char_range {
    uint32_t lo, hi; /* both included */
} ag_char_range;

/* Zero-initialise. Release with ag_char_set_free(). */
typedef struct ag_char_set {
    ag_char_range *ranges; /* sorted and disjoint after ag_char_set_sort() */
    size_t n, cap;
} ag_char_set;

void ag_char_set_free(ag_char_set *s);
ag_status ag_char_set_add(ag_char_set *s, uint32_t lo, uint32_t hi, ag_error *err);
ag_status ag_char_set_add_all(ag_char_set *s, const ag_char_set *other, ag_error *err);
void ag_char_set_sort(ag_char_set *s);
/* Replaces a sorted set by its complement. */
ag_status ag_char_set_invert(ag_char_set *s, ag_error *err);

/* Adds \d, \w or \s of ECMAScript ('d', 'w', 's') or a complement ('D', 'W', 'S'). 'W' adds ASCII
 * only, since Python counts letters of all languages as \w. 'S' leaves out U+001C to U+001F and
 * U+0085, which are spaces in Python. */
ag_status ag_char_set_add_class(ag_char_set *s, char which, ag_error *err);
/* Adds \p{name}: a general category ("L", "Lu", "Letter", "gc=Lu"), "ASCII" or "Any".
 * AG_UNSUPPORTED for other names. */
ag_status ag_char_set_add_property(ag_char_set *s, const char *name, size_t n, ag_error *err);

#endif
