/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a RULER prompt with a full cache and with each policy and share removed. The prompt is read
 * once; forks of its session evict and answer. */
#ifndef ANTIGRAVITY_RULER_RUN_H
#define ANTIGRAVITY_RULER_RUN_H

#include "../../model/engine.h"
#include "prompt.h"

enum { RULER_METHODS = 24, RULER_RATIOS = 8 };

/* Method that selects the retained tokens. */
typedef struct ruler_method {
    char name[24];
    const ag_eviction_policy
        *policy;   /* NULL: kvzip, which retains the tokens needed to repeat the context */
    double replay; /* kvzip: share of the context that is replayed */
} ruler_method;

/* Settings that are compared with a full cache. */
typedef struct ruler_settings {
    ruler_method methods[RULER_METHODS]; /* [n_methods] */
    double ratios[RULER_RATIOS];         /* [n_ratios] shares of the tokens removed */
    size_t n_methods, n_ratios;
    bool unseen; /* the question is read after the eviction */
} ruler_settings;

/* Result of one prompt with one setting. */
typedef struct ruler_result {
    double score;
    uint32_t n_read, n_retained; /* tokens before and after the eviction (kvzip: mean over heads) */
    size_t n_replayed;           /* by kvzip */
    size_t kv_bytes;             /* after the eviction */
    double evict_s, decode_s;
    size_t n_decoded;
} ruler_result;

typedef struct ruler_runner {
    const ruler_settings *settings; /* borrowed, as the next three */
    const model_options *options;
    engine *engine;
    prompt_writer *writer;
    uint32_t max_seq_len; /* longest prompt and its answer; see ruler_slots() */
    /* Owned. [0] reads the prompt for policies that need only its end. [1 + i] reads it for method
     * i, if that needs every query. */
    ag_session *readers[1 + RULER_METHODS];
    ag_replay_request request; /* owned; the end of the prompt's own message follows it */
    const char *label;         /* current prompt: "niah_single_1, prompt 3" */
} ruler_runner;

/* Returns the slots for prompts and answers of n_tokens, including those of a replay. */
uint32_t ruler_slots(const ruler_settings *s, const ag_model_info *info, uint32_t n_tokens);
/* Returns the parameters of the largest session. */
ag_session_params ruler_session_params(const ruler_runner *r);
/* Returns how many sessions of that size need as much memory as all sessions of a prompt. */
size_t ruler_n_sessions(const ruler_runner *r);
/* Each returns an exit code. */
int ruler_open(ruler_runner *r);
void ruler_close(ruler_runner *r);
/* Fills results[1 + n_methods * n_ratios]: the full cache, then method by method. Calls step()
 * after each answer. */
int ruler_run_prompt(ruler_runner *r, const ruler_task *task, const ruler_prompt *p,
                     ruler_result *results, void (*step)(void *user), void *user);

#endif
