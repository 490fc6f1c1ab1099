/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of Unicode code points. */
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

/* Zero-initialise; release with ag_char_set_free. */
typedef struct ag_char_set {
    ag_char_range *ranges; /* sorted and apart from each other after ag_char_set_sort */
    size_t n, cap;
} ag_char_set;

void ag_char_set_free(ag_char_set *s);
ag_status ag_char_set_add(ag_char_set *s, uint32_t lo, uint32_t hi, ag_error *err);
ag_status ag_char_set_add_all(ag_char_set *s, const ag_char_set *other, ag_error *err);
void ag_char_set_sort(ag_char_set *s);
/* Of a sorted set: all other code points. */
ag_status ag_char_set_invert(ag_char_set *s, ag_error *err);

/* \d, \w, \s of ECMAScript ('d', 'w', 's'), and their complements ('D', 'W', 'S'; of 'W' the ASCII
 * part alone, since Python takes letters of all languages for words). */
ag_status ag_char_set_add_class(ag_char_set *s, char which, ag_error *err);
/* \p{name}: a general category ("L", "Lu", "Letter", "gc=Lu"), "ASCII" or "Any". AG_UNSUPPORTED for
 * another. */
ag_status ag_char_set_add_property(ag_char_set *s, const char *name, size_t n, ag_error *err);

#endif
