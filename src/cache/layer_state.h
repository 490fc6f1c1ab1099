/* SPDX-License-Identifier: Apache-2.0 */
/* Layer state: what a sequence stores for layers without keys and values, such as the columns of a
 * convolution or the matrices of a delta net. Two snapshots, each with the layer inputs of the
 * tokens that followed, allow a sequence to be truncated a little: the state is restored from a
 * snapshot and the inputs are run again.
 *
 * Call begin(), then restore() and run() for each layer, then commit(). A pass without a commit
 * changes nothing but how far back the sequence can go. Every function except restore() and
 * run() accepts a NULL state: no layer has one. */
#ifndef AG_CACHE_LAYER_STATE_H
#define AG_CACHE_LAYER_STATE_H

#include "cache/saved_state.h"

#include <antigravity/kv_cache.h>

enum { AG_STATE_INPUTS = 3 };

/* Sizes of the state of a layer. */
typedef struct ag_state_layer {
    size_t n_values;                    /* floats of its state */
    size_t row_values[AG_STATE_INPUTS]; /* floats of each of its inputs for a token; 0: unused */
} ag_state_layer;

typedef struct ag_layer_state ag_layer_state;

/* Creates an empty state. Copies `layers`. *out is NULL if n_layers is 0. */
ag_status ag_layer_state_create(ag_backend *be, const ag_state_layer *layers, uint32_t n_layers,
                                ag_layer_state **out, ag_error *err);
void ag_layer_state_destroy(ag_layer_state *s);
/* Returns the bytes that a state takes. */
size_t ag_layer_state_bytes(const ag_state_layer *layers, uint32_t n_layers);

/* ---- a pass ---- */

/* Begins a pass of n tokens at `position`. Fails with AG_INVALID if the state is at another
 * position. */
ag_status ag_layer_state_begin(ag_layer_state *s, uint32_t position, size_t n, ag_error *err);
void ag_layer_state_commit(ag_layer_state *s);
/* Call when the pass has failed. */
void ag_layer_state_abandon(ag_layer_state *s);

/* Runs rows in[i] [n, row_values[i]] of one sequence through a layer and updates its state
 * [n_values] in place. row0: number of the first row in the pass. While a state is restored row0
 * is 0, and the pass overwrites the output later. */
typedef ag_status (*ag_state_fn)(void *user, ag_tensor in[AG_STATE_INPUTS], size_t row0,
                                 ag_tensor *state, ag_error *err);
/* Restores the layer's state at the pass's position, in calls of at most max_rows rows. Must be
 * called for all sequences of a pass before run() of any, since outputs are overwritten. */
ag_status ag_layer_state_restore(ag_layer_state *s, uint32_t layer, size_t max_rows, ag_state_fn fn,
                                 void *user, ag_error *err);
/* Runs the rows of the pass: in[i] [n, row_values[i]], the first of which is row row0 of the
 * pass. */
ag_status ag_layer_state_run(ag_layer_state *s, uint32_t layer, const ag_tensor in[AG_STATE_INPUTS],
                             size_t row0, ag_state_fn fn, void *user, ag_error *err);

/* ---- between passes ---- */

void ag_layer_state_reset(ag_layer_state *s);
/* Returns the lowest position that truncate() can reach, apart from 0. */
uint32_t ag_layer_state_oldest_reachable(const ag_layer_state *s);
/* Truncates to `position`. Fails with AG_INVALID, without a change, if it cannot be reached. */
ag_status ag_layer_state_truncate(ag_layer_state *s, uint32_t position, ag_error *err);
/* Copies `from` to `to`, a state of the same layers. */
ag_status ag_layer_state_copy(ag_layer_state *to, ag_layer_state *from, ag_error *err);

/* Returns the position of the snapshot that save() writes: a state at that position, then the
 * inputs up to the sequence's position. */
uint32_t ag_layer_state_base(const ag_layer_state *s);
/* Returns the bytes that save() writes; UINT64_MAX if the two positions do not fit together. */
uint64_t ag_layer_state_saved_bytes(const ag_layer_state *s, uint32_t base, uint32_t position);
ag_status ag_layer_state_save(ag_layer_state *s, ag_put_fn put, void *user, ag_error *err);
/* Loads a state at position `base` with inputs up to `position`. Fails with AG_FORMAT, after
 * `name`, if they do not fit or a value is damaged. Afterwards `base` is the lowest position
 * that can be reached. */
ag_status ag_layer_state_load(ag_layer_state *s, uint32_t base, uint32_t position, const char *name,
                              ag_get_fn get, void *user, ag_error *err);

#endif
