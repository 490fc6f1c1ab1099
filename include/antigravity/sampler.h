/* SPDX-License-Identifier: Apache-2.0 */
/* From a row of logits to a token. */
#ifndef ANTIGRAVITY_SAMPLER_H
#define ANTIGRAVITY_SAMPLER_H

#include <antigravity/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ag_logit_bias {
    int32_t id;
    float bias; /* added to the logit; -INFINITY forbids the token */
} ag_logit_bias;

/* Applied in this order. ag_sampler_defaults() fills in the defaults named here. */
typedef struct ag_sampler_params {
    const ag_logit_bias *logit_bias; /* copied at creation */
    size_t n_logit_bias;
    float repetition_penalty; /* 1.1; 1 = off; once per distinct recent token: logit < 0 ? * : / */
    uint32_t repetition_window; /* 64 newest tokens, prompt included */
    float presence_penalty;     /* 0; subtracted once if the token is in the window */
    float frequency_penalty;    /* 0; subtracted per occurrence in the window */
    float temperature;          /* 0.8; 0 = greedy, the lowest id wins a tie */
    uint32_t top_k;             /* 40; 0 = off */
    float top_p;                /* 0.9, on the renormalised top-k; 1 = off */
    float min_p;                /* 0 = off; keeps p >= min_p * (largest p) */
    uint64_t seed;
    uint64_t reserved[4]; /* 0: what later versions ask for */
} ag_sampler_params;
AG_API ag_sampler_params ag_sampler_defaults(void);

/* Belongs to one thread at a time. */
typedef struct ag_sampler ag_sampler;

/* AG_INVALID names the parameter that is out of range (NaN, negative temperature, top_p outside
 * (0, 1], ids outside the vocabulary, ...). All memory is taken here: sampling allocates nothing.
 */
AG_API ag_status ag_sampler_create(const ag_sampler_params *params, int32_t n_vocab,
                                   ag_sampler **out, ag_error *err);
AG_API void ag_sampler_destroy(ag_sampler *s);

/* Tells the sampler of a token that is now part of the text, as chosen. */
AG_API void ag_sampler_accept(ag_sampler *s, int32_t id);
/* The same for a token of the prompt, which penalties know and a constraint does not. */
AG_API void ag_sampler_accept_prompt(ag_sampler *s, int32_t id);
/* Forgets the text and starts the random sequence from the seed again; so does the constraint. */
AG_API void ag_sampler_reset(ag_sampler *s);

/* The next n choices are these ids, whatever they would have been: a text that is known passes
 * through a model as if it were chosen, to measure. ids are borrowed meanwhile; n = 0 and a reset
 * end it. */
AG_API void ag_sampler_replay(ag_sampler *s, const int32_t *ids, size_t n);

/* constrain.h: from here on only tokens are chosen that c allows, and c is told of those that are
 * accepted. Borrowed until it is replaced; NULL: none. Where one token alone may follow it is
 * chosen without a random number. AG_INVALID if c is of another vocabulary. */
typedef struct ag_constraint ag_constraint;
AG_API ag_status ag_sampler_constrain(ag_sampler *s, ag_constraint *c, ag_error *err);

/* Chooses from logits[n_vocab], which it leaves as they are; does not accept the choice. Depends
 * only on the parameters, the logits and the calls before. A row without a finite logit (NaN, all
 * -inf) is AG_INVALID. */
AG_API ag_status ag_sampler_sample(ag_sampler *s, const float *logits, int32_t *id, ag_error *err);

#ifdef __cplusplus
}
#endif
#endif
