/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that this engine sampled stand in a rendered conversation with the ids that they had. */
#ifndef AG_CHAT_PLACEHOLDER_H
#define AG_CHAT_PLACEHOLDER_H

#include "chat/conversation.h"
#include "chat/template/special_text.h"

/* A word, and where a rendered text has it: n times, the first of them at `begin`, the last one's
 * end at `end`. */
typedef struct ag_sentinel {
    char text[56];
    size_t n, begin, end;
} ag_sentinel;

/* A message that was sampled, and words that stand in its place while the template renders. */
typedef struct ag_placeholder {
    const ag_chat_answer *answer; /* borrowed; NULL: the message is text after all */
    size_t message;
    bool has_content, has_calls;
    ag_sentinel content, reasoning, argument;
} ag_placeholder;

typedef struct ag_placeholders {
    ag_placeholder *list;
    size_t n, cap;
    char prefix[24];  /* of all their words */
    json_t *messages; /* with the stand-ins' words; owned */
} ag_placeholders;
void ag_placeholders_free(ag_placeholders *s);

/* Finds the messages of c that were sampled. */
ag_status ag_placeholders_find(const ag_chat *c, ag_placeholders *s, ag_error *err);
/* Makes s->messages. */
ag_status ag_placeholders_insert(const ag_chat *c, ag_placeholders *s, ag_error *err);
/* The cuts of a text that was rendered from s->messages. *missed: a message's place cannot be told;
 * it is marked as text, and the conversation is to be rendered again. */
ag_status ag_placeholders_locate(const ag_chat *c, ag_placeholders *s, const ag_jinja_output *out,
                                 size_t to, ag_id_range_list *l, bool *missed, ag_error *err);

#endif
