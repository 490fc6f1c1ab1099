/* SPDX-License-Identifier: Apache-2.0 */
#include "layers/pass.h"

#include "core/backend_ops.h"
#include "core/fail.h"

#include <string.h>

/* Returns the number of output rows. An observer of products needs every row. */
static size_t n_output_rows(const ag_pass *pass) {
    size_t n = 0;
    if (pass->backend->observe) return pass->n_rows;
    for (size_t i = 0; i < pass->n_seqs; i++) {
        if (pass->seqs[i].scores.sums) return pass->n_rows;
        n += pass->seqs[i].n - pass->seqs[i].n_without_output;
    }
    return n;
}

/* Moves the output rows of a value to its start. Sequences are in row order, so no row is
 * overwritten before it has moved. */
static ag_status gather_rows(const ag_pass *pass, ag_tensor *rows, ag_error *err) {
    const size_t cols = ag_shape_cols(&rows->shape);
    size_t to = 0;
    for (size_t i = 0; i < pass->n_seqs; i++) {
        const ag_sequence *s = &pass->seqs[i];
        const size_t n = s->n - s->n_without_output, from = s->row0 + s->n_without_output;
        if (n && from != to) {
            AG_TRY(ag_take_error(
                pass->backend,
                ag_copy_slice(pass->backend, rows, to * cols, rows, from * cols, n * cols), err));
        }
        to += n;
    }
    return AG_OK;
}

static void gather_indices(const ag_pass *pass, uint32_t *indices) {
    size_t to = 0;
    for (size_t i = 0; i < pass->n_seqs; i++) {
        const ag_sequence *s = &pass->seqs[i];
        const size_t n = s->n - s->n_without_output;
        memmove(indices + to, indices + s->row0 + s->n_without_output, n * sizeof *indices);
        to += n;
    }
}

static void select_sequences(ag_pass *pass) {
    size_t n = 0, n_rows = 0;
    for (size_t i = 0; i < pass->n_seqs; i++) {
        ag_sequence s = pass->seqs[i];
        if (s.n == s.n_without_output) continue;
        s.position += (uint32_t)s.n_without_output;
        s.n -= s.n_without_output;
        s.row0 = n_rows;
        n_rows += s.n;
        pass->selected[n++] = s;
    }
    pass->seqs = pass->selected;
    pass->n_seqs = n;
    pass->n_rows = n_rows;
}

ag_status ag_select_output_rows(ag_pass *pass, ag_error *err) {
    const ag_program *p = pass->program;
    ag_workspace *ws = pass->ws;
    if (n_output_rows(pass) == pass->n_rows) return AG_OK;
    for (uint32_t i = 0; i < p->n_live; i++) {
        ag_tensor value = ag_pass_value(pass, p->live[i]);
        AG_TRY(gather_rows(pass, &value, err));
    }
    gather_indices(pass, ws->positions);
    for (size_t w = 0; w < ws->shape.n_windows; w++)
        gather_indices(pass, ws->visible_from + w * ws->shape.n_rows);
    select_sequences(pass);
    return AG_OK;
}
