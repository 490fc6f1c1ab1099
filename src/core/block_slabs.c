/* SPDX-License-Identifier: Apache-2.0 */
/* Block pools on a device, where a buffer takes all its memory at once. Arenas are slabs, made as
 * they are needed. Kernels take at most AG_KV_BUFFERS of them; after that a larger slab replaces
 * the smallest. If too many blocks are free, the blocks of the emptiest slab move to others and it
 * is freed. The pool updates the tables of the blocks. */
#include "core/block_pool_impl.h"

#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "core/fail.h"

enum {
    GROWTH = 32,          /* a new slab has at least 1/32 of the used blocks */
    FREE_SHARE = 12,      /* keep at most used/12 free blocks, for reuse */
    LOOSE_FREE_SHARE = 4, /* used/4 while more blocks may be dropped */
};

static size_t live_in(const ag_block_pool *p) {
    size_t n = 0;
    for (size_t i = 0; i < p->n_arenas; i++) n += p->arenas[i]->n_live;
    return n;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }
static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* ---- moving ---- */

static ag_status copy_run(const ag_block_pool *p, ag_kv_block to, ag_kv_block from, size_t n,
                          ag_error *err) {
    const size_t bytes = n * p->block_bytes;
    ag_tensor dst, src;
    AG_TRY(ag_tensor_make(&src, AG_U8, ag_shape_1d(bytes), from.buffer, from.offset, err));
    AG_TRY(ag_tensor_make(&dst, AG_U8, ag_shape_1d(bytes), to.buffer, to.offset, err));
    return ag_take_error(p->backend, ag_copy_slice(p->backend, &dst, 0, &src, 0, bytes), err);
}

/* Copies used block i of the slab to targets[i]. Copies blocks that are adjacent at both ends at
 * once. */
static ag_status copy_blocks(const ag_block_pool *p, const ag_block_arena *a,
                             const ag_kv_block *targets, ag_error *err) {
    uint32_t n;
    for (uint32_t i = 0; i < a->n; i += n) {
        n = 1;
        if (!a->holders[i]) continue;
        while (i + n < a->n && a->holders[i + n] && targets[i + n].buffer == targets[i].buffer &&
               targets[i + n].offset == targets[i].offset + n * p->block_bytes) {
            n++;
        }
        const ag_kv_block from = {.buffer = a->buffer, .offset = i * p->block_bytes};
        AG_TRY(copy_run(p, targets[i], from, n, err));
    }
    return AG_OK;
}

static void rename_blocks(const ag_block_pool *p, const ag_block_arena *a,
                          const ag_kv_block *targets) {
    for (const ag_block_table *t = p->tables; t; t = t->next) {
        for (uint32_t r = 0; r < t->n_rows; r++) {
            ag_kv_block *row = t->blocks + (size_t)r * t->per_row;
            for (uint32_t b = 0; b < t->n[r]; b++)
                if (row[b].buffer == a->buffer) row[b] = targets[row[b].offset / p->block_bytes];
        }
    }
}

static void close_slab(ag_block_pool *p, ag_block_arena *a, bool closed) {
    const size_t n = a->n - a->n_live;
    if (closed) p->n_free -= n;
    else p->n_free += n;
    a->closed = closed;
}

/* Moves all blocks of a slab to others, which must have enough free ones, and frees the slab. After
 * a failure nothing has moved. */
static ag_status move_out(ag_block_pool *p, ag_block_arena *a, ag_error *err) {
    ag_kv_block *targets = ag_calloc(a->n, sizeof *targets);
    if (!targets) return AG_FAIL(err, NOMEM, "list of %u KV blocks", a->n);
    close_slab(p, a, true);
    for (uint32_t i = 0; i < a->n; i++)
        if (a->holders[i]) targets[i] = ag_block_pool_take_free(p, a->holders[i]);
    const ag_status st = copy_blocks(p, a, targets, err);
    if (st == AG_OK) {
        rename_blocks(p, a, targets);
        for (uint32_t i = 0; i < a->n; i++) p->n_shared -= a->holders[i] > 1;
        a->n_live = 0;
        p->n_free += a->n; /* ag_block_arena_remove() subtracts all of its blocks */
        ag_block_arena_remove(p, a);
    } else {
        for (uint32_t i = 0; i < a->n; i++) {
            for (uint32_t n = a->holders[i]; n; n--) ag_block_pool_drop(p, targets[i]);
        }
        close_slab(p, a, false);
    }
    ag_free(targets);
    return st;
}

