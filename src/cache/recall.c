/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/recall.h"

#include "cache/spill_sketch.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEW = 4, MANY = 8 }; /* blocks that come back to a head before one pass */
/* A block that no query of a row gives as much of its attention is not worth the way. */
static const float least_share = 0.01f;

/* Groups of slots of one head that may leave, each as long as a spilled block, and their sketches:
 * group g holds slots [first + g * block, first + (g + 1) * block). */
typedef struct resident_groups {
    uint32_t first;
    uint32_t n_known; /* groups that have sketches */
    uint32_t cap;
    uint8_t *sketches; /* owned */
} resident_groups;

struct ag_recall {
    ag_kv_cache *cache; /* borrowed */
    ag_spill *spill;    /* borrowed */
    uint32_t block;
    ag_recall_pass pass;
    resident_groups *heads; /* owned; [heads of all layers] */
    size_t n_heads;
    ag_spilled_rows incoming[MANY]; /* owned */
    uint32_t *keep, *leaving;       /* owned; [most slots of a head] */
    float *keys, *values, *parts;   /* owned; of the largest head: a group's, a row, two rows */
    uint32_t *positions;            /* owned; [block] */
    float *scores, *weights;        /* owned; [cap] of a head's groups, then of its blocks */
    size_t cap;
};

ag_status ag_recall_create(ag_kv_cache *cache, ag_spill *spill, ag_recall **out, ag_error *err) {
    *out = NULL;
    if (!spill) return AG_OK;
    const ag_kv_extent e = ag_kv_extent_of(ag_kv_cache_params(cache));
    ag_recall *r = ag_calloc(1, sizeof *r);
    if (!r) return AG_FAIL(err, NOMEM, "recall");
    r->cache = cache;
    r->spill = spill;
    r->block = ag_spill_block_slots(spill);
    r->n_heads = e.heads;
    r->heads = ag_calloc(e.heads, sizeof *r->heads);
    r->keep = ag_calloc(e.most_slots, sizeof *r->keep);
    r->leaving = ag_calloc(e.most_slots, sizeof *r->leaving);
    r->keys = ag_calloc(r->block, e.most_dim * sizeof *r->keys);
    r->values = ag_calloc(e.most_dim, sizeof *r->values);
    r->parts = ag_calloc(e.most_dim, 2 * sizeof *r->parts);
    r->positions = ag_calloc(r->block, sizeof *r->positions);
    ag_status st = AG_OK;
    for (int i = 0; i < MANY && st == AG_OK; i++)
        st = ag_spilled_rows_create(spill, &r->incoming[i], err);
    if (st == AG_OK && (!r->heads || !r->keep || !r->leaving || !r->keys || !r->values ||
                        !r->parts || !r->positions)) {
        st = AG_FAIL(err, NOMEM, "what recalls to %zu heads", e.heads);
    }
    if (st == AG_OK) *out = r;
    else ag_recall_destroy(r);
    return st;
}

void ag_recall_destroy(ag_recall *r) {
    if (!r) return;
    for (size_t i = 0; r->heads && i < r->n_heads; i++) ag_free(r->heads[i].sketches);
    for (int i = 0; i < MANY; i++) ag_spilled_rows_release(&r->incoming[i]);
    ag_free(r->heads);
    ag_free(r->keep);
    ag_free(r->leaving);
    ag_free(r->keys);
    ag_free(r->values);
    ag_free(r->parts);
    ag_free(r->positions);
    ag_free(r->scores);
    ag_free(r->weights);
    ag_free(r);
}

size_t ag_recall_plan_bytes(const ag_spill_params *p, const ag_kv_params *kv) {
    const ag_kv_extent e = ag_kv_extent_of(kv);
    if (!p || !p->path) return 0;
    const size_t block = ag_spill_block_of(p);
    const size_t k_row = ag_dtype_row_bytes(kv->k_type, e.most_dim);
    const size_t v_row = ag_dtype_row_bytes(kv->v_type, e.most_dim);
    return sizeof(ag_recall) + e.heads * sizeof(resident_groups) +
           MANY * AG_KV_BLOCK * (k_row + v_row + sizeof(uint32_t) + sizeof(float)) +
           2 * e.most_slots * sizeof(uint32_t) + block * e.most_dim * sizeof(float) +
           2 * e.head_slots / block * ag_spill_sketch_bytes(e.most_dim);
}

