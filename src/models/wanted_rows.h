/* SPDX-License-Identifier: Apache-2.0 */
/* A pass that goes on with some of its rows. */
#ifndef AG_MODELS_WANTED_ROWS_H
#define AG_MODELS_WANTED_ROWS_H

#include "models/model_impl.h"

/* Rows that have to pass all layers: those whose logits are wanted, or all where a policy adds up
 * weights. */
size_t ag_wanted_rows(const ag_layer_pass *pass);
/* *out: the pass with its wanted rows alone, which stand at the beginning of the workspace's
 * residual and normed from here on. */
ag_status ag_narrow_pass(ag_model *m, const ag_layer_pass *pass, ag_layer_pass *out, ag_error *err);
/* The same for any rows [n_rows of the pass, ...]. */
ag_status ag_gather_wanted(const ag_layer_pass *pass, ag_tensor *rows, ag_error *err);
/* Puts the wanted rows of the workspace's normed back where they are in `pass`, as it was. */
ag_status ag_widen_pass(const ag_layer_pass *pass, ag_error *err);

#endif
