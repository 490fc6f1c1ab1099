/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/layer_state.h"

#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "core/rollback.h"

enum { N_SNAPSHOTS = 2, ROWS = AG_ROLLBACK };

/* The state at `position`, with the layer inputs of tokens [position, end). */
typedef struct snapshot {
    bool used, is_empty; /* is_empty: the state of an empty sequence; its bytes are undefined */
    uint32_t position, end;
} snapshot;

/* Offsets of a layer in floats: in a copy of the state, and of each input in the rows of a
 * snapshot. */
typedef struct layer_offsets {
    size_t state, rows[AG_STATE_INPUTS];
} layer_offsets;

struct ag_layer_state {
    ag_backend *backend; /* borrowed */
    ag_buffer *storage;  /* owned; the state, then for each snapshot a copy of it and its rows */
    ag_state_layer *layers;
    layer_offsets *offsets; /* [n_layers + 1] */
    uint32_t n_layers;
    uint32_t position; /* position of the next token */
    bool is_current;   /* the state is that at `position`; false: restore it first */
    snapshot snapshots[N_SNAPSHOTS];
    struct {
        size_t n_rows;
        int from;     /* snapshot to restore from; -1: the state is current */
        int into;     /* snapshot to make; -1: none */
        size_t split; /* rows before that snapshot */
    } pass;
};

/* ---- sizes ---- */

static size_t round_up(size_t n) { return (n + 15) / 16 * 16; } /* to a cache line of floats */

/* Places the state of every layer, then the rows of every layer. */
static void set_offsets(const ag_state_layer *layers, uint32_t n, layer_offsets *offsets) {
    size_t state = 0, row = 0;
    for (uint32_t l = 0; l < n; l++) {
        offsets[l].state = state;
        state += round_up(layers[l].n_values);
    }
    for (uint32_t l = 0; l < n; l++) {
        for (int i = 0; i < AG_STATE_INPUTS; i++) {
            offsets[l].rows[i] = state + row;
            row += round_up(ROWS * layers[l].row_values[i]);
        }
    }
    offsets[n] = (layer_offsets){.state = state, .rows = {state + row}};
}

/* Return the floats of the state, and of a snapshot with its rows. */
static size_t state_floats(const ag_layer_state *s) { return s->offsets[s->n_layers].state; }
static size_t snapshot_floats(const ag_layer_state *s) { return s->offsets[s->n_layers].rows[0]; }

size_t ag_layer_state_bytes(const ag_state_layer *layers, uint32_t n_layers) {
    size_t state = 0, rows = 0;
    for (uint32_t l = 0; l < n_layers; l++) {
        state += round_up(layers[l].n_values);
        for (int i = 0; i < AG_STATE_INPUTS; i++) rows += round_up(ROWS * layers[l].row_values[i]);
    }
    return (state + N_SNAPSHOTS * (state + rows)) * sizeof(float);
}

/* ---- tensors ---- */

static ag_status tensor_at(const ag_layer_state *s, size_t first, size_t rows, size_t cols,
                           ag_tensor *out, ag_error *err) {
    return ag_tensor_make(out, AG_F32, ag_shape_2d(rows, cols), s->storage, first * sizeof(float),
                          err);
}

/* Makes a tensor of a layer's values in the state (of < 0) or in snapshot `of`. */
static ag_status state_of(const ag_layer_state *s, uint32_t layer, int of, ag_tensor *out,
                          ag_error *err) {
    const size_t base = of < 0 ? 0 : state_floats(s) + (size_t)of * snapshot_floats(s);
    return tensor_at(s, base + s->offsets[layer].state, 1, s->layers[layer].n_values, out, err);
}

/* Makes a tensor of rows [row, row + n) of an input in snapshot `of`. */
static ag_status rows_of(const ag_layer_state *s, uint32_t layer, int of, int input, size_t row,
                         size_t n, ag_tensor *out, ag_error *err) {
    const size_t base = state_floats(s) + (size_t)of * snapshot_floats(s);
    const size_t cols = s->layers[layer].row_values[input];
    return tensor_at(s, base + s->offsets[layer].rows[input] + row * cols, n, cols, out, err);
}

static ag_status copy_tensor(ag_backend *be, ag_tensor *to, const ag_tensor *from, ag_error *err) {
    return ag_take_error(be, ag_copy_slice(be, to, 0, from, 0, ag_shape_numel(&from->shape)), err);
}

/* ---- creating ---- */

