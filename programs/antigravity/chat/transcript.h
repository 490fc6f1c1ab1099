/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation as the chat command holds it: its messages, with the tokens of those that were
 * made here, and how a template writes them. Returns exit codes, having said what is wrong. */
#ifndef ANTIGRAVITY_TRANSCRIPT_H
#define ANTIGRAVITY_TRANSCRIPT_H

#include <antigravity/chat.h>
#include <jansson.h>

#define TRANSCRIPT_UNREAD UINT32_MAX

typedef struct transcript_message {
    json_t *json;    /* owned; role, content, ... as ag_chat takes it */
    ag_ids ids;      /* owned; of an answer that was sampled here, without what ended it */
    bool is_sampled; /* an answer that was sampled here, perhaps of no token */
    uint32_t first; /* of the user's: the position at which the turn begins, or TRANSCRIPT_UNREAD */
} transcript_message;

typedef struct transcript {
    ag_chat_format *format; /* owned */
    ag_chat *chat;          /* owned; the system prompt, if there is one, and the messages */
    const ag_tokenizer *tokenizer;
    bool has_template; /* the model's or the user's, else messages follow one another plainly */
    char *system;      /* owned; NULL: none */
    transcript_message *messages; /* owned; [n], without the system prompt */
    size_t n, cap;
} transcript;

/* What stands in for a template where a model has none: messages follow one another plainly. */
const char *transcript_plain_template(void);
/* `dir`: the model, whose template is `jinja` where that is not NULL. */
int transcript_open(transcript *t, const char *dir, const ag_tokenizer *tokenizer,
                    const char *jinja);
void transcript_close(transcript *t);

/* NULL: none. The messages stay. */
int transcript_set_system(transcript *t, const char *text);
int transcript_add(transcript *t, const char *role, const char *text);
/* Takes the reference. */
int transcript_add_json(transcript *t, json_t *message);
/* What the parser has read, of these ids, which are copied. */
int transcript_add_answer(transcript *t, const ag_chat_parser *p, const int32_t *ids, size_t n);
/* One that was saved: reads its ids again. Takes the reference. */
int transcript_add_saved(transcript *t, json_t *message, const int32_t *ids, size_t n);
/* All but the first n messages are forgotten. */
void transcript_truncate(transcript *t, size_t n);

/* NULL past the last. Borrowed. */
const char *transcript_role(const transcript *t, size_t i);
const char *transcript_content(const transcript *t, size_t i); /* "" if it is no text */
/* Message of the i-th user's, t->n past the last: where its turn begins. */
size_t transcript_turn(const transcript *t, size_t i);
size_t transcript_n_turns(const transcript *t);

/* The conversation up to the assistant's next words replaces *ids. */
int transcript_render(transcript *t, ag_ids *ids);
/* The position of the first token of the turn that message `at` begins, in `whole`, the rendering
 * of everything; its messages are rendered anew as they were added. */
int transcript_find_turn(transcript *t, size_t at, const ag_ids *all, uint32_t *position);
/* How many tokens come before the first message, whatever it says. */
int transcript_prefix(transcript *t, uint32_t *n);

#endif