static resident_groups *groups_of(const ag_recall *r, uint32_t layer, uint32_t head) {
    return &r->heads[ag_kv_cache_first_head(r->cache, layer) + head];
}

void ag_recall_forget(ag_recall *r, uint32_t layer, uint32_t head) {
    if (r) groups_of(r, layer, head)->n_known = 0;
}

void ag_recall_forget_all(ag_recall *r) {
    for (size_t i = 0; r && i < r->n_heads; i++) r->heads[i].n_known = 0;
}

void ag_recall_set_spill(ag_recall *r, ag_spill *spill) {
    if (r) r->spill = spill;
}

void ag_recall_begin(ag_recall *r, const ag_recall_pass *pass) { r->pass = *pass; }

/* ---- a head's groups ---- */

/* How many there are now. */
static uint32_t find_groups(const ag_recall *r, uint32_t layer, uint32_t head, resident_groups *g) {
    const uint32_t n = ag_kv_cache_n_slots(r->cache, layer, head);
    const uint32_t protected = ag_kv_cache_protected(r->cache);
    const uint32_t stay = r->pass.recent > r->pass.n_rows ? r->pass.recent : r->pass.n_rows;
    uint32_t first = 0;
    while (first < n && first < protected &&
           ag_kv_cache_position(r->cache, layer, head, first) < protected) {
        first++;
    }
    if (first != g->first) g->n_known = 0;
    g->first = first;
    return n > first + stay ? (n - first - stay) / r->block : 0;
}

static ag_status sketch_groups(ag_recall *r, uint32_t layer, uint32_t head, uint32_t n,
                               ag_error *err) {
    resident_groups *g = groups_of(r, layer, head);
    const uint32_t dim = ag_kv_cache_layer(r->cache, layer)->head_dim;
    const size_t bytes = ag_spill_sketch_bytes(dim);
    uint32_t slots[AG_KV_BLOCK];
    if (n > g->cap) {
        uint8_t *more = ag_realloc(g->sketches, 2 * n * bytes);
        if (!more) return AG_FAIL(err, NOMEM, "sketches of %u groups of slots", n);
        g->sketches = more;
        g->cap = 2 * n;
    }
    for (; g->n_known < n; g->n_known++) {
        ag_kv_rows rows = {.k_type = AG_F32,
                           .v_type = AG_F32,
                           .n = r->block,
                           .positions = r->positions,
                           .k = (uint8_t *)r->keys};
        for (uint32_t i = 0; i < r->block; i++) slots[i] = g->first + g->n_known * r->block + i;
        AG_TRY(ag_kv_cache_get_rows(r->cache, layer, head, slots, &rows, r->values, err));
        ag_spill_sketch_make(g->sketches + g->n_known * bytes, r->keys, r->block, dim, r->parts);
    }
    return AG_OK;
}

/* ---- what queries want ---- */

static ag_status have_scores(ag_recall *r, size_t n, ag_error *err) {
    if (n <= r->cap) return AG_OK;
    ag_free(r->scores);
    ag_free(r->weights);
    r->scores = ag_calloc(2 * n, sizeof *r->scores);
    r->weights = ag_calloc(2 * n, sizeof *r->weights);
    r->cap = r->scores && r->weights ? 2 * n : 0;
    return r->cap ? AG_OK : AG_FAIL(err, NOMEM, "scores of %zu blocks", n);
}

