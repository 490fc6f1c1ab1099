/* SPDX-License-Identifier: Apache-2.0 */
/* Token filter: the interface through which a sampler uses a constraint. */
#ifndef AG_TEXT_SAMPLER_FILTER_H
#define AG_TEXT_SAMPLER_FILTER_H

#include <antigravity/sampler.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct ag_token_filter ag_token_filter;

typedef struct ag_token_filter_ops {
    /* Sets *mask: bit id % 32 of word id / 32 is set if the token is allowed, for n_vocab ids;
     * NULL: all are. Borrowed until the next call. */
    ag_status (*mask)(ag_token_filter *f, const uint32_t **mask, ag_error *err);
    /* Returns whether mask() sets NULL. */
    bool (*is_free)(ag_token_filter *f);
    /* Returns whether a token that the mask allows may follow; if not, the next mask excludes it.
     * NULL: the mask is exact. */
    bool (*permits)(ag_token_filter *f, int32_t id);
    /* Appends the token to the text. An error is reported by the next mask(). */
    void (*accept)(ag_token_filter *f, int32_t id);
    /* Starts a new text. */
    void (*reset)(ag_token_filter *f);
    /* Writes at most n tokens that probably follow because the text has a single continuation.
     * Returns how many. */
    size_t (*forced)(ag_token_filter *f, int32_t *ids, size_t n);
} ag_token_filter_ops;

struct ag_token_filter {
    const ag_token_filter_ops *ops;
    size_t n_vocab;
};

/* Borrows f until it is replaced; NULL: none. Fails with AG_INVALID if the vocabularies differ in
 * size. */
ag_status ag_sampler_set_filter(ag_sampler *s, ag_token_filter *f, ag_error *err);
/* Returns whether the filter allows all tokens now. */
bool ag_sampler_is_free(const ag_sampler *s);
/* Calls the filter's forced(); returns 0 without a filter. */
size_t ag_sampler_forced(ag_sampler *s, int32_t *ids, size_t n);

#endif
