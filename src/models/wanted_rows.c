/* SPDX-License-Identifier: Apache-2.0 */
/* Behind the last layer that keeps anything of a token, only rows whose logits are wanted go on:
 * where layers share keys and values, that is after half of a prompt's work. */
#include "models/wanted_rows.h"

#include "core/backend_ops.h"
#include "core/fail.h"

#include <string.h>

size_t ag_wanted_rows(const ag_layer_pass *pass) {
    size_t n = 0;
    for (size_t i = 0; i < pass->n_seqs; i++) {
        if (pass->seqs[i].scores.sums) return pass->n_rows;
        n += pass->seqs[i].n - pass->seqs[i].n_unwanted;
    }
    return n;
}

/* Calls back for every run of wanted rows: where it is, and where the rows before it end. */
typedef ag_status (*run_fn)(void *ctx, size_t from, size_t to, size_t n);

static ag_status each_run(const ag_layer_pass *pass, run_fn fn, void *ctx) {
    size_t to = 0;
    for (size_t i = 0; i < pass->n_seqs; i++) {
        const ag_sequence *s = &pass->seqs[i];
        const size_t n = s->n - s->n_unwanted, from = s->row0 + s->n_unwanted;
        if (n && from != to) AG_TRY(fn(ctx, from, to, n));
        to += n;
    }
    return AG_OK;
}

typedef struct moving {
    ag_backend *backend;
    ag_tensor *rows;
} moving;

static ag_status move_rows(void *ctx, size_t from, size_t to, size_t n) {
    const moving *m = ctx;
    const size_t cols = ag_shape_cols(&m->rows->shape);
    return ag_copy_slice(m->backend, m->rows, to * cols, m->rows, from * cols, n * cols);
}

ag_status ag_gather_wanted(const ag_layer_pass *pass, ag_tensor *rows, ag_error *err) {
    moving m = {pass->backend, rows};
    return ag_take_error(pass->backend, each_run(pass, move_rows, &m), err);
}

static ag_status move_numbers(void *ctx, size_t from, size_t to, size_t n) {
    uint32_t *numbers = ctx;
    memmove(numbers + to, numbers + from, n * sizeof *numbers);
    return AG_OK;
}

static size_t list_wanted(const ag_layer_pass *pass, ag_sequence *out, size_t *n_rows) {
    size_t n = 0;
    *n_rows = 0;
    for (size_t i = 0; i < pass->n_seqs; i++) {
        ag_sequence s = pass->seqs[i];
        if (s.n == s.n_unwanted) continue;
        s.position += (uint32_t)s.n_unwanted;
        s.n -= s.n_unwanted;
        s.row0 = *n_rows;
        *n_rows += s.n;
        out[n++] = s;
    }
    return n;
}

ag_status ag_narrow_pass(ag_model *m, const ag_layer_pass *pass, ag_layer_pass *out,
                         ag_error *err) {
    ag_workspace *ws = pass->ws;
    ag_tensor residual, normed;
    AG_TRY(ag_layer_view(pass, &ws->residual, ws->shape.dim, &residual, err));
    AG_TRY(ag_layer_view(pass, &ws->normed, ws->shape.dim, &normed, err));
    AG_TRY(ag_gather_wanted(pass, &residual, err));
    AG_TRY(ag_gather_wanted(pass, &normed, err));
    each_run(pass, move_numbers, ws->positions);
    for (size_t w = 0; w < ws->shape.n_windows; w++)
        each_run(pass, move_numbers, ws->visible_from + w * ws->shape.n_rows);
    *out = *pass;
    out->seqs = m->narrowed;
    out->n_seqs = list_wanted(pass, m->narrowed, &out->n_rows);
    return AG_OK;
}

ag_status ag_widen_pass(const ag_layer_pass *pass, ag_error *err) {
    const size_t dim = pass->ws->shape.dim;
    size_t end = ag_wanted_rows(pass);
    ag_tensor normed;
    AG_TRY(ag_layer_view(pass, &pass->ws->normed, dim, &normed, err));
    for (size_t i = pass->n_seqs; i--;) { /* the last first: none is written over */
        const ag_sequence *s = &pass->seqs[i];
        const size_t n = s->n - s->n_unwanted, to = s->row0 + s->n_unwanted;
        end -= n;
        if (!n || to == end) continue;
        AG_TRY(ag_take_error(
            pass->backend,
            ag_copy_slice(pass->backend, &normed, to * dim, &normed, end * dim, n * dim), err));
    }
    return AG_OK;
}
