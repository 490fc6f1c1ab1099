/* SPDX-License-Identifier: Apache-2.0 */
/* The frequencies of rotary positions. */
#ifndef AG_MODELS_ROPE_H
#define AG_MODELS_ROPE_H

#include "formats/weight_source.h"
#include "models/spec.h"

/* inv_freq[i] = theta^(-2i / n_rotated) for i in [0, n_rotated / 2), rescaled as the table says;
 * the angle of pair i at position p is p * inv_freq[i]. In float32 step by step, as Hugging Face
 * transformers computes it (modeling_rope_utils.py): to the last bit for published models, within
 * two units in the last place for any base. is_long: for sessions of ag_spec_is_long(). */
void ag_rope_inv_freq(const ag_rope_spec *rope, bool is_long, float *inv_freq);

/* Divides the n frequencies by what the tensor of that name holds for each, if there is one: GGUF
 * files say a scaling so. AG_SHAPE if it holds another number of values. */
ag_status ag_rope_divide(const ag_weight_source *source, const char *tensor, float *inv_freq,
                         size_t n, ag_error *err);

#endif
