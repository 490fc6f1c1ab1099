/* SPDX-License-Identifier: Apache-2.0 */
/* Sampled bodies: texts of harmony messages, from <|message|> to the next special token, with the
 * ids that the model sampled for them. A template writes the headers otherwise than the model, so
 * a body keeps its ids wherever the rendered text has the same body. */
#ifndef AG_CHAT_SAMPLED_BODY_H
#define AG_CHAT_SAMPLED_BODY_H

#include "chat/conversation.h"
#include "chat/template/special_text.h"

/* Appends the id ranges of out->text[0..to): special tokens, and the bodies of the assistant's
 * messages that equal one of c->answers. The ids are borrowed from c. */
ag_status ag_sampled_bodies_locate(const ag_chat *c, const ag_jinja_output *out, size_t to,
                                   ag_id_range_list *l, ag_error *err);

#endif
