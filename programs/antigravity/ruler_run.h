/* SPDX-License-Identifier: Apache-2.0 */
/* A prompt asked with a full cache and with every policy and share removed: it is read once, and
 * forks of that session go different ways from there. */
#ifndef ANTIGRAVITY_RULER_RUN_H
#define ANTIGRAVITY_RULER_RUN_H

#include "engine.h"
#include "ruler_prompt.h"

enum { RULER_POLICIES = 16, RULER_RATIOS = 8 };

/* What is compared with a full cache. */
typedef struct ruler_settings {
    const ag_eviction_policy *policies[RULER_POLICIES]; /* [n_policies] that evict */
    double ratios[RULER_RATIOS];                        /* [n_ratios] shares removed */
    size_t n_policies, n_ratios;
    bool unseen; /* the question comes after the eviction */
} ruler_settings;

/* What one prompt gave with one setting. */
typedef struct ruler_result {
    double score;
    uint32_t n_read, n_kept; /* tokens when the eviction came, and behind it */
    size_t kv_bytes;         /* behind it */
    double evict_s, decode_s;
    size_t n_decoded;
} ruler_result;

typedef struct ruler_runner {
    const ruler_settings *settings; /* borrowed, like all of these */
    const model_options *options;
    engine *engine;
    prompt_writer *writer;
    uint32_t max_seq_len; /* tokens of the longest prompt and its answer */
    /* owned; the first has read the prompt for all policies that need only its end, the others for
     * one each */
    ag_session *readers[1 + RULER_POLICIES];
    const char *said; /* "niah_single_1, prompt 3", of the prompt that is asked */
} ruler_runner;

/* The parameters of the largest session there will be. */
ag_session_params ruler_session_params(const ruler_runner *r);
/* How many of that size hold what all sessions of a prompt together do. */
size_t ruler_n_sessions(const ruler_runner *r);
/* Each returns an exit code. */
int ruler_open(ruler_runner *r);
void ruler_close(ruler_runner *r);
/* results[1 + n_policies * n_ratios]: the full cache's, then policy by policy; step() after each
 * answer. */
int ruler_ask(ruler_runner *r, const ruler_task *task, const ruler_prompt *p, ruler_result *results,
              void (*step)(void *user), void *user);

#endif
