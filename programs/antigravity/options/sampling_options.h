/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling options: temperature, top-k, penalties, seed. */
#ifndef ANTIGRAVITY_SAMPLING_OPTIONS_H
#define ANTIGRAVITY_SAMPLING_OPTIONS_H

#include "options.h"

#include <antigravity/sampler.h>

enum { MAX_DRY_BREAKERS = 32, MAX_BREAKER_BYTES = 40 };

typedef struct sampling_options {
    double temperature, dynamic_range, dynamic_exponent;
    double top_n_sigma, typical_p, top_p, min_p, xtc_probability, xtc_threshold;
    double repetition_penalty, presence_penalty, frequency_penalty;
    uint32_t top_k;
    int64_t repetition_window; /* -1: the entire context */
    double dry_multiplier, dry_base;
    uint32_t dry_allowed_length;
    int64_t dry_window;                                      /* -1: the entire context */
    char dry_texts[MAX_DRY_BREAKERS][MAX_BREAKER_BYTES + 1]; /* [n_dry_texts] */
    size_t n_dry_texts;                                      /* 0: the usual ones */
    bool no_dry_texts;
    ag_dry_breakers *dry_breakers; /* owned; NULL before sampling_prepare() */
    bool has_seed;
    uint64_t seed;
    ag_logit_bias *bias; /* owned */
    size_t n_bias;
} sampling_options;

sampling_options sampling_options_defaults(void);
/* Returns options whose values are unset: NAN; SAMPLING_UNSET for windows, UINT32_MAX for top_k and
 * 0 for dry_allowed_length. */
sampling_options sampling_options_unset(void);
#define SAMPLING_UNSET INT64_MIN
void sampling_options_free(sampling_options *o);
option_group sampling_group(sampling_options *o);

uint64_t sampling_draw_seed(void);
/* Returns the tokens of a window: n, or all of the context if n is negative or larger. */
uint32_t sampling_window(int64_t n, uint32_t n_context);

/* Finds the tokens of the breakers, if DRY is on. */
ag_status sampling_prepare(sampling_options *o, const ag_tokenizer *t, ag_error *err);
/* The breakers that apply if none are given. */
extern const char *const sampling_usual_breakers[];
enum { N_USUAL_BREAKERS = 4 };

/* Returns the sampler parameters; they borrow o->bias and o->dry_breakers. Draws the seed
 * if it was not given. */
ag_sampler_params sampling_params(sampling_options *o, uint32_t n_context);

#endif
