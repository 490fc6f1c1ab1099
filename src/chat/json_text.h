/* SPDX-License-Identifier: Apache-2.0 */
/* JSON text: writes strings and jansson values as JSON. All functions but ag_json_text_escape() and
 * ag_json_text_quote() check for an interrupt (AG_CANCELLED) once in 64 pieces. */
#ifndef AG_CHAT_JSON_TEXT_H
#define AG_CHAT_JSON_TEXT_H

#include <antigravity/tokenizer.h>
#include <jansson.h>
#include <stdbool.h>

/* Appends s[0..n), escaped for a JSON string, without quotation marks. */
ag_status ag_json_text_escape(const char *s, size_t n, ag_text *out, ag_error *err);
/* Appends s[0..n) as a JSON string. */
ag_status ag_json_text_quote(const char *s, size_t n, ag_text *out, ag_error *err);

/* Appends v as compact JSON. *out is unchanged after a failure. */
ag_status ag_json_text_append(const json_t *v, ag_text *out, ag_error *err);
/* Appends v with a space after commas and colons, as Python's json.dumps writes it. *out is
 * unchanged after a failure. */
ag_status ag_json_text_append_spaced(const json_t *v, ag_text *out, ag_error *err);

/* Appends v as compact JSON with sorted keys: equal values give equal text. *out is unchanged after
 * a failure. */
ag_status ag_json_text_append_sorted(const json_t *v, ag_text *out, ag_error *err);

/* *out: a shallow copy, which shares the values; owned. NULL after a failure. */
ag_status ag_json_copy_object(const json_t *object, json_t **out, ag_error *err);

/* Returns a JSON string that holds v as text, written with jansson's flags; NULL if out of memory
 * or interrupted. */
json_t *ag_json_text_string(const json_t *v, size_t flags);

#endif
