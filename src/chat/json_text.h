/* SPDX-License-Identifier: Apache-2.0 */
/* Values as models write them, as JSON. */
#ifndef AG_CHAT_JSON_TEXT_H
#define AG_CHAT_JSON_TEXT_H

#include <antigravity/tokenizer.h>
#include <jansson.h>
#include <stdbool.h>

/* Appends s[0..n) as the inside of a JSON string, without the quotation marks. */
ag_status ag_json_text_escape(const char *s, size_t n, ag_text *out, ag_error *err);
/* The same with them. */
ag_status ag_json_text_quote(const char *s, size_t n, ag_text *out, ag_error *err);

/* Appends v as compact JSON; *out is as before after a failure. */
ag_status ag_json_text_append(const json_t *v, ag_text *out, ag_error *err);
/* The same with a space after commas and colons, as Python's json.dumps writes it. */
ag_status ag_json_text_append_spaced(const json_t *v, ag_text *out, ag_error *err);

/* *out: a new object with the same members, whose values are shared. */
ag_status ag_json_copy_object(const json_t *object, json_t **out, ag_error *err);

/* Returns v, written with jansson's flags, as a JSON string; NULL: out of memory. */
json_t *ag_json_text_string(const json_t *v, size_t flags);

#endif
