/* SPDX-License-Identifier: Apache-2.0 */
/* Transcript: the messages of a chat with the token ids of sampled answers, and their chat
 * template. Functions that return int report a failure and return an exit code. */
#ifndef ANTIGRAVITY_TRANSCRIPT_H
#define ANTIGRAVITY_TRANSCRIPT_H

#include <antigravity/chat.h>
#include <jansson.h>

#define TRANSCRIPT_UNREAD UINT32_MAX

typedef struct transcript_message {
    json_t *json;    /* owned; role, content, ... as ag_chat reads it */
    ag_ids ids;      /* owned; token ids of a sampled answer, without its end token */
    bool is_sampled; /* the answer was sampled; it may have no tokens */
    uint32_t first;  /* user message: first position of its turn, or TRANSCRIPT_UNREAD */
} transcript_message;

typedef struct transcript {
    ag_chat_format *format; /* owned */
    ag_chat *chat;          /* owned; holds the system prompt, if any, and the messages */
    const ag_tokenizer *tokenizer;
    bool has_template;            /* false: messages are concatenated as plain text */
    char *system;                 /* owned; NULL: none */
    transcript_message *messages; /* owned; [n], excludes the system prompt */
    size_t n, cap;
} transcript;

/* Returns the template for models without one: it concatenates the messages. */
const char *transcript_plain_template(void);
/* Opens an empty transcript. `jinja` replaces the template of the model in `dir`; may be NULL. */
int transcript_open(transcript *t, const char *dir, const ag_tokenizer *tokenizer,
                    const char *jinja);
void transcript_close(transcript *t);

/* Sets the system prompt; NULL removes it. The messages stay. */
int transcript_set_system(transcript *t, const char *text);
int transcript_add(transcript *t, const char *role, const char *text);
/* Adds a message. Takes over the reference, also on failure. */
int transcript_add_json(transcript *t, json_t *message);
/* Adds the parsed answer. Copies its ids. */
int transcript_add_answer(transcript *t, const ag_chat_parser *p, const int32_t *ids, size_t n);
/* Adds a saved answer and parses its ids again. Takes over the reference, also on failure. */
int transcript_add_saved(transcript *t, json_t *message, const int32_t *ids, size_t n);
/* Removes all but the first n messages. */
void transcript_truncate(transcript *t, size_t n);

/* Returns the role, borrowed; NULL after the last message. */
const char *transcript_role(const transcript *t, size_t i);
const char *transcript_content(const transcript *t, size_t i); /* "" if it is not text */
/* Returns the index of the message that begins the i-th turn; t->n after the last turn. */
size_t transcript_turn(const transcript *t, size_t i);
size_t transcript_n_turns(const transcript *t);

/* Replaces *ids by the rendered conversation up to the start of the assistant's next message. */
int transcript_render(transcript *t, ag_ids *ids);
/* Sets *position to the first token of the turn that message `at` begins. `all` is the rendering of
 * the entire conversation. Renders the messages before `at`, then adds the others again. */
int transcript_find_turn(transcript *t, size_t at, const ag_ids *all, uint32_t *position);
/* Sets *n to the number of tokens before the first message that do not depend on its text. */
int transcript_prefix(transcript *t, uint32_t *n);

#endif
