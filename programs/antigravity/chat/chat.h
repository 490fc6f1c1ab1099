/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity chat: options, conversation state and commands. Functions that return int report a
 * failure and return an exit code, unless documented otherwise. */
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
    constraint_options constraint; /* applies to every answer */
    replay_options replay;         /* for saving, and when memory is short */
    transcript_options transcript;
    const char *tools_file, *first, *resume, *preset;
    int64_t max_tokens;
    chat_switch thinking; /* variable enable_thinking of the template */
    bool hide_thinking, multiline, no_history;
} chat_options;

/* Statistics of the last answer. */
typedef struct chat_answer_stats {
    ag_generate_stats stats;
    size_t n_reused; /* tokens of the conversation that were not read again */
    uint64_t seed;
} chat_answer_stats;

typedef struct chat {
    chat_options o;
    engine engine;
    draft_engine draft; /* set with --draft-model */
    constraint constraint;
    transcript transcript;
    transcript_texts texts; /* from the command line */
    char *tools_text;       /* owned; text of --tools */
    char *model_name;       /* owned; the model of /model; NULL: that of the command line */
    ag_text model_sampling; /* settings of generation_config.json, as text */
    uint32_t n_context;
    uint32_t n_protected; /* first tokens that the session may protect */
    bool own_prefix;      /* --protected-prefix was given */
    bool seed_is_drawn;   /* o.sampling.seed was not given: a saved one replaces it */
    ag_ids consumed;      /* tokens that the session has consumed, in order */
    uint64_t attempt;     /* number of discarded answers to the newest message */
    char *name;           /* owned; name of the saved conversation; NULL: none */
    int lock;             /* file descriptor of the lock on `name` */
    line_reader *lines;   /* owned; NULL outside of the conversation */
    bool is_terminal;     /* standard input and error are terminals */
    bool is_dimmed;       /* standard output shows dimmed text */
    bool leaving;
    bool replay_failed;    /* not tried again before a success */
    bool loss_is_reported; /* the loss of tokens of the newest turn */
    uint64_t n_left;       /* tokens evicted before the newest turn was read */
    chat_answer_stats last;
    uint64_t n_read, n_reused, n_made; /* tokens of the process */
} chat;

/* ---- chat_options.c ---- */

/* Returns OPTIONS_RUN or an exit code. `model` replaces the library's sampling defaults; may be
 * NULL. */
int chat_parse(chat_options *o, int argc, char **argv, const ag_sampler_params *model);
/* Reads a preset alone: sampling as sampling_options_unset(), types of the cache AG_DTYPE_COUNT,
 * policy NULL, max_tokens -1 where it sets none. Returns false after reporting a fault. */
bool chat_read_preset(chat_options *o, const char *path);
void chat_options_free(chat_options *o);
/* Sets a setting of the running conversation if the model's sampler accepts it. On false nothing
 * changes, and the reason is in message[MESSAGE_SIZE]. */
bool chat_set(chat *c, const char *name, const char *value, char *message);
/* Draws the seed of the conversation if none was given. */
void chat_draw_seed(chat *c);
/* Writes the value of a setting to out[MESSAGE_SIZE], or on false the reason. */
bool chat_describe_setting(const chat *c, const char *name, char *out);
void chat_print_settings(const chat *c);

/* ---- chat_session.c: what the model has read ---- */

ag_session_params chat_session_params(const chat *c);
/* Replaces the session by an empty one that can protect n_protected tokens. On invalid settings the
 * present session stays. Without memory there is no session, and the chat ends. */
int chat_open_session(chat *c, uint32_t n_protected);
/* Returns EXIT_USAGE if the context has no space for the system prompt. Called before the weights
 * are read. */
int chat_check_context(chat *c);
/* Sets *n to the tokens to protect: the system prompt and a short first turn. Returns EXIT_USAGE if
 * they leave no space for other tokens. */
int chat_find_protected(chat *c, uint32_t *n);
/* Truncates the session to the longest common prefix with `ids`, and marks the turns. *n receives
 * the number of cached tokens; the caller reads the others. */