ag_status ag_layer_state_create(ag_backend *be, const ag_state_layer *layers, uint32_t n_layers,
                                ag_layer_state **out, ag_error *err) {
    *out = NULL;
    if (!n_layers) return AG_OK;
    ag_layer_state *s = ag_calloc(1, sizeof *s);
    if (!s) return AG_FAIL(err, NOMEM, "state of %u layers", n_layers);
    s->backend = be;
    s->n_layers = n_layers;
    s->layers = ag_calloc(n_layers, sizeof *s->layers);
    s->offsets = ag_calloc((size_t)n_layers + 1, sizeof *s->offsets);
    ag_status st =
        s->layers && s->offsets ? AG_OK : AG_FAIL(err, NOMEM, "state of %u layers", n_layers);
    for (uint32_t l = 0; st == AG_OK && l < n_layers; l++) s->layers[l] = layers[l];
    if (st == AG_OK) {
        set_offsets(layers, n_layers, s->offsets);
        st = ag_memory_alloc(ag_backend_memory(be), ag_layer_state_bytes(layers, n_layers),
                             AG_USAGE_SCRATCH, &s->storage, err);
    }
    if (st != AG_OK) {
        ag_layer_state_destroy(s);
        return st;
    }
    ag_layer_state_reset(s);
    *out = s;
    return AG_OK;
}

void ag_layer_state_destroy(ag_layer_state *s) {
    if (!s) return;
    ag_buffer_release(&s->storage);
    ag_free(s->layers);
    ag_free(s->offsets);
    ag_free(s);
}

void ag_layer_state_reset(ag_layer_state *s) {
    if (!s) return;
    s->position = 0;
    s->is_current = false;
    s->snapshots[0] = (snapshot){.used = true, .is_empty = true};
    s->snapshots[1] = (snapshot){.used = false};
}

/* ---- a pass ---- */

/* Returns the newest snapshot from which `position` can be reached; -1: none. */
static int newest_snapshot(const ag_layer_state *s, uint32_t position) {
    int best = -1;
    for (int i = 0; i < N_SNAPSHOTS; i++) {
        const snapshot *p = &s->snapshots[i];
        if (!p->used || p->position > position || p->end < position) continue;
        if (best < 0 || p->position > s->snapshots[best].position) best = i;
    }
    return best;
}

ag_status ag_layer_state_begin(ag_layer_state *s, uint32_t position, size_t n, ag_error *err) {
    if (!s) return AG_OK;
    if (position != s->position) {
        return AG_FAIL(err, INVALID,
                       "the layer state is at position %u, the cache at %u: they must be equal",
                       s->position, position);
    }
    const int newest = newest_snapshot(s, position);
    const uint32_t n_after = position - s->snapshots[newest].position;
    s->pass.n_rows = n;
    s->pass.from = s->is_current ? -1 : newest;
    s->pass.into = -1;
    s->pass.split = 0;
    s->is_current = false; /* until commit() */
    if (n_after + n <= ROWS) return AG_OK;
    s->pass.into = 1 - newest;
    s->pass.split = n > ROWS ? n - ROWS : 0;
    s->snapshots[s->pass.into].used = false;
    return AG_OK;
}

void ag_layer_state_commit(ag_layer_state *s) {
    if (!s) return;
    const uint32_t end = s->position + (uint32_t)s->pass.n_rows;
    if (s->pass.into >= 0) {
        s->snapshots[s->pass.into] =
            (snapshot){.used = true, .position = s->position + (uint32_t)s->pass.split, .end = end};
    } else {
        s->snapshots[newest_snapshot(s, s->position)].end = end;
    }
    s->position = end;
    s->is_current = true;
}

void ag_layer_state_abandon(ag_layer_state *s) {
    if (s) s->is_current = false;
}

static ag_status write_zeros(ag_tensor *state, ag_error *err) {
    static const float zeros[1024];
    const size_t n = ag_shape_numel(&state->shape), max = sizeof zeros / sizeof zeros[0];
    for (size_t i = 0; i < n; i += max) {
        const size_t n_now = n - i < max ? n - i : max;
        AG_TRY(ag_buffer_upload(state->buffer, state->offset + i * sizeof *zeros, zeros,
                                n_now * sizeof *zeros, err));
    }
    return AG_OK;
}

