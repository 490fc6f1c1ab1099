/* SPDX-License-Identifier: Apache-2.0 */
/* The memory behind a cache's blocks. A block of a segment belongs to the caches whose tables name
 * it: one, or several after a fork. Whoever writes to one of several's copies it first, to the
 * place of the same number in a segment of its own, its home. Nobody else ever writes there, so
 * that place is free whenever it is needed. */
#include "cache/kv_cache_impl.h"
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "core/fail.h"

struct ag_kv_segment {
    ag_buffer *buffer;  /* owned */
    size_t refs;        /* one for being a home, one for every block in a table */
    size_t leaving;     /* of these, those of a cache that is being destroyed */
    uint32_t holders[]; /* [n_layers][blocks of a layer in it] tables that name the block */
};

static uint32_t segment_of(const ag_kv_cache *c, uint32_t layer, uint32_t block) {
    return block / c->at[layer].segment_blocks;
}

/* The block's number in its segment. */
static size_t place_of(const ag_kv_cache *c, uint32_t layer, uint32_t block) {
    const ag_kv_layout *at = &c->at[layer];
    return at->first.place[segment_of(c, layer, block)] + block % at->segment_blocks;
}

/* Where it begins there, in bytes. */
static size_t offset_of(const ag_kv_cache *c, uint32_t layer, uint32_t block) {
    const ag_kv_layout *at = &c->at[layer];
    return at->first.byte[segment_of(c, layer, block)] +
           block % at->segment_blocks * at->block_bytes;
}

static ag_kv_segment **origin_of(const ag_kv_cache *c, uint32_t layer, uint32_t block) {
    return &c->origin[c->at[layer].first.block + block];
}

static void release(ag_kv_segment **segment) {
    ag_kv_segment *s = *segment;
    *segment = NULL;
    if (!s || --s->refs) return;
    ag_buffer_release(&s->buffer);
    ag_free(s);
}

static ag_status make_segment(const ag_kv_cache *c, uint32_t segment, ag_kv_segment **out,
                              ag_error *err) {
    const ag_kv_first *all = &c->at[c->params.n_layers].first;
    const size_t n = all->place[segment];
    ag_kv_segment *s = ag_calloc(1, sizeof *s + n * sizeof *s->holders);
    if (!s) return AG_FAIL(err, NOMEM, "table of %zu KV blocks", n);
    s->refs = 1;
    ag_status st = ag_memory_alloc(ag_backend_memory(c->backend), all->byte[segment], AG_USAGE_KV,
                                   &s->buffer, err);
    if (st != AG_OK) ag_free(s);
    else *out = s;
    return st;
}

static ag_status need_home(ag_kv_cache *c, uint32_t s, ag_error *err) {
    return c->home[s] ? AG_OK : make_segment(c, s, &c->home[s], err);
}

static bool commits_at_once(const ag_kv_cache *c) {
    return ag_backend_memory(c->backend)->ops->commits_at_once;
}

ag_status ag_kv_segments_create(ag_kv_cache *c, ag_error *err) {
    return commits_at_once(c) ? AG_OK : need_home(c, 0, err);
}

/* ---- one block ---- */

/* The cache's table names its home's block, which nobody holds. */
static void hold(ag_kv_cache *c, uint32_t layer, uint32_t block) {
    ag_kv_segment *home = c->home[segment_of(c, layer, block)];
    const size_t offset = offset_of(c, layer, block);
    home->refs++;
    home->holders[place_of(c, layer, block)] = 1;
    *origin_of(c, layer, block) = home;
    for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++) {
        *ag_kv_block_of(c, layer, h, block) =
            (ag_kv_block){.buffer = home->buffer, .offset = offset + h * c->at[layer].part.bytes};
    }
    ag_buffer_commit(home->buffer, offset, c->at[layer].block_bytes);
}

/* A segment that goes as a whole need not be given back in parts. */
static void drop(const ag_kv_cache *c, ag_kv_segment *s, uint32_t layer, uint32_t block) {
    if (!--s->holders[place_of(c, layer, block)] && s->refs > s->leaving)
        ag_buffer_discard(s->buffer, offset_of(c, layer, block), c->at[layer].block_bytes);
    if (s->leaving) s->leaving--;
    release(&s);
}

static bool is_shared(const ag_kv_cache *c, uint32_t layer, uint32_t block) {
    const ag_kv_segment *s = *origin_of(c, layer, block);
    return s && s->holders[place_of(c, layer, block)] > 1;
}

static ag_status copy_home(ag_kv_cache *c, uint32_t layer, uint32_t block, ag_error *err) {
    ag_kv_segment *from = *origin_of(c, layer, block);
    ag_kv_segment *home = c->home[segment_of(c, layer, block)];
    const size_t offset = offset_of(c, layer, block), n = c->at[layer].block_bytes;
    ag_tensor dst, src;
    AG_TRY(ag_tensor_make(&src, AG_U8, ag_shape_1d(n), from->buffer, offset, err));
    AG_TRY(ag_tensor_make(&dst, AG_U8, ag_shape_1d(n), home->buffer, offset, err));
    ag_status st = ag_copy_slice(c->backend, &dst, 0, &src, 0, n);
    if (st != AG_OK) {
        ag_buffer_discard(home->buffer, offset, n);
        return ag_take_error(c->backend, st, err);
    }
    hold(c, layer, block);
    drop(c, from, layer, block);
    return AG_OK;
}

