/* SPDX-License-Identifier: Apache-2.0 */
/* How a sampler asks a constraint, which it knows nothing else of. */
#ifndef AG_TEXT_SAMPLER_FILTER_H
#define AG_TEXT_SAMPLER_FILTER_H

#include <antigravity/sampler.h>
#include <stdint.h>

typedef struct ag_token_filter ag_token_filter;

typedef struct ag_token_filter_ops {
    /* Bit id % 32 of (*mask)[id / 32]: the token may be chosen; for n_vocab ids, borrowed until the
     * next call. */
    ag_status (*mask)(ag_token_filter *f, const uint32_t **mask, ag_error *err);
    /* The token is part of the text. What is wrong with it the next mask tells. */
    void (*accept)(ag_token_filter *f, int32_t id);
    /* A new text begins. */
    void (*reset)(ag_token_filter *f);
    /* Writes at most n tokens that are likely to follow because the text has no other way on, and
     * returns how many. */
    size_t (*forced)(ag_token_filter *f, int32_t *ids, size_t n);
} ag_token_filter_ops;

struct ag_token_filter {
    const ag_token_filter_ops *ops;
    size_t n_vocab;
};

/* Borrows f until it is replaced; NULL: none. AG_INVALID if it has another vocabulary. */
ag_status ag_sampler_set_filter(ag_sampler *s, ag_token_filter *f, ag_error *err);
/* What the filter's `forced` gives; 0 without one. */
size_t ag_sampler_forced(ag_sampler *s, int32_t *ids, size_t n);

#endif