ag_status ag_layer_state_restore(ag_layer_state *s, uint32_t layer, size_t max_rows, ag_state_fn fn,
                                 void *user, ag_error *err) {
    const int from = s->pass.from;
    ag_tensor state, stored, in[AG_STATE_INPUTS] = {{0}};
    if (from < 0) return AG_OK;
    AG_TRY(state_of(s, layer, -1, &state, err));
    AG_TRY(state_of(s, layer, from, &stored, err));
    AG_TRY(s->snapshots[from].is_empty ? write_zeros(&state, err)
                                       : copy_tensor(s->backend, &state, &stored, err));
    const size_t n_rows = s->position - s->snapshots[from].position;
    for (size_t row = 0, n; row < n_rows; row += n) {
        n = n_rows - row < max_rows ? n_rows - row : max_rows;
        for (int i = 0; i < AG_STATE_INPUTS; i++) {
            if (!s->layers[layer].row_values[i]) continue;
            AG_TRY(rows_of(s, layer, from, i, row, n, &in[i], err));
        }
        AG_TRY(fn(user, in, 0, &state, err));
    }
    return AG_OK;
}

/* Runs rows [row, row + n) of the pass through the layer. of >= 0: stores them in snapshot `of`,
 * from its row `at` on. */
static ag_status run_layer_rows(ag_layer_state *s, uint32_t layer, const ag_tensor *in, size_t row0,
                                size_t row, size_t n, int of, size_t at, ag_state_fn fn, void *user,
                                ag_error *err) {
    ag_tensor state, section[AG_STATE_INPUTS] = {{0}};
    if (!n) return AG_OK;
    for (int i = 0; i < AG_STATE_INPUTS; i++) {
        if (!s->layers[layer].row_values[i]) continue;
        AG_TRY(ag_tensor_rows(&section[i], &in[i], row, n, err));
        if (of < 0) continue;
        ag_tensor stored;
        AG_TRY(rows_of(s, layer, of, i, at, n, &stored, err));
        AG_TRY(copy_tensor(s->backend, &stored, &section[i], err));
    }
    AG_TRY(state_of(s, layer, -1, &state, err));
    return fn(user, section, row0 + row, &state, err);
}

ag_status ag_layer_state_run(ag_layer_state *s, uint32_t layer, const ag_tensor in[AG_STATE_INPUTS],
                             size_t row0, ag_state_fn fn, void *user, ag_error *err) {
    const int into = s->pass.into;
    const size_t split = s->pass.split, n = s->pass.n_rows;
    if (into < 0) {
        const int newest = newest_snapshot(s, s->position);
        const size_t at = s->position - s->snapshots[newest].position;
        return run_layer_rows(s, layer, in, row0, 0, n, newest, at, fn, user, err);
    }
    ag_tensor state, stored;
    AG_TRY(run_layer_rows(s, layer, in, row0, 0, split, -1, 0, fn, user, err));
    AG_TRY(state_of(s, layer, -1, &state, err));
    AG_TRY(state_of(s, layer, into, &stored, err));
    AG_TRY(copy_tensor(s->backend, &stored, &state, err));
    return run_layer_rows(s, layer, in, row0, split, n - split, into, 0, fn, user, err);
}

/* ---- between passes ---- */

uint32_t ag_layer_state_oldest_reachable(const ag_layer_state *s) {
    if (!s) return 0;
    const int newest = newest_snapshot(s, s->position);
    const snapshot *to = &s->snapshots[newest], *before = &s->snapshots[1 - newest];
    return before->used && before->end == to->position ? before->position : to->position;
}

ag_status ag_layer_state_truncate(ag_layer_state *s, uint32_t position, ag_error *err) {
    if (!s || position == s->position) return AG_OK;
    if (!position) {
        ag_layer_state_reset(s);
        return AG_OK;
    }
    if (position > s->position || newest_snapshot(s, position) < 0) {
        return AG_FAIL(err, INVALID,
                       "cannot truncate to position %u: the layer state allows %u or later, or 0",
                       position, ag_layer_state_oldest_reachable(s));
    }
    for (int i = 0; i < N_SNAPSHOTS; i++) {
        snapshot *p = &s->snapshots[i];
        if (p->position > position) p->used = false;
        if (p->end > position) p->end = position;
    }
    s->position = position;
    s->is_current = false;
    return AG_OK;
}

ag_status ag_layer_state_copy(ag_layer_state *to, ag_layer_state *from, ag_error *err) {
    if (!to) return AG_OK;
    ag_tensor dst, src;
    const size_t n = ag_buffer_size(from->storage);
    AG_TRY(ag_tensor_make(&src, AG_U8, ag_shape_1d(n), from->storage, 0, err));
    AG_TRY(ag_tensor_make(&dst, AG_U8, ag_shape_1d(n), to->storage, 0, err));
    AG_TRY(copy_tensor(to->backend, &dst, &src, err));
    to->position = from->position;
    to->is_current = from->is_current;
    for (int i = 0; i < N_SNAPSHOTS; i++) to->snapshots[i] = from->snapshots[i];
    return AG_OK;
}

