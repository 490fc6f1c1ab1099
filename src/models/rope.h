/* SPDX-License-Identifier: Apache-2.0 */
/* The frequencies of rotary positions. */
#ifndef AG_MODELS_ROPE_H
#define AG_MODELS_ROPE_H

#include "models/config.h"

/* inv_freq[i] = theta^(-2i / head_dim) for i in [0, head_dim / 2), rescaled as the configuration
 * says; the angle of pair i at position p is p * inv_freq[i]. In float32 step by step, as Hugging
 * Face transformers computes it (modeling_rope_utils.py): to the last bit for published models,
 * within two units in the last place for any base. */
void ag_rope_inv_freq(const ag_llama_config *c, float *inv_freq);

#endif
