/* SPDX-License-Identifier: Apache-2.0 */
/* Frequencies of rotary position embeddings. */
#ifndef AG_MODELS_ROPE_H
#define AG_MODELS_ROPE_H

#include "formats/weight_source.h"
#include "models/spec.h"

/* Sets inv_freq[i] = theta^(-2i / n_rotated) for i in [0, n_rotated / 2), scaled as the table says.
 * The angle of pair i at position p is p * inv_freq[i]. Computes in float32 step by step as Hugging
 * Face transformers (modeling_rope_utils.py): bit-identical for published models, within two units
 * in the last place for any base. is_long: for sessions of ag_spec_is_long(). */
void ag_rope_inv_freq(const ag_rope_spec *rope, bool is_long, float *inv_freq);

/* Divides the n frequencies by the values of a tensor, in which GGUF files store a scaling. Does
 * nothing without it. Fails with AG_SHAPE if the tensor has another type or number of values; with
 * AG_FORMAT if a value is not positive and finite. */
ag_status ag_rope_divide(const ag_weight_source *source, const char *tensor, float *inv_freq,
                         size_t n, ag_error *err);

#endif