/* Adds the share that each group and block would have of one query's attention. */
static void add_query(ag_recall *r, uint32_t layer, uint32_t head, uint32_t n_groups, size_t n,
                      const float *q, float scale) {
    const uint32_t dim = ag_kv_cache_layer(r->cache, layer)->head_dim;
    const size_t bytes = ag_spill_sketch_bytes(dim);
    const uint8_t *sketches = groups_of(r, layer, head)->sketches;
    float most = -INFINITY, sum = 0;
    ag_spill_sketch_query(r->parts, q, dim);
    for (size_t i = 0; i < n; i++) {
        const void *sketch =
            i < n_groups ? sketches + i * bytes
                         : ag_spill_sketch_of(r->spill, layer, head, (uint32_t)i - n_groups);
        r->scores[i] = scale * ag_spill_sketch_bound(sketch, r->parts, dim);
        most = fmaxf(most, r->scores[i]);
    }
    for (size_t i = 0; i < n; i++) sum += r->scores[i] = expf(r->scores[i] - most);
    for (size_t i = 0; i < n; i++) r->weights[i] += r->scores[i] / sum;
}

static void weigh(ag_recall *r, uint32_t layer, uint32_t head, uint32_t n_groups, size_t n,
                  const ag_tensor *q, float scale) {
    const size_t n_rows = q->shape.dim[0], n_heads = q->shape.dim[1], dim = q->shape.dim[2];
    const size_t group = n_heads / ag_kv_cache_layer(r->cache, layer)->n_kv_heads;
    const size_t row0 = n_rows > AG_RECALL_ROWS ? n_rows - AG_RECALL_ROWS : 0;
    const float *rows = ag_tensor_f32(q);
    memset(r->weights, 0, n * sizeof *r->weights);
    for (size_t row = row0; row < n_rows; row++) {
        for (size_t h = head * group; h < (head + 1) * group; h++)
            add_query(r, layer, head, n_groups, n, rows + (row * n_heads + h) * dim, scale);
    }
}

/* ---- the exchange ---- */

typedef struct exchange {
    uint32_t in[MANY]; /* blocks, then descending */
    uint32_t n_in;
    uint32_t out[AG_KV_BLOCK * MANY]; /* groups */
    uint32_t n_out;
    uint32_t room; /* slots that come back without others leaving */
} exchange;

/* The lightest of the groups that stay so far; n_groups: none is lighter than `than`. */
static uint32_t lightest(const ag_recall *r, uint32_t n_groups, float than) {
    uint32_t best = n_groups;
    for (uint32_t g = 0; g < n_groups; g++) {
        if (r->weights[g] < than) {
            than = r->weights[g];
            best = g;
        }
    }
    return best;
}

/* Makes room for `n` slots more than `room` by groups that weigh less; false if there are not
 * enough, and then nothing has changed. Groups that leave weigh infinitely much from then on. */
static bool make_room(const ag_recall *r, uint32_t n_groups, float weight, int64_t lacking,
                      exchange *x) {
    const uint32_t before = x->n_out;
    float old[AG_KV_BLOCK];
    while (lacking > 0) {
        const uint32_t g = x->n_out - before < AG_KV_BLOCK && x->n_out < AG_KV_BLOCK * MANY
                               ? lightest(r, n_groups, weight)
                               : n_groups;
        if (g == n_groups) {
            while (x->n_out > before) {
                x->n_out--;
                r->weights[x->out[x->n_out]] = old[x->n_out - before];
            }
            return false;
        }
        old[x->n_out - before] = r->weights[g];
        r->weights[g] = INFINITY;
        x->out[x->n_out++] = g;
        lacking -= r->block;
    }
    return true;
}

static void choose_exchange(const ag_recall *r, uint32_t layer, uint32_t head, uint32_t n_groups,
                            size_t n, float least, exchange *x) {
    const uint32_t most = r->pass.many ? MANY : FEW;
    const int64_t n_slots = ag_kv_cache_n_slots(r->cache, layer, head);
    int64_t room = r->pass.n_slots > n_slots ? r->pass.n_slots - n_slots : 0;
    x->room = (uint32_t)room;
    while (x->n_in < most) {
        size_t best = n_groups;
        for (size_t i = n_groups + 1; i < n; i++) {
            if (r->weights[i] > r->weights[best]) best = i;
        }
        if (best == n || r->weights[best] <= least) return;
        const uint32_t block = (uint32_t)best - n_groups, before = x->n_out;
        const int64_t n_more = ag_spill_n_slots(r->spill, layer, head, block);
        if (!make_room(r, n_groups, r->weights[best], n_more - room, x)) return;
        room += (int64_t)(x->n_out - before) * r->block - n_more;
        r->weights[best] = 0;
        x->in[x->n_in++] = block;
    }
}

