/* SPDX-License-Identifier: Apache-2.0 */
/* Placeholders replace the sampled answers of a conversation by sentinels, so that the rendered
 * text shows where the sampled ids belong. */
#ifndef AG_CHAT_PLACEHOLDER_H
#define AG_CHAT_PLACEHOLDER_H

#include "chat/conversation.h"
#include "chat/template/special_text.h"

/* Sentinel: a text of n bytes that no message contains, and its range [begin, end) in the rendered
 * text. */
typedef struct ag_sentinel {
    char text[56];
    size_t n, begin, end;
} ag_sentinel;

/* Placeholder: the sentinels that replace one message's content, reasoning and arguments of calls.
 */
typedef struct ag_placeholder {
    const ag_chat_answer *answer; /* borrowed; NULL: the message is rendered as text */
    size_t message;
    bool has_content, has_calls;
    ag_sentinel content, reasoning, argument;
} ag_placeholder;

typedef struct ag_placeholders {
    ag_placeholder *list;
    size_t n, cap;
    char prefix[24];  /* common prefix of the sentinels */
    json_t *messages; /* c->messages with the sentinels; owned */
} ag_placeholders;
void ag_placeholders_free(ag_placeholders *s);

/* Appends a placeholder to *s for each message of c that equals a sampled answer. */
ag_status ag_placeholders_find(const ag_chat *c, ag_placeholders *s, ag_error *err);
/* Makes s->messages, with new sentinels. Fails with AG_NOMEM. */
ag_status ag_placeholders_insert(const ag_chat *c, ag_placeholders *s, ag_error *err);
/* Appends the id ranges of out->text[0..to), which was rendered from s->messages: special tokens,
 * and the sampled ids of each answer. *missed: the location of an answer is uncertain. Its
 * placeholder is dropped (answer = NULL), and the caller must render again. */
ag_status ag_placeholders_locate(const ag_chat *c, ag_placeholders *s, const ag_jinja_output *out,
                                 size_t to, ag_id_range_list *l, bool *missed, ag_error *err);

#endif