/* ---- saving and loading ---- */

uint32_t ag_layer_state_base(const ag_layer_state *s) {
    return s ? s->snapshots[newest_snapshot(s, s->position)].position : 0;
}

uint64_t ag_layer_state_saved_bytes(const ag_layer_state *s, uint32_t base, uint32_t position) {
    uint64_t n = 0;
    if (!s) return 0;
    if (position < base || position - base > ROWS) return UINT64_MAX;
    for (uint32_t l = 0; l < s->n_layers; l++) {
        n += s->layers[l].n_values;
        for (int i = 0; i < AG_STATE_INPUTS; i++)
            n += (uint64_t)(position - base) * s->layers[l].row_values[i];
    }
    return n * sizeof(float);
}

/* A stream: its writer, or its reader and name. */
typedef struct section_io {
    ag_put_fn put;
    ag_get_fn get;
    void *user;
    const char *name;
} section_io;

static ag_status transfer(const section_io *io, ag_tensor *section, void *staging, ag_error *err) {
    const size_t bytes = ag_tensor_bytes(section);
    if (io->put) {
        AG_TRY(ag_buffer_download(staging, section->buffer, section->offset, bytes, err));
        return io->put(io->user, staging, bytes, err);
    }
    AG_TRY(io->get(io->user, staging, bytes, err));
    AG_TRY(ag_check_saved_rows(AG_F32, AG_F32, staging, 1, bytes / sizeof(float), io->name, err));
    return ag_buffer_upload(section->buffer, section->offset, staging, bytes, err);
}

/* Transfers each section of snapshot `of`: the state and n_rows rows of each input, layer by layer.
 */
static ag_status transfer_sections(ag_layer_state *s, int of, size_t n_rows, const section_io *io,
                                   ag_error *err) {
    size_t max = 1;
    for (uint32_t l = 0; l < s->n_layers; l++) {
        if (s->layers[l].n_values > max) max = s->layers[l].n_values;
        for (int i = 0; i < AG_STATE_INPUTS; i++) {
            if (n_rows * s->layers[l].row_values[i] > max)
                max = n_rows * s->layers[l].row_values[i];
        }
    }
    float *staging = ag_calloc(max, sizeof *staging);
    if (!staging)
        return AG_FAIL(err, NOMEM, "staging buffer of %zu values of a layer's state", max);
    ag_status st = AG_OK;
    for (uint32_t l = 0; l < s->n_layers && st == AG_OK; l++) {
        ag_tensor section;
        st = state_of(s, l, of, &section, err);
        if (st == AG_OK) st = transfer(io, &section, staging, err);
        for (int i = 0; i < AG_STATE_INPUTS && st == AG_OK; i++) {
            if (!n_rows || !s->layers[l].row_values[i]) continue;
            st = rows_of(s, l, of, i, 0, n_rows, &section, err);
            if (st == AG_OK) st = transfer(io, &section, staging, err);
        }
    }
    ag_free(staging);
    return st;
}

ag_status ag_layer_state_save(ag_layer_state *s, ag_put_fn put, void *user, ag_error *err) {
    if (!s) return AG_OK;
    const int of = newest_snapshot(s, s->position);
    const section_io io = {.put = put, .user = user};
    AG_TRY(ag_take_error(s->backend, ag_sync(s->backend), err));
    for (uint32_t l = 0; s->snapshots[of].is_empty && l < s->n_layers; l++) {
        ag_tensor section;
        AG_TRY(state_of(s, l, of, &section, err));
        AG_TRY(write_zeros(&section, err));
    }
    return transfer_sections(s, of, s->position - s->snapshots[of].position, &io, err);
}

ag_status ag_layer_state_load(ag_layer_state *s, uint32_t base, uint32_t position, const char *name,
                              ag_get_fn get, void *user, ag_error *err) {
    if (!s) return AG_OK;
    if (position < base || position - base > ROWS) {
        return AG_FAIL(err, FORMAT,
                       "%s: damaged: the layer state is at position %u, the sequence at %u", name,
                       base, position);
    }
    const section_io io = {.get = get, .user = user, .name = name};
    AG_TRY(transfer_sections(s, 0, position - base, &io, err));
    s->position = position;
    s->is_current = false;
    s->snapshots[0] = (snapshot){.used = true, .position = base, .end = position};
    s->snapshots[1] = (snapshot){.used = false};
    return AG_OK;
}
