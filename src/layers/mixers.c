/* SPDX-License-Identifier: Apache-2.0 */
#include "layers/mixers.h"

#include "core/fail.h"
#include "layers/layer.h"

static ag_status run_sequence(const ag_layer_facts *facts, const ag_sequence *s,
                              const ag_tensor inputs[AG_STATE_INPUTS], ag_state_fn fn, void *user,
                              ag_error *err) {
    ag_tensor rows[AG_STATE_INPUTS] = {{0}};
    for (int i = 0; i < AG_STATE_INPUTS; i++) {
        if (inputs[i].buffer) AG_TRY(ag_tensor_rows(&rows[i], &inputs[i], s->row0, s->n, err));
    }
    return ag_layer_state_run(s->state, facts->state, rows, s->row0, fn, user, err);
}

ag_status ag_mix_sequences(const ag_layer_facts *facts, const ag_layer_pass *pass,
                           const ag_tensor inputs[AG_STATE_INPUTS], ag_state_fn fn, void *user,
                           ag_error *err) {
    for (size_t i = 0; i < pass->n_seqs; i++) {
        AG_TRY(ag_layer_state_restore(pass->seqs[i].state, facts->state, pass->ws->shape.n_rows, fn,
                                      user, err));
    }
    for (size_t i = 0; i < pass->n_seqs; i++) {
        AG_TRY(run_sequence(facts, &pass->seqs[i], inputs, fn, user, err));
    }
    return AG_OK;
}
