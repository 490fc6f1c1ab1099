/* SPDX-License-Identifier: Apache-2.0 */
/* Answers that this engine sampled stand in a rendered conversation with the ids that they had. */
#ifndef AG_CHAT_PLACEHOLDER_H
#define AG_CHAT_PLACEHOLDER_H

#include "chat/conversation.h"
#include "chat/template/special_text.h"

/* A word, and where a rendered text has it: n times, the first of them at `begin`, the last one's
 * end at `end`. */
typedef struct ag_chat_word {
    char text[56];
    size_t n, begin, end;
} ag_chat_word;

/* A message that was sampled, and words that stand in its place while the template renders. */
typedef struct ag_chat_stand_in {
    const ag_chat_answer *answer; /* borrowed; NULL: the message is text after all */
    size_t message;
    bool has_content, has_calls;
    ag_chat_word words, reasoning, argument;
} ag_chat_stand_in;

typedef struct ag_chat_stand_ins {
    ag_chat_stand_in *list;
    size_t n, cap;
    char beginning[24]; /* of all their words */
    json_t *messages;   /* with the stand-ins' words; owned */
} ag_chat_stand_ins;
void ag_chat_stand_ins_free(ag_chat_stand_ins *s);

/* Finds the messages of c that were sampled. */
ag_status ag_chat_find_answers(const ag_chat *c, ag_chat_stand_ins *s, ag_error *err);
/* Makes s->messages. */
ag_status ag_chat_stand_in_for(const ag_chat *c, ag_chat_stand_ins *s, ag_error *err);
/* The cuts of a text that was rendered from s->messages. *missed: a message's place cannot be told;
 * it is marked as text, and the conversation is to be rendered again. */
ag_status ag_chat_cut_answers(const ag_chat *c, ag_chat_stand_ins *s, const ag_jinja_output *out,
                              size_t to, ag_cut_list *l, bool *missed, ag_error *err);

#endif
