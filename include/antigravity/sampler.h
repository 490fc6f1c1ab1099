/* SPDX-License-Identifier: Apache-2.0 */
/* Samplers: choose a token from a row of logits. */
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

/* Breakers of DRY: texts across which a repetition does not count. Immutable; any thread may use
 * them. */
typedef struct ag_tokenizer ag_tokenizer;
typedef struct ag_dry_breakers ag_dry_breakers;
/* Finds the tokens of texts[0..n), NUL-terminated, 1 to 40 bytes each. t is not needed later. Fails
 * with AG_INVALID for another length. */
AG_API ag_status ag_dry_breakers_create(const ag_tokenizer *t, const char *const *texts, size_t n,
                                        ag_dry_breakers **out, ag_error *err);
/* Returns b with one more reference; NULL stays NULL. */
AG_API ag_dry_breakers *ag_dry_breakers_retain(ag_dry_breakers *b);
/* Drops a reference. Samplers that were created with b have their own. */
AG_API void ag_dry_breakers_destroy(ag_dry_breakers *b);

enum { AG_SAMPLER_MAX_WINDOW = 1 << 20 }; /* largest repetition_window and dry_window */

/* Sampling parameters, applied in this order, which is that of llama.cpp. The comments state the
 * defaults of ag_sampler_defaults(), which are llama.cpp's too. All steps before the temperature
 * compare probabilities at temperature 1, among the tokens that remain. */
typedef struct ag_sampler_params {
    const ag_logit_bias *logit_bias; /* copied at creation */
    size_t n_logit_bias;
    /* Default 1: off. Divides positive logits of recent tokens by it and multiplies negative ones,
     * once for each distinct token. */
    float repetition_penalty;
    uint32_t repetition_window; /* newest tokens, including the prompt; 64 */
    float presence_penalty;     /* 0; subtracted once if the token is in the window */
    float frequency_penalty;    /* 0; subtracted for each occurrence in the window */
    /* DRY: if the last n tokens occurred before, n >= dry_allowed_length, subtracts dry_multiplier
     * * dry_base^(n - dry_allowed_length) from the token that followed there. */
    float dry_multiplier;          /* 0: off; at least 0 */
    float dry_base;                /* 1.75; at least 1 */
    uint32_t dry_allowed_length;   /* 2 */
    uint32_t dry_window;           /* newest tokens, including the prompt; 1024; 0: off */
    ag_dry_breakers *dry_breakers; /* the sampler adds a reference; NULL: none */
    float top_n_sigma; /* 0: off; retains logits >= the largest - N standard deviations of all */
    uint32_t top_k;    /* 40; 0: off */
    float typical_p;   /* 1 or 0: off; retains the nearest to the entropy, until they exceed this */
    float top_p;       /* 0.95; 1: off; retains the best, until they reach this */
    float min_p;       /* 0.05; 0: off; retains p >= min_p * (largest p) */
    /* XTC: with this probability removes all tokens of at least the threshold but the least
     * probable of them. */
    float xtc_probability;  /* 0: off */
    float xtc_threshold;    /* 0.1; above 0.5: off */
    float temperature;      /* 0.8; 0: greedy, where the lowest id wins a tie */
    float dynamic_range;    /* 0: off; the temperature moves by this with the entropy */
    float dynamic_exponent; /* 1; of the normalised entropy */
    uint64_t seed;
    uint64_t reserved[4]; /* must be 0 */
} ag_sampler_params;
AG_API ag_sampler_params ag_sampler_defaults(void);
/* Returns the bytes that a sampler of n_vocab tokens allocates. */
AG_API size_t ag_sampler_bytes(const ag_sampler_params *p, size_t n_vocab);

/* A sampler. Used by one thread at a time. */
typedef struct ag_sampler ag_sampler;

/* Creates a sampler and allocates all its memory; sampling allocates nothing. AG_INVALID names the
 * parameter that is out of range: NaN, a negative temperature, top_p outside (0, 1], ids outside
 * the vocabulary, ... */
AG_API ag_status ag_sampler_create(const ag_sampler_params *params, int32_t n_vocab,
                                   ag_sampler **out, ag_error *err);
AG_API void ag_sampler_destroy(ag_sampler *s);

/* Adds a chosen token to the text: penalties and the constraint advance. */
AG_API void ag_sampler_accept(ag_sampler *s, int32_t id);
/* Adds a token of the prompt: penalties advance, the constraint does not. */
AG_API void ag_sampler_accept_prompt(ag_sampler *s, int32_t id);
/* Removes the text, restarts the random sequence from the seed and resets the constraint. */
AG_API void ag_sampler_reset(ag_sampler *s);

/* Makes the next n choices return these ids, so that benchmarks can feed a known text as if it were
 * chosen. ids are borrowed until the last of these choices; n = 0 or a reset ends it earlier. */
AG_API void ag_sampler_replay(ag_sampler *s, const int32_t *ids, size_t n);

/* Attaches a constraint (constrain.h): the sampler chooses only tokens that c allows and advances c
 * by accepted tokens. c is borrowed until it is replaced; NULL removes it. If only one token may
 * follow, it is chosen without a random number. Fails with AG_INVALID if c has another vocabulary.
 */
typedef struct ag_constraint ag_constraint;
AG_API ag_status ag_sampler_constrain(ag_sampler *s, ag_constraint *c, ag_error *err);

/* Chooses a token from logits[n_vocab], which do not change. Does not accept the choice. The result
 * depends only on the parameters, the logits and earlier calls. Fails with AG_INVALID for NaN or a
 * row of only -inf. */
AG_API ag_status ag_sampler_sample(ag_sampler *s, const float *logits, int32_t *id, ag_error *err);

#ifdef __cplusplus
}
#endif
#endif
