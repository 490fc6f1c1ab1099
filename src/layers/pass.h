/* SPDX-License-Identifier: Apache-2.0 */
/* Forward pass: the program, the rows and the memory that its operations use. */
#ifndef AG_LAYERS_PASS_H
#define AG_LAYERS_PASS_H

#include "core/program.h"
#include "layers/attention.h"
#include "layers/workspace.h"

#include <antigravity/model.h>

/* Hook for timing and tests, called on the engine's thread after operations of a pass.
 * Operations [first, next) have run, possibly as one. first == next: the pass, or the call for
 * logits, is about to run operation `first`. An error ends the pass. */
typedef struct ag_op_hook {
    ag_status (*after)(void *user, uint32_t first, uint32_t next, ag_error *err);
    void *user;
} ag_op_hook;

static inline ag_status ag_op_hook_call(const ag_op_hook *hook, uint32_t first, uint32_t next,
                                        ag_error *err) {
    return hook ? hook->after(hook->user, first, next, err) : AG_OK;
}

typedef struct ag_pass {
    ag_backend *backend;
    const ag_program *program;
    const ag_bound_weight *weights; /* [program->n_weights] */
    ag_tensor (*inv_freq)[2];       /* [tables] for short and for long texts, on the host */
    ag_workspace *ws;
    size_t n_rows;
    const ag_sequence *seqs;
    size_t n_seqs;
    ag_sequence *selected;  /* scratch for n_seqs sequences: those with output rows after `cut` */
    const ag_op_hook *hook; /* may be NULL */
    ag_chosen_fn chosen;    /* receives the choices of experts; may be NULL */
    void *chosen_user;
} ag_pass;

/* Returns the rows of a value: [n_rows, cols]. */
static inline ag_tensor ag_pass_value(const ag_pass *pass, uint16_t value) {
    const ag_value *v = &pass->program->values[value];
    return (ag_tensor){.dtype = AG_F32,
                       .shape = ag_shape_2d(pass->n_rows, v->cols),
                       .offset = (size_t)v->offset * pass->ws->shape.n_rows * sizeof(float),
                       .buffer = pass->ws->storage};
}

/* output_rows.c. Output rows are the rows whose results are needed. Operations from the program's
 * `cut` on store nothing of a row, so they run on output rows only.
 * Moves the output rows of every live value to its start and limits the rest of the pass to them.
 * Keeps all rows if a policy sums attention weights or if products are observed. */
ag_status ag_select_output_rows(ag_pass *pass, ag_error *err);

/* state_ops.c. Runs AG_OP_SHORT_CONV: out of in, [n, channels] each. */
ag_status ag_run_short_conv(const ag_pass *pass, const ag_op *op, const ag_tensor *in,
                            ag_tensor *out, ag_error *err);
/* Runs AG_OP_DELTA_NET: out[0] [n, values] of in: qkv [n, channels], a and b [n, value heads].
 * out[1] [n, channels] is scratch. */
ag_status ag_run_delta_net(const ag_pass *pass, const ag_op *op, const ag_tensor *in,
                           ag_tensor *out, ag_error *err);

#endif
