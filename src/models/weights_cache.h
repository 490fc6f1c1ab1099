/* SPDX-License-Identifier: Apache-2.0 */
/* Converted weights kept in a file, so that the next start converts nothing: a GGUF file of the
 * matrices that do not keep the type of the source, as plain rows. It says of which files, at what
 * sizes and times, it was made, and is used for nothing else. Its owner alone can read it. */
#ifndef AG_MODELS_WEIGHTS_CACHE_H
#define AG_MODELS_WEIGHTS_CACHE_H

#include "models/weights.h"

/* What there was, and what was done. */
typedef struct ag_weights_cache {
    ag_weight_source *file;   /* owned; NULL: there is nothing to be used */
    uint64_t bytes_done;      /* of the source that were read to make it */
    ag_cache_outcome outcome; /* AG_CACHE_NONE: no matrix is converted */
} ag_weights_cache;

/* Finds or makes the file in params->weights_cache, a directory, "" for the usual one. What goes
 * wrong is a warning in the backend's log, and *out has no file then; what is in the way of a new
 * one is replaced. AG_CANCELLED if params->progress says so, and nothing is left behind. */
ag_status ag_weights_cache_open(ag_weights_cache *out, ag_backend *be, const ag_model_spec *s,
                                const ag_weight_source *source, const ag_weights_summary *summary,
                                const ag_model_params *params, ag_error *err);
void ag_weights_cache_close(ag_weights_cache *c);

/* The i-th of the matrices that are converted, in the order of the layers, lm_head last. NULL
 * without a file. */
const ag_source_tensor *ag_weights_cache_at(const ag_weights_cache *c, size_t i);

#endif