/* ---- ranges of blocks ---- */

ag_status ag_kv_need_blocks(ag_kv_cache *c, uint32_t layer, uint32_t first, uint32_t end,
                            ag_error *err) {
    for (uint32_t b = first; b < end; b++) {
        if (*origin_of(c, layer, b) && !is_shared(c, layer, b)) continue;
        AG_TRY(need_home(c, segment_of(c, layer, b), err));
    }
    return AG_OK;
}

ag_status ag_kv_own_blocks(ag_kv_cache *c, uint32_t layer, uint32_t first, uint32_t end,
                           ag_error *err) {
    AG_TRY(ag_kv_need_blocks(c, layer, first, end, err));
    for (uint32_t b = first; b < end; b++) {
        if (is_shared(c, layer, b)) AG_TRY(copy_home(c, layer, b, err));
        else if (!*origin_of(c, layer, b)) hold(c, layer, b);
        if (c->n_blocks[layer] <= b) c->n_blocks[layer] = b + 1;
    }
    return AG_OK;
}

static void drop_block(ag_kv_cache *c, uint32_t layer, uint32_t block) {
    ag_kv_segment **origin = origin_of(c, layer, block);
    drop(c, *origin, layer, block);
    *origin = NULL;
    for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++)
        *ag_kv_block_of(c, layer, h, block) = (ag_kv_block){0};
}

void ag_kv_drop_blocks(ag_kv_cache *c, uint32_t layer, uint32_t keep) {
    for (uint32_t b = keep; b < c->n_blocks[layer]; b++) drop_block(c, layer, b);
    if (keep < c->n_blocks[layer]) c->n_blocks[layer] = keep;
    if (!commits_at_once(c)) return;
    for (uint32_t s = 0; s < AG_KV_SEGMENTS; s++) {
        if (c->home[s] && c->home[s]->refs == 1) release(&c->home[s]);
    }
}

void ag_kv_segments_release(ag_kv_cache *c) {
    bool any = c->origin && c->n_blocks; /* a cache that was never finished has none */
    for (uint32_t l = 0; any && l < c->params.n_layers; l++) {
        for (uint32_t b = 0; b < c->n_blocks[l]; b++) (*origin_of(c, l, b))->leaving++;
    }
    for (uint32_t s = 0; s < AG_KV_SEGMENTS; s++) release(&c->home[s]);
    for (uint32_t l = 0; any && l < c->params.n_layers; l++) {
        for (uint32_t b = 0; b < c->n_blocks[l]; b++) drop_block(c, l, b);
    }
}

void ag_kv_promote_blocks(const ag_kv_cache *c, uint32_t layer, uint32_t before, uint32_t now) {
    if (now == before) return;
    const ag_kv_block *blocks = ag_kv_block_of(c, layer, 0, 0);
    uint32_t first = now - 1; /* of those that lie one after the other up to the last */
    while (first && blocks[first - 1].buffer == blocks[now - 1].buffer) first--;
    if (before < first) before = first;
    const size_t begin = blocks[first].offset, size = c->at[layer].block_bytes;
    ag_buffer_promote(blocks[first].buffer, begin, begin + (before - first) * size,
                      begin + (now - first) * size);
}

/* ---- forks ---- */

/* What c's homes hold is going to be shared: others take their place. */
static ag_status replace_homes(ag_kv_cache *c, ag_error *err) {
    ag_kv_segment *fresh[AG_KV_SEGMENTS] = {NULL};
    ag_status st = AG_OK;
    for (uint32_t s = 0; s < AG_KV_SEGMENTS && st == AG_OK && !commits_at_once(c); s++) {
        if (c->home[s] && c->home[s]->refs > 1) st = make_segment(c, s, &fresh[s], err);
    }
    for (uint32_t s = 0; s < AG_KV_SEGMENTS; s++) {
        if (st != AG_OK) {
            release(&fresh[s]);
        } else if (c->home[s] && c->home[s]->refs > 1) {
            release(&c->home[s]);
            c->home[s] = fresh[s];
        }
    }
    return st;
}

ag_status ag_kv_share_blocks(ag_kv_cache *to, ag_kv_cache *from, ag_error *err) {
    AG_TRY(replace_homes(from, err));
    for (uint32_t l = 0; l < from->params.n_layers; l++) {
        for (uint32_t b = 0; b < from->n_blocks[l]; b++) {
            ag_kv_segment *s = *origin_of(from, l, b);
            s->refs++;
            s->holders[place_of(from, l, b)]++;
            *origin_of(to, l, b) = s;
            for (uint32_t h = 0; h < ag_kv_heads_of(from, l); h++)
                *ag_kv_block_of(to, l, h, b) = *ag_kv_block_of(from, l, h, b);
        }
        to->n_blocks[l] = from->n_blocks[l];
    }
    return AG_OK;
}

size_t ag_kv_cache_shared_bytes(const ag_kv_cache *c) {
    size_t n = 0;
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        for (uint32_t b = 0; b < c->n_blocks[l]; b++) {
            if (is_shared(c, l, b)) n += c->at[l].block_bytes;
        }
    }
    return n;
}
