/* SPDX-License-Identifier: Apache-2.0 */
/* Literals: converts values that models write, in Python's notation or with bare keys, to JSON. */
#ifndef AG_CHAT_LITERAL_H
#define AG_CHAT_LITERAL_H

#include <antigravity/tokenizer.h>
#include <stdbool.h>

/* Converts a Python literal ('text', 1.5, True, None, [..], (..), {..: ..}) or a JSON value. *ok:
 * all of s[0..n) is one, and its JSON was appended to *out; else *out is unchanged. Fails with
 * AG_NOMEM only. */
ag_status ag_python_to_json(const char *s, size_t n, ag_text *out, bool *ok, ag_error *err);
/* Converts a value with bare keys and with strings between two `quote`s: {a:<|"|>text<|"|>,b:[1]}.
 * Else like ag_python_to_json(). */
ag_status ag_braces_to_json(const char *s, size_t n, const char *quote, ag_text *out, bool *ok,
                            ag_error *err);

#endif
