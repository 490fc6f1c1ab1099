/* SPDX-License-Identifier: Apache-2.0 */
/* Preambles: text that a harmony message has beside its calls. Templates write one text before a
 * call, into the channel of reasoning. Normalisation therefore appends the text to the reasoning,
 * after a sentinel. In the rendered text it becomes a message in the channel commentary, as the
 * model wrote it. Where the template drops the reasoning, the preamble is dropped too. */
#ifndef AG_CHAT_PREAMBLE_H
#define AG_CHAT_PREAMBLE_H

#include "chat/template/format.h"

enum { AG_PREAMBLE_SENTINEL = 32 };

/* Chooses a text that no client can put into a message. */
void ag_preamble_choose(char sentinel[AG_PREAMBLE_SENTINEL]);

/* Moves the content of a message with calls to its reasoning, if the format is harmony. Fails with
 * AG_NOMEM. */
ag_status ag_preamble_join(const ag_chat_format *f, const char *sentinel, json_t *message,
                           ag_error *err);

/* Replaces each sentinel of the rendered text by delimiters, which do not belong to the input.
 * Fails with AG_NOMEM. */
ag_status ag_preamble_expand(const char *sentinel, ag_jinja_output *out, ag_error *err);

#endif
