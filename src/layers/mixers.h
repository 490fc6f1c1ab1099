/* SPDX-License-Identifier: Apache-2.0 */
/* The mixers that keep a state instead of keys and values: what takes the place of attention. */
#ifndef AG_LAYERS_MIXERS_H
#define AG_LAYERS_MIXERS_H

#include "cache/layer_state.h"

struct ag_layer;
struct ag_layer_facts;
struct ag_layer_pass;

/* From the pass's rows normed [n, dim] to what the output projection reads: *out, a view of the
 * workspace. */
typedef ag_status ag_mixer_fn(const struct ag_layer *layer, const struct ag_layer_facts *facts,
                              const struct ag_layer_pass *pass, const ag_tensor *normed,
                              ag_tensor *out, ag_error *err);
ag_mixer_fn ag_short_conv; /* y = C * conv(B * x) */
ag_mixer_fn ag_delta_net;  /* norm(delta rule(conv(q, k, v), a, b)) * silu(z) */

/* Every sequence's rows of inputs[i] [n, ...] through the layer's state, each sequence by itself:
 * first all states are made what they were, then the pass's rows follow. */
ag_status ag_mix_sequences(const struct ag_layer_facts *facts, const struct ag_layer_pass *pass,
                           const ag_tensor inputs[AG_STATE_INPUTS], ag_state_fn fn, void *user,
                           ag_error *err);

#endif
