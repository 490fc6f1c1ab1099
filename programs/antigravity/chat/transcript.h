/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation as the chat command holds it: its messages, with the tokens of those that were
 * made here, and how a template writes them. Returns exit codes, having said what is wrong. */
#ifndef ANTIGRAVITY_TALK_H
#define ANTIGRAVITY_TALK_H

#include <antigravity/chat.h>
#include <jansson.h>

#define TALK_UNREAD UINT32_MAX

typedef struct talk_message {
    json_t *json;    /* owned; role, content, ... as ag_chat takes it */
    ag_ids ids;      /* owned; of an answer that was sampled here, without what ended it */
    bool is_sampled; /* an answer that was sampled here, perhaps of no token */
    uint32_t first;  /* of the user's: the position at which the turn begins, or TALK_UNREAD */
} talk_message;

typedef struct talk {
    ag_chat_format *format; /* owned */
    ag_chat *chat;          /* owned; the system prompt, if there is one, and the messages */
    const ag_tokenizer *tokenizer;
    bool has_template; /* the model's or the user's, else messages follow one another plainly */
    char *system;      /* owned; NULL: none */
    talk_message *messages; /* owned; [n], without the system prompt */
    size_t n, cap;
} talk;

/* What stands in for a template where a model has none: messages follow one another plainly. */
const char *talk_plain_template(void);
/* `dir`: the model, whose template is `jinja` where that is not NULL. */
int talk_open(talk *t, const char *dir, const ag_tokenizer *tokenizer, const char *jinja);
void talk_close(talk *t);

/* NULL: none. The messages stay. */
int talk_set_system(talk *t, const char *text);
int talk_add(talk *t, const char *role, const char *text);
/* Takes the reference. */
int talk_add_json(talk *t, json_t *message);
/* What the parser has read, of these ids, which are copied. */
int talk_add_answer(talk *t, const ag_chat_parser *p, const int32_t *ids, size_t n);
/* One that was saved: reads its ids again. Takes the reference. */
int talk_add_saved(talk *t, json_t *message, const int32_t *ids, size_t n);
/* All but the first n messages are forgotten. */
void talk_truncate(talk *t, size_t n);

/* NULL past the last. Borrowed. */
const char *talk_role(const talk *t, size_t i);
const char *talk_content(const talk *t, size_t i); /* "" if it is no text */
/* Message of the i-th user's, t->n past the last: where its turn begins. */
size_t talk_turn(const talk *t, size_t i);
size_t talk_n_turns(const talk *t);

/* The conversation up to the assistant's next words replaces *ids. */
int talk_render(talk *t, ag_ids *ids);
/* The position of the first token of the turn that message `at` begins, in `whole`, the rendering
 * of everything; its messages are rendered anew as they were added. */
int talk_find_turn(talk *t, size_t at, const ag_ids *whole, uint32_t *position);
/* How many tokens come before the first message, whatever it says. */
int talk_prefix(talk *t, uint32_t *n);

#endif
