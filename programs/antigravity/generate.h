/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity generate: options, run and report. */
#ifndef ANTIGRAVITY_GENERATE_H
#define ANTIGRAVITY_GENERATE_H

#include "chat/transcript.h"
#include "chat/transcript_options.h"
#include "model/draft.h"
#include "model/engine.h"
#include "model/prompt.h"
#include "options/constraint_options.h"
#include "options/replay_options.h"
#include "options/sampling_options.h"
#include "options/speculation_options.h"
#include "saved_cache.h"
#include "support/text_buffer.h"

typedef struct generate_options {
    model_options model;
    prompt_options prompt;
    sampling_options sampling;
    saved_options saved;
    replay_options replay;
    constraint_options constraint;
    speculation_options speculation;
    int64_t max_tokens;
    const char **stop; /* owned list of borrowed texts */
    size_t n_stop;
    bool ignore_eos, echo, keep_special, json;
    bool chat;                     /* also of a preset with a system prompt */
    transcript_options transcript; /* used with `chat` */
    const char *preset;
} generate_options;

typedef struct generation {
    generate_options o;
    engine engine;
    draft_engine draft;
    prompt prompt;
    uint32_t n_context;
    ag_sampler *sampler;
    constraint constraint;
    saved_cache saved;
    transcript transcript;  /* used with --chat */
    ag_chat_parser *parser; /* set with --chat; NULL: special tokens are printed */
    size_t
        n_own_stops; /* with --chat: the first o.stop are from --stop, the others the template's */
    /* Results. */
    ag_generate_stats stats;
    ag_compress_report replayed; /* result of ag_session_compress(), with --replay */
    ag_ids ids;
    text_buffer text;
    bool out_of_memory;
    bool wrote, ends_in_newline; /* standard output: anything written; the last byte is a newline */
    bool wrote_text;             /* the model has produced text */
} generation;

/* ---- generate_options.c ---- */

/* Returns OPTIONS_RUN or an exit code. */
int generate_parse(generate_options *o, int argc, char **argv);
void generate_options_free(generate_options *o);

/* ---- generate_chat.c ---- */

/* Returns the group of options for chats. */
option_group generate_chat_group(generate_options *o);
/* Checks the options for chats. Returns an exit code. */
int generate_chat_check(generate_options *o);
/* Renders the prompt as a chat message and adds the texts that end the answer. Returns an exit
 * code. */
int generate_chat_encode(generation *g);
/* Passes more of the answer to the parser, and the parsed text to put(). Returns false after an
 * error, or if put() did. */
typedef bool (*generate_text_fn)(generation *g, const char *text, size_t len);
bool generate_chat_read(generation *g, const char *text, size_t len, bool at_end,
                        generate_text_fn put);
/* Prints the hint to use --chat on standard error. */
void generate_advise(const generation *g);
/* Prints on standard error that the model produced no text. */
void generate_report_empty(const generation *g);
void generate_chat_free(generation *g);

/* ---- generate_report.c ---- */

void report_statistics(const generation *g);   /* on standard error */
void report_context_full(const generation *g); /* on standard error */
void report_cut_off(const generation *g);      /* on standard error */
/* Returns whether the text ended before it met the constraint. */
bool generate_is_cut_off(const generation *g);
int report_json(generation *g); /* on standard output; returns an exit code */

#endif