static int descending(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The groups' slots go to the file, and the others move together. */
static ag_status let_leave(ag_recall *r, uint32_t layer, uint32_t head, const exchange *x,
                           ag_error *err) {
    resident_groups *g = groups_of(r, layer, head);
    const uint32_t n = ag_kv_cache_n_slots(r->cache, layer, head);
    uint32_t n_keep = 0, n_leaving = 0;
    for (uint32_t s = 0; s < n; s++) {
        const uint32_t group = s < g->first ? UINT32_MAX : (s - g->first) / r->block;
        bool leaves = false;
        for (uint32_t i = 0; i < x->n_out; i++) leaves = leaves || x->out[i] == group;
        if (leaves) r->leaving[n_leaving++] = s;
        else r->keep[n_keep++] = s;
    }
    ag_spill_take(r->spill, r->pass.sums, layer, head, r->leaving, n_leaving);
    ag_status st = ag_score_sums_fetch(r->pass.sums, layer, err);
    if (st == AG_OK) st = ag_kv_cache_compact(r->cache, layer, head, r->keep, n_keep, err);
    if (st == AG_OK) ag_score_sums_compact(r->pass.sums, layer, head, r->keep, n_keep);
    if (st != AG_OK) ag_spill_take_back(r->spill, layer, head);
    return st;
}

static ag_status let_in(ag_recall *r, uint32_t layer, uint32_t head, ag_spilled_rows *in,
                        ag_error *err) {
    static const float zeros[AG_KV_BLOCK];
    uint32_t slots[AG_KV_BLOCK];
    AG_TRY(ag_kv_cache_put_rows(r->cache, layer, head, &in->rows, slots, r->values, err));
    ag_score_sums_insert(r->pass.sums, layer, head, slots, r->pass.sums_anew ? zeros : in->sums,
                         in->rows.n);
    return AG_OK;
}

static ag_status do_exchange(ag_recall *r, uint32_t layer, uint32_t head, exchange *x,
                             ag_error *err) {
    uint32_t n = 0, n_slots = 0;
    qsort(x->in, x->n_in, sizeof *x->in, descending);
    for (uint32_t i = 0; i < x->n_in; i++) {
        if (!ag_spill_recall(r->spill, layer, head, x->in[i], &r->incoming[n])) continue;
        n_slots += r->incoming[n++].rows.n;
    }
    /* For blocks that are lost nothing leaves; the heaviest groups were chosen last. */
    while (x->n_out && n_slots <= x->room + (x->n_out - 1) * r->block) x->n_out--;
    if (n) ag_recall_forget(r, layer, head);
    if (x->n_out) AG_TRY(let_leave(r, layer, head, x, err));
    for (uint32_t i = 0; i < n; i++) AG_TRY(let_in(r, layer, head, &r->incoming[i], err));
    return AG_OK;
}

ag_status ag_recall_layer(ag_recall *r, uint32_t layer, const ag_tensor *q, float scale,
                          ag_error *err) {
    const ag_kv_layer *is = ag_kv_cache_layer(r->cache, layer);
    const size_t group = q->shape.dim[1] / is->n_kv_heads;
    if (is->window) return AG_OK;
    for (uint32_t h = 0; h < is->n_kv_heads; h++) {
        const uint32_t n_blocks = ag_spill_n_blocks(r->spill, layer, h);
        exchange x = {.n_in = 0};
        if (!n_blocks) continue;
        const uint32_t n_groups = find_groups(r, layer, h, groups_of(r, layer, h));
        const size_t n = (size_t)n_groups + n_blocks;
        AG_TRY(sketch_groups(r, layer, h, n_groups, err));
        AG_TRY(have_scores(r, n, err));
        weigh(r, layer, h, n_groups, n, q, scale);
        choose_exchange(r, layer, h, n_groups, n, least_share * (float)group, &x);
        if (x.n_in) AG_TRY(do_exchange(r, layer, h, &x, err));
    }
    return AG_OK;
}