int chat_match(chat *c, const ag_ids *ids, size_t *n);
/* Reports if the newest turn, which ends at ids->n, exceeds the cache. Returns EXIT_FAILED if the
 * policy evicts nothing and the tokens do not fit. */
int chat_check_space(chat *c, const ag_ids *ids);
/* Reports, once per turn, if tokens of the newest turn were evicted while it was read. */
void chat_check_loss(chat *c);
int chat_note_consumed(chat *c, const int32_t *ids, size_t n);
void chat_forget(chat *c); /* drops all consumed tokens */
/* Truncates the session to `position`, or drops all tokens if it cannot be truncated. */
int chat_go_back(chat *c, size_t position);

/* ---- chat_turn.c ---- */

/* Answers the last message and adds the answer to the conversation. On EXIT_INTERRUPTED nothing was
 * generated and the message is still the last one. */
int chat_answer(chat *c);
/* Adds a user message and answers it. A message that cannot be answered is removed. */
int chat_send(chat *c, const char *text);

/* ---- chat_memory.c ---- */

/* Compresses the cache between turns if --replay is set and system memory is short. Reports a
 * failure; the conversation continues unchanged. */
void chat_free_memory(chat *c);

/* ---- chat_tools.c ---- */

int chat_open_tools(chat *c);
/* Returns whether the model has called a tool and the next text is its result. */
bool chat_awaits_result(const chat *c);
void chat_show_call(const chat *c); /* no-op without a call */
int chat_give_result(chat *c, const char *text);

/* ---- chat_commands.c ---- */

/* Runs a command line, which begins with a slash. Reports unknown and inapplicable commands and
 * returns EXIT_FAILED for them. */
int chat_command(chat *c, const char *line);

/* ---- chat_show.c: on standard error ---- */

void chat_show_stats(const chat *c);
void chat_show_model(const chat *c);
/* Returns the cached tokens of positions [first, end) in the head that caches most. */
uint32_t chat_n_cached(const chat *c, uint32_t first, uint32_t end);
void chat_show_kv(const chat *c);

/* ---- chat_place.c: where conversations are saved, and who has which of them open ---- */

extern const char chat_json_end[];
bool chat_name_is_valid(const char *name);
bool chat_is_saved(const char *name);
/* Finds the directory of saved conversations; creates it if `make`. Reports a failure and returns
 * false. */
bool chat_find_directory(char path[PATH_MAX], bool make);
void chat_path(char out[PATH_MAX], const char *directory, const char *name, const char *end);
/* Locks a conversation until chat_unlock(). Returns a file descriptor, or -1 after reporting the
 * failure. */
int chat_lock(const char *name);
void chat_unlock(const char *name, int lock);
bool chat_is_named(const chat *c, const char *name);
/* Gives the conversation a name and its lock, and drops the old ones. Releases the lock on
 * failure. */
int chat_take_name(chat *c, const char *name, int lock);
void chat_drop_name(chat *c);

/* ---- chat_saved.c ---- */

int chat_save(chat *c, const char *name);
/* Replaces the conversation by a saved one; on failure the present one stays. Returns EXIT_USAGE if
 * the name does not exist. `system` replaces the saved system prompt; may be NULL. */
int chat_load(chat *c, const char *name, const char *system);
void chat_list_saved(void);

/* ---- change_model.c ---- */

/* Loads the inspected model and opens an empty session. */
int chat_load_model(chat *c);
/* Continues the conversation with another model: a path or a name of the store. On failure the
 * present model stays. Without memory for either, the chat ends. */
int chat_change_model(chat *c, const char *name);

/* ---- chat.c ---- */

/* Makes c->transcript an empty conversation with the template and tools of the options. */
int chat_open_transcript(chat *c);
/* Sets the template variable for --thinking or /set thinking. */
int chat_apply_thinking(chat *c);

/* Writes a note in parentheses to standard error; nothing with -q. */
void chat_note(const chat *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