/* Removes the last slab if no block is in it. */
static void remove_empty_last(ag_block_pool *p) {
    ag_block_arena *last = p->arenas[p->n_arenas - 1];
    if (!last->n_live) ag_block_arena_remove(p, last);
}

/* ---- growing ---- */

static ag_block_arena *find_smallest(const ag_block_pool *p) {
    ag_block_arena *found = p->arenas[0];
    for (size_t i = 1; i < p->n_arenas; i++)
        if (p->arenas[i]->n < found->n) found = p->arenas[i];
    return found;
}

/* Adds a slab of max blocks, or of min if that fails. */
static ag_status add_slab(ag_block_pool *p, size_t max, size_t min, ag_error *err) {
    ag_status st = ag_block_arena_add(p, max, err);
    if (st != AG_OK && min < max) st = ag_block_arena_add(p, min, err);
    return st;
}

/* Replaces the smallest slab by one with min to max blocks more. */
static ag_status replace_smallest(ag_block_pool *p, size_t max, size_t min, ag_error *err) {
    ag_block_arena *a = find_smallest(p);
    AG_TRY(add_slab(p, a->n + max, a->n + min, err));
    const ag_status st = move_out(p, a, err);
    if (st != AG_OK) remove_empty_last(p);
    return st;
}

ag_status ag_block_slabs_grow(ag_block_pool *p, size_t n, ag_error *err) {
    const size_t live = live_in(p), has = live + p->n_free, lacking = n - p->n_free;
    const size_t growth = p->table_capacity > has ? p->table_capacity - has : 0;
    const size_t max = larger(lacking, smaller(live / GROWTH, growth));
    if (p->n_arenas == AG_KV_BUFFERS) return replace_smallest(p, max, lacking, err);
    ag_status st = add_slab(p, max, lacking, err);
    /* The device may limit the size of a buffer: try two. */
    if (st != AG_OK && lacking > 1) st = ag_block_arena_add(p, (lacking + 1) / 2, err);
    return st;
}

size_t ag_block_pool_max_bytes(const ag_memory *mem, size_t bytes) {
    return mem->ops->commits_at_once ? bytes + bytes / GROWTH + bytes / (AG_KV_BUFFERS - 1) : bytes;
}

/* ---- giving back ---- */

static void remove_empty(ag_block_pool *p, size_t reserve) {
    for (size_t i = p->n_arenas; i-- > 0 && p->n_free > reserve;)
        if (!p->arenas[i]->n_live) ag_block_arena_remove(p, p->arenas[i]);
}

/* Returns the slab with the smallest share of used blocks. */
static ag_block_arena *find_emptiest(const ag_block_pool *p) {
    ag_block_arena *found = p->arenas[0];
    for (size_t i = 1; i < p->n_arenas; i++) {
        ag_block_arena *a = p->arenas[i];
        if ((uint64_t)a->n_live * found->n < (uint64_t)found->n_live * a->n) found = a;
    }
    return found;
}

/* Frees the emptiest slab and leaves about `reserve` free blocks. Makes a smaller slab for blocks
 * that do not fit into others. Returns false if memory or a copy fails. */
static bool move_together(ag_block_pool *p, size_t reserve) {
    ag_block_arena *a = find_emptiest(p);
    const bool has_space = a->n <= p->n_free;
    if (!has_space) {
        const size_t n = a->n - p->n_free + reserve;
        if (n >= a->n || ag_block_arena_add(p, n, NULL) != AG_OK) return false;
    }
    if (move_out(p, a, NULL) == AG_OK) return true;
    if (!has_space) remove_empty_last(p);
    return false;
}

void ag_block_slabs_trim(ag_block_pool *p, size_t n_needed, bool loosely) {
    const size_t live = live_in(p),
                 growth = p->table_capacity > live ? p->table_capacity - live : 0;
    const size_t reserve = live ? smaller(larger(live / FREE_SHARE, p->row), growth) : 0;
    const size_t min = larger(reserve, n_needed);
    const size_t max = loosely ? larger(live / LOOSE_FREE_SHARE, min) : min;
    remove_empty(p, min);
    while (p->n_free > max && move_together(p, larger(reserve / 2, n_needed))) {}
}
