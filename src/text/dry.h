/* SPDX-License-Identifier: Apache-2.0 */
/* DRY ("don't repeat yourself"): a penalty for tokens that would continue a repetition of the
 * text. */
#ifndef AG_TEXT_DRY_H
#define AG_TEXT_DRY_H

#include <antigravity/sampler.h>

typedef struct ag_dry ag_dry;

/* Creates the state of a text; *out is NULL if dry_multiplier or dry_window is 0. */
ag_status ag_dry_create(const ag_sampler_params *p, size_t n_vocab, ag_dry **out, ag_error *err);
/* Returns the bytes that ag_dry_create() allocates, without the breakers. */
size_t ag_dry_bytes(const ag_sampler_params *p, size_t n_vocab);
void ag_dry_destroy(ag_dry *d);
/* Adds a token to the text. d may be NULL, as below. */
void ag_dry_accept(ag_dry *d, int32_t id);
/* Removes the text. */
void ag_dry_reset(ag_dry *d);
/* Subtracts the penalties from logits[n_vocab]. */
void ag_dry_penalise(ag_dry *d, float *logits);

#endif
