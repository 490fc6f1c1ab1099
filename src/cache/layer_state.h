/* SPDX-License-Identifier: Apache-2.0 */
/* What a sequence keeps for layers without keys and values: the newest columns of a convolution,
 * the matrices of a delta net. Beside the state itself stand two snapshots of it, each with what
 * the layers read of the tokens that followed, so that a sequence can be taken back a little: to
 * a snapshot, and from there on again.
 *
 * Around every pass of the model: begin(); restore() and run() for each layer; commit(). A pass
 * that was begun and not committed has changed nothing but how far back the sequence can go. A
 * state that is NULL (no layer has one) is fine everywhere but in restore() and run(). */
#ifndef AG_CACHE_LAYER_STATE_H
#define AG_CACHE_LAYER_STATE_H

#include "cache/saved_state.h"

#include <antigravity/kv_cache.h>

enum { AG_STATE_INPUTS = 3 };

/* A layer with a state. */
typedef struct ag_state_layer {
    size_t n_values;                    /* of its state */
    size_t row_values[AG_STATE_INPUTS]; /* of each thing that it reads of a token; 0: no such */
} ag_state_layer;

typedef struct ag_layer_state ag_layer_state;

/* `layers` is copied. *out is NULL for no layers. */
ag_status ag_layer_state_create(ag_backend *be, const ag_state_layer *layers, uint32_t n_layers,
                                ag_layer_state **out, ag_error *err);
void ag_layer_state_destroy(ag_layer_state *s);
/* Bytes that it takes. */
size_t ag_layer_state_bytes(const ag_state_layer *layers, uint32_t n_layers);

/* ---- a pass ---- */

/* The next n tokens of a sequence that stands at `position`; AG_INVALID if the state does not. */
ag_status ag_layer_state_begin(ag_layer_state *s, uint32_t position, size_t n, ag_error *err);
void ag_layer_state_commit(ag_layer_state *s);
/* The pass has failed. */
void ag_layer_state_abandon(ag_layer_state *s);

/* Rows in[i] [n, row_values[i]] of one sequence through a layer, whose state [n_values] is updated
 * in place. row0: the first one's number in the pass; of rows that only restore a state, 0, and
 * what comes out of them is not wanted. */
typedef ag_status (*ag_state_fn)(void *user, ag_tensor in[AG_STATE_INPUTS], size_t row0,
                                 bool restoring, ag_tensor *state, ag_error *err);
/* Makes the layer's state what it is at the pass's position, by at most most_rows rows at a time.
 * For all sequences of a pass before run() of any: what comes out is written over. */
ag_status ag_layer_state_restore(ag_layer_state *s, uint32_t layer, size_t max_rows, ag_state_fn fn,
                                 void *user, ag_error *err);
/* The pass's rows; in[i] [n, row_values[i]], from row row0 of the pass on. */
ag_status ag_layer_state_run(ag_layer_state *s, uint32_t layer, const ag_tensor in[AG_STATE_INPUTS],
                             size_t row0, ag_state_fn fn, void *user, ag_error *err);

/* ---- between passes ---- */

void ag_layer_state_reset(ag_layer_state *s);
/* The first position that it can be taken back to, apart from 0. */
uint32_t ag_layer_state_oldest_reachable(const ag_layer_state *s);
/* AG_INVALID, and nothing changes, for a position that is out of reach. */
ag_status ag_layer_state_truncate(ag_layer_state *s, uint32_t position, ag_error *err);
/* *to, of the same layers, becomes a copy. */
ag_status ag_layer_state_copy(ag_layer_state *to, ag_layer_state *from, ag_error *err);

/* As a stream: a state at position `base`, and what followed up to the sequence's position. */
uint32_t ag_layer_state_base(const ag_layer_state *s);
/* UINT64_MAX if they cannot be counted. */
uint64_t ag_layer_state_saved_bytes(const ag_layer_state *s, uint32_t base, uint32_t position);
ag_status ag_layer_state_save(ag_layer_state *s, ag_put_fn put, void *user, ag_error *err);
/* AG_FORMAT, after `name`, if base and position do not fit. Afterwards `base` is the first position
 * that can be reached. */
ag_status ag_layer_state_load(ag_layer_state *s, uint32_t base, uint32_t position, const char *name,
                              ag_get_fn get, void *user, ag_error *err);

#endif
