/* SPDX-License-Identifier: Apache-2.0 */
/* The memory behind a cache's blocks where buffers are taken as a whole. The blocks of all heads
 * for the same 128 slots, a row, are neighbours in a segment, and come and go together. A row
 * belongs to the caches whose tables name it: one, or several after a fork. Whoever writes to one
 * of several's copies it first, to the place of the same number in a segment of its own, its home.
 * Nobody else ever writes there, so that place is free whenever it is needed. */
#include "cache/kv_blocks.h"
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "core/fail.h"

struct ag_kv_segment {
    ag_buffer *buffer;  /* owned */
    size_t refs;        /* one for being a home, one for every row in a table */
    uint32_t holders[]; /* [n_layers][rows of a layer in it] tables that name the row */
};

static uint32_t segment_of(const ag_kv_cache *c, uint32_t layer, uint32_t row) {
    return row / c->at[layer].segment_blocks;
}

/* The row's number in its segment. */
static size_t place_of(const ag_kv_cache *c, uint32_t layer, uint32_t row) {
    const ag_kv_layout *at = &c->at[layer];
    return at->first.place[segment_of(c, layer, row)] + row % at->segment_blocks;
}

/* Where it begins there, in bytes. */
static size_t offset_of(const ag_kv_cache *c, uint32_t layer, uint32_t row) {
    const ag_kv_layout *at = &c->at[layer];
    return at->first.byte[segment_of(c, layer, row)] + row % at->segment_blocks * at->row_bytes;
}

static ag_kv_segment **origin_of(const ag_kv_cache *c, uint32_t layer, uint32_t row) {
    return &c->origin[c->at[layer].first.row + row];
}

static uint32_t *rows_of(const ag_kv_cache *c, uint32_t layer) {
    return &c->n_blocks[c->at[layer].first.head];
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

/* ---- one row ---- */

/* The cache's table names its home's row, which nobody holds. */
static void hold(ag_kv_cache *c, uint32_t layer, uint32_t row) {
    ag_kv_segment *home = c->home[segment_of(c, layer, row)];
    const size_t offset = offset_of(c, layer, row);
    home->refs++;
    home->holders[place_of(c, layer, row)] = 1;
    *origin_of(c, layer, row) = home;
    for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++) {
        *ag_kv_block_of(c, layer, h, row) =
            (ag_kv_block){.buffer = home->buffer, .offset = offset + h * c->at[layer].part.bytes};
    }
}

static void drop(const ag_kv_cache *c, ag_kv_segment *s, uint32_t layer, uint32_t row) {
    s->holders[place_of(c, layer, row)]--;
    release(&s);
}

static bool is_shared(const ag_kv_cache *c, uint32_t layer, uint32_t row) {
    const ag_kv_segment *s = *origin_of(c, layer, row);
    return s && s->holders[place_of(c, layer, row)] > 1;
}

static ag_status copy_home(ag_kv_cache *c, uint32_t layer, uint32_t row, ag_error *err) {
    ag_kv_segment *from = *origin_of(c, layer, row);
    const ag_kv_segment *home = c->home[segment_of(c, layer, row)];
    const size_t offset = offset_of(c, layer, row), n = c->at[layer].row_bytes;
    AG_TRY(ag_kv_copy_bytes(c, (ag_kv_block){home->buffer, offset},
                            (ag_kv_block){from->buffer, offset}, n, err));
    hold(c, layer, row);
    drop(c, from, layer, row);
    return AG_OK;
}

/* ---- ranges of rows ---- */

ag_status ag_kv_segments_need(ag_kv_cache *c, uint32_t layer, uint32_t first, uint32_t end,
                              ag_error *err) {
    for (uint32_t b = first; b < end; b++) {
        const uint32_t s = segment_of(c, layer, b);
        if (*origin_of(c, layer, b) && !is_shared(c, layer, b)) continue;
        if (!c->home[s]) AG_TRY(make_segment(c, s, &c->home[s], err));
    }
    return AG_OK;
}

ag_status ag_kv_segments_own(ag_kv_cache *c, uint32_t layer, uint32_t first, uint32_t end,
                             ag_error *err) {
    AG_TRY(ag_kv_segments_need(c, layer, first, end, err));
    for (uint32_t b = first; b < end; b++) {
        if (is_shared(c, layer, b)) AG_TRY(copy_home(c, layer, b, err));
        else if (!*origin_of(c, layer, b)) hold(c, layer, b);
        for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++)
            if (rows_of(c, layer)[h] <= b) rows_of(c, layer)[h] = b + 1;
    }
    return AG_OK;
}

static void drop_row(ag_kv_cache *c, uint32_t layer, uint32_t row) {
    ag_kv_segment **origin = origin_of(c, layer, row);
    drop(c, *origin, layer, row);
    *origin = NULL;
    for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++)
        *ag_kv_block_of(c, layer, h, row) = (ag_kv_block){0};
}

void ag_kv_segments_keep(ag_kv_cache *c, uint32_t layer, uint32_t keep) {
    for (uint32_t b = keep; b < rows_of(c, layer)[0]; b++) drop_row(c, layer, b);
    for (uint32_t h = 0; h < ag_kv_heads_of(c, layer); h++)
        if (rows_of(c, layer)[h] > keep) rows_of(c, layer)[h] = keep;
    for (uint32_t s = 0; s < AG_KV_SEGMENTS; s++) {
        if (c->home[s] && c->home[s]->refs == 1) release(&c->home[s]);
    }
}

void ag_kv_segments_release(ag_kv_cache *c) {
    for (uint32_t s = 0; s < AG_KV_SEGMENTS; s++) release(&c->home[s]);
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        for (uint32_t b = 0; b < rows_of(c, l)[0]; b++) drop_row(c, l, b);
    }
}

/* ---- forks ---- */

/* What c's homes hold is going to be shared: others take their place when they are needed. */
static void leave_homes(ag_kv_cache *c) {
    for (uint32_t s = 0; s < AG_KV_SEGMENTS; s++) {
        if (c->home[s] && c->home[s]->refs > 1) release(&c->home[s]);
    }
}

void ag_kv_segments_share(ag_kv_cache *to, ag_kv_cache *from) {
    leave_homes(from);
    for (uint32_t l = 0; l < from->params.n_layers; l++) {
        for (uint32_t b = 0; b < rows_of(from, l)[0]; b++) {
            ag_kv_segment *s = *origin_of(from, l, b);
            s->refs++;
            s->holders[place_of(from, l, b)]++;
            *origin_of(to, l, b) = s;
        }
    }
}

size_t ag_kv_segments_shared_bytes(const ag_kv_cache *c) {
    size_t n = 0;
    for (uint32_t l = 0; l < c->params.n_layers; l++) {
        for (uint32_t b = 0; b < rows_of(c, l)[0]; b++) {
            if (is_shared(c, l, b)) n += c->at[l].row_bytes;
        }
    }
    return n;
}
