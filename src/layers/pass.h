/* SPDX-License-Identifier: Apache-2.0 */
/* Forward pass: the program, the rows and the memory that its operations use. */
#ifndef AG_LAYERS_PASS_H
#define AG_LAYERS_PASS_H

#include "core/program.h"
#include "layers/attention.h"
#include "layers/workspace.h"

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
} ag_pass;

/* Returns the rows of a value: [n_rows, cols]. */
static inline ag_tensor ag_pass_value(const ag_pass *pass, uint16_t value) {
    const ag_value *v = &pass->program->values[value];
    return (ag_tensor){.dtype = AG_F32,
                       .shape = ag_shape_2d(pass->n_rows, v->cols),
                       .offset = (size_t)v->offset * pass->ws->shape.n_rows * sizeof(float),
                       .buffer = pass->ws->storage};
}

#endif
