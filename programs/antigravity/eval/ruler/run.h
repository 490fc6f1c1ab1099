/* SPDX-License-Identifier: Apache-2.0 */
/* A prompt asked with a full cache and with every policy and share removed: it is read once, and
 * forks of that session go different ways from there. */
#ifndef ANTIGRAVITY_RULER_RUN_H
#define ANTIGRAVITY_RULER_RUN_H

#include "../../model/engine.h"
#include "prompt.h"

enum { RULER_METHODS = 24, RULER_RATIOS = 8 };

/* What chooses the tokens that stay. */
typedef struct ruler_method {
    char name[24];
    const ag_eviction_policy *policy; /* NULL: those needed to repeat the context */
    double replay;                    /* then: the share of it that is replayed */
} ruler_method;

/* What is compared with a full cache. */
typedef struct ruler_settings {
    ruler_method methods[RULER_METHODS]; /* [n_methods] */
    double ratios[RULER_RATIOS];         /* [n_ratios] shares removed */
    size_t n_methods, n_ratios;
    bool unseen; /* the question comes after the eviction */
} ruler_settings;

/* What one prompt gave with one setting. */
typedef struct ruler_result {
    double score;
    uint32_t n_read, n_retained; /* tokens when the eviction came, and behind it (kvzip: in the mean
                                    of the heads) */
    size_t n_replayed;           /* for it */
    size_t kv_bytes;             /* behind it */
    double evict_s, decode_s;
    size_t n_decoded;
} ruler_result;

typedef struct ruler_runner {
    const ruler_settings *settings; /* borrowed, like all of these */
    const model_options *options;
    engine *engine;
    prompt_writer *writer;
    uint32_t max_seq_len; /* tokens of the longest prompt and its answer; ruler_slots() */
    /* owned; the first has read the prompt for all policies that need only its end, the others for
     * one each */
    ag_session *readers[1 + RULER_METHODS];
    ag_replay_request request; /* owned; behind it comes what ends the prompt's own message */
    const char *label;         /* "niah_single_1, prompt 3", of the prompt that is asked */
} ruler_runner;

/* Slots for prompts and answers of n tokens, and where something is replayed, for that too. */
uint32_t ruler_slots(const ruler_settings *s, const ag_model_info *info, uint32_t n_tokens);
/* The parameters of the largest session there will be. */
ag_session_params ruler_session_params(const ruler_runner *r);
/* How many of that size hold what all sessions of a prompt together do. */
size_t ruler_n_sessions(const ruler_runner *r);
/* Each returns an exit code. */
int ruler_open(ruler_runner *r);
void ruler_close(ruler_runner *r);
/* results[1 + n_methods * n_ratios]: the full cache's, then method by method; step() after each
 * answer. */
int ruler_run_prompt(ruler_runner *r, const ruler_task *task, const ruler_prompt *p,
                     ruler_result *results, void (*step)(void *user), void *user);

#endif
