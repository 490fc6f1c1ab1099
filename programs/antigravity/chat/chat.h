/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity chat: its options, the conversation, and what commands do with it. Functions that
 * return int give an exit code, having said what is wrong, unless they say otherwise. */
#ifndef ANTIGRAVITY_CHAT_COMMAND_H
#define ANTIGRAVITY_CHAT_COMMAND_H

#include "../model/draft.h"
#include "../model/engine.h"
#include "../options/constraint_options.h"
#include "../options/replay_options.h"
#include "../options/sampling_options.h"
#include "../options/speculation_options.h"
#include "../terminal/line_reader.h"
#include "transcript.h"
#include "transcript_options.h"

#include <limits.h>

typedef enum chat_switch { CHAT_AUTO, CHAT_ON, CHAT_OFF } chat_switch;

typedef struct chat_options {
    model_options model;
    sampling_options sampling;
    speculation_options speculation;
    constraint_options constraint; /* of every answer */
    replay_options replay;         /* of what is saved, and where memory is short */
    transcript_options transcript;
    const char *tools_file, *first, *resume;
    int64_t max_tokens;
    chat_switch thinking; /* what the template is told */
    bool hide_thinking, multiline, no_history;
} chat_options;

/* Of the last answer. */
typedef struct chat_answer_stats {
    ag_generate_stats stats;
    size_t n_reused; /* tokens of the conversation that needed no reading */
    uint64_t seed;
} chat_answer_stats;

typedef struct chat {
    chat_options o;
    engine engine;
    draft_engine draft; /* with --draft-model */
    constraint constraint;
    transcript transcript;
    transcript_texts texts; /* of the command line */
    char *tools_text;       /* owned; of a file */
    ag_text model_sampling; /* what generation_config.json asks for, as text */
    uint32_t n_context;
    uint32_t n_protected; /* first tokens that the session can protect */
    bool own_prefix;      /* the user said how many */
    ag_ids consumed;      /* by the session, from its first token on */
    uint64_t attempt;     /* answers to the newest message that were thrown away */
    char *name;           /* owned; under which it is saved; NULL: not yet */
    int lock;             /* of the name, where there is one */
    line_reader *lines;   /* owned; while one talks */
    bool is_terminal;     /* a person types and reads */
    bool is_dimmed;       /* standard output shows dimmed text as such */
    bool leaving;
    bool replay_failed;    /* it will again */
    bool loss_is_reported; /* of the newest turn */
    uint64_t n_left;       /* tokens that had left the cache before it was read */
    chat_answer_stats last;
    uint64_t n_read, n_reused, n_made; /* tokens of the whole session */
} chat;

/* ---- chat_options.c ---- */

/* OPTIONS_RUN or an exit code. `model`: what takes the place of the library's sampling defaults;
 * may be NULL. */
int chat_parse(chat_options *o, int argc, char **argv, const ag_sampler_params *model);
void chat_options_free(chat_options *o);
/* "/set temperature 0.2"; why[MESSAGE_SIZE] if it is false. */
bool chat_set(chat_options *o, const char *name, const char *value, char *message);
/* "/set temperature": its value, or if it is false why not, in out[MESSAGE_SIZE]. */
bool chat_describe_setting(const chat *c, const char *name, char *out);
void chat_print_settings(const chat *c);

/* ---- chat_session.c: what the model has read ---- */

ag_session_params chat_session_params(const chat *c);
/* The session, with as many first tokens as it can protect; anything that was read is forgotten.
 * Settings that make no sense leave the one there is; without memory for another one there is none
 * any more, and the program ends. */
int chat_open_session(chat *c, uint32_t n_protected);
/* Whether the context has space for the system prompt, before the weights are read. */
int chat_check_context(chat *c);
/* The protected prefix for the system prompt and a short first turn. EXIT_USAGE if they leave no
 * space for anything else. */
int chat_find_protected(chat *c, uint32_t *n);
/* The session's tokens are made a beginning of ids; *n of them are there and the rest is to be
 * read. Turns are marked. */
int chat_match(chat *c, const ag_ids *ids, size_t *n);
/* What the session has read, or is going to, is ids[0..n): as many of them as it has are noted. */
/* What is to be read next ends at ids[n), of which the session has read what it has. Says if the
 * newest turn is longer than the cache; EXIT_FAILED: nothing may leave it, and it is too small. */
int chat_check_space(chat *c, const ag_ids *ids);
/* Before an answer: says if of the newest turn, now read, something has left already. */
void chat_check_loss(chat *c);
int chat_note_consumed(chat *c, const int32_t *ids, size_t n);
void chat_forget(chat *c); /* everything that was read */
/* What was read from `position` on is forgotten, and if that cannot be, everything. */
int chat_go_back(chat *c, size_t position);

/* ---- chat_turn.c ---- */

/* Answers the last message; the answer becomes part of the conversation. EXIT_INTERRUPTED: nothing
 * was said, and the message is still the last one. */
int chat_answer(chat *c);
/* The user says something: what cannot be answered is taken back. */
int chat_send(chat *c, const char *text);

/* ---- chat_memory.c ---- */

/* Between turns: with --replay, and where the system runs short of memory, the cache keeps what the
 * conversation needs. What goes wrong is said, and the conversation goes on as it was. */
void chat_free_memory(chat *c);

/* ---- chat_tools.c ---- */

int chat_open_tools(chat *c);
/* The model has called something, and the next text is what that returns. */
bool chat_awaits_result(const chat *c);
void chat_show_call(const chat *c); /* if there is one */
int chat_give_result(chat *c, const char *text);

/* ---- chat_commands.c ---- */

/* A line that begins with a slash. That it is none, or of no use now, is no failure. */
int chat_command(chat *c, const char *line);

/* ---- chat_show.c: on standard error ---- */

void chat_show_stats(const chat *c);
/* Tokens of positions [first, end) in the head that holds most of them. */
uint32_t chat_n_cached(const chat *c, uint32_t first, uint32_t end);
void chat_show_kv(const chat *c);

/* ---- chat_place.c: where conversations are saved, and who has which of them open ---- */

extern const char chat_json_end[];
bool chat_name_is_valid(const char *name);
bool chat_is_saved(const char *name);
/* The folder; `make`: is there afterwards. False: said why not. */
bool chat_find_directory(char path[PATH_MAX], bool make);
void chat_path(char out[PATH_MAX], const char *directory, const char *name, const char *end);
/* No other process opens the conversation until chat_unlock(). -1: said why not. */
int chat_lock(const char *name);
void chat_unlock(const char *name, int lock);
bool chat_is_named(const chat *c, const char *name);
/* From now on the conversation has that name and that lock, and the old ones no more. */
int chat_take_name(chat *c, const char *name, int lock);
void chat_drop_name(chat *c);

/* ---- chat_saved.c ---- */

int chat_save(chat *c, const char *name);
/* Takes the place of the conversation, which stays if that fails; EXIT_USAGE: there is none of that
 * name. `system`: a prompt in the place of the saved one; may be NULL. */
int chat_load(chat *c, const char *name, const char *system);
void chat_list_saved(void);

/* ---- chat.c ---- */

/* Makes c->talk a conversation of no message, with the template and tools that were asked for. */
int chat_open_transcript(chat *c);
/* What --thinking, or /set thinking, says. */
int chat_apply_thinking(chat *c);

/* For people: a line on standard error that is no complaint; nothing with -q. */
void chat_note(const chat *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
