/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling options: temperature, top-k, penalties, seed. */
#ifndef ANTIGRAVITY_SAMPLING_OPTIONS_H
#define ANTIGRAVITY_SAMPLING_OPTIONS_H

#include "options.h"

#include <antigravity/sampler.h>

typedef struct sampling_options {
    double temperature, top_p, min_p;
    double repetition_penalty; /* 0: not given; the default depends on the temperature */
    double presence_penalty, frequency_penalty;
    uint32_t top_k;
    int64_t repetition_window; /* -1: the entire context */
    bool has_seed;
    uint64_t seed;
    ag_logit_bias *bias; /* owned */
    size_t n_bias;
} sampling_options;

sampling_options sampling_options_defaults(void);
void sampling_options_free(sampling_options *o);
option_group sampling_group(sampling_options *o);

uint64_t sampling_draw_seed(void);

/* Returns the sampler parameters; they borrow o->bias. Draws the seed and sets the repetition
 * penalty if they were not given. */
ag_sampler_params sampling_params(sampling_options *o, uint32_t n_context);

#endif
