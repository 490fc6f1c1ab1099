/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/reload.h"

#include "cache/carve.h"
#include "cache/key_bounds.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "quant/dot.h"
#include "quant/quant.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW_BLOCKS = 4, /* maximum blocks reloaded to a head before a pass */
    MANY_BLOCKS = 8,
    QUERY_BATCH = 8,          /* queries for which the keys of a group are read once */
    CANDIDATES_PER_BLOCK = 2, /* blocks whose keys are read for one reload */
};
/* Spilled blocks below this share of a row's attention are not reloaded. */
static const float min_share = 0.01f;

/* Groups of resident slots of one head that may be exchanged, as long as a spilled block. Group
 * g holds slots [first + g * block, first + (g + 1) * block). */
typedef struct resident_groups {
    uint32_t first, n;
} resident_groups;

/* Normalises a query's scores: share = exp(score - max) / sum. */
typedef struct softmax_base {
    float max, sum;
} softmax_base;

/* The newest queries of a pass that belong to one KV head. */
typedef struct query_rows {
    const float *rows; /* first row, all heads */
    size_t n_rows, n_heads, dim, first_head, group;
    float scale;
} query_rows;

struct ag_reloader {
    ag_kv_cache *cache; /* borrowed */
    ag_spill *spill;    /* borrowed */
    uint32_t block;
    ag_reload_pass pass;
    ag_spilled_rows incoming[MANY_BLOCKS]; /* owned */
    void *memory;                          /* owned; holds the next arrays */
    uint32_t *retained, *evicted;          /* [max slots of a head] */
    float *keys;                           /* keys of a group or block of the largest head */
    float *values, *query_weights;         /* one row; two rows */
    uint32_t *positions;                   /* [block] */
    float *products;                       /* [QUERY_BATCH][max_groups] */
    softmax_base *bases;                   /* owned; [n_bases] for each query */
    size_t n_bases;
    size_t max_groups;
    float *scores, *weights; /* owned; [cap] of a head's groups, then of its blocks */
    size_t cap;
};

/* Places the arrays of fixed size, for blocks of r->block slots. */
static void place_arrays(ag_reloader *r, ag_carver *c, const ag_kv_totals *t) {
    r->max_groups = t->max_slots / r->block + 1;
    r->retained = ag_carve(c, t->max_slots, sizeof *r->retained);
    r->evicted = ag_carve(c, t->max_slots, sizeof *r->evicted);
    r->keys = ag_carve(c, (size_t)AG_KV_BLOCK * t->max_dim, sizeof *r->keys);
    r->values = ag_carve(c, t->max_dim, sizeof *r->values);
    r->query_weights = ag_carve(c, 2 * (size_t)t->max_dim, sizeof *r->query_weights);
    r->positions = ag_carve(c, r->block, sizeof *r->positions);
    r->products = ag_carve(c, QUERY_BATCH * r->max_groups, sizeof *r->products);
}

ag_status ag_reloader_create(ag_kv_cache *cache, ag_spill *spill, ag_reloader **out,
                             ag_error *err) {
    *out = NULL;
    if (!spill) return AG_OK;
    const ag_kv_totals t = ag_kv_totals_of(ag_kv_cache_params(cache));
    ag_carver c = {0};
    ag_reloader *r = ag_calloc(1, sizeof *r);
    if (!r) return AG_FAIL(err, NOMEM, "reloader of spilled blocks");
    r->cache = cache;
    r->spill = spill;
    r->block = ag_spill_block_slots(spill);
    place_arrays(r, &c, &t);
    r->memory = ag_malloc(c.used);
    ag_status st = r->memory ? AG_OK : AG_FAIL(err, NOMEM, "reload state of %zu heads", t.heads);
    for (int i = 0; i < MANY_BLOCKS && st == AG_OK; i++)
        st = ag_spilled_rows_create(ag_kv_cache_params(cache), &r->incoming[i], err);
    if (st != AG_OK) {
        ag_reloader_destroy(r);
        return st;
    }
    c = (ag_carver){.base = r->memory};
    place_arrays(r, &c, &t);
    *out = r;
    return AG_OK;
}

void ag_reloader_destroy(ag_reloader *r) {
    if (!r) return;
    for (int i = 0; i < MANY_BLOCKS; i++) ag_spilled_rows_release(&r->incoming[i]);
    ag_free(r->memory);
    ag_free(r->bases);
    ag_free(r->scores);
    ag_free(r->weights);
    ag_free(r);
}

/* Assumes a head with all its groups and four spilled blocks for each of them. */
size_t ag_reloader_plan_bytes(const ag_spill_params *p, const ag_kv_params *kv) {
    enum { SOME_HEADS = 16 }; /* query heads of a KV head */
    const ag_kv_totals t = ag_kv_totals_of(kv);
    if (!p || !p->path) return 0;
    ag_reloader r = {.block = ag_spill_params_block_slots(p)};
    ag_carver c = {0};
    place_arrays(&r, &c, &t);
    return sizeof r + c.used + 2 * 2 * 5 * r.max_groups * sizeof(float) +
           MANY_BLOCKS * ag_spilled_bytes(kv->k_type, kv->v_type, t.max_dim, AG_SPILL_MAX_SLOTS) +
           AG_RELOAD_ROWS * SOME_HEADS * sizeof(softmax_base);
}

void ag_reloader_set_spill(ag_reloader *r, ag_spill *spill) {
    if (r) r->spill = spill;
}

void ag_reloader_begin(ag_reloader *r, const ag_reload_pass *pass) { r->pass = *pass; }

/* ---- groups of a head ---- */

static resident_groups find_groups(const ag_reloader *r, uint32_t layer, uint32_t head) {
    const uint32_t n = ag_kv_cache_n_slots(r->cache, layer, head);
    const uint32_t protected = ag_kv_cache_protected(r->cache);
    const uint32_t n_protected_newest =
        r->pass.recent > r->pass.n_rows ? r->pass.recent : r->pass.n_rows;
    uint32_t first = 0;
    while (first < n && first < protected &&
           ag_kv_cache_position(r->cache, layer, head, first) < protected) {
        first++;
    }
    return (resident_groups){
        first, n > first + n_protected_newest ? (n - first - n_protected_newest) / r->block : 0};
}

/* Reads the keys of a group as floats. */
static ag_status read_keys(ag_reloader *r, uint32_t layer, uint32_t head, uint32_t first,
                           ag_error *err) {
    uint32_t slots[AG_KV_BLOCK];
    ag_kv_rows rows = {.k_type = AG_F32,
                       .v_type = AG_F32,
                       .n = r->block,
                       .positions = r->positions,
                       .k = (uint8_t *)r->keys};
    for (uint32_t i = 0; i < r->block; i++) slots[i] = first + i;
    return ag_kv_cache_get_rows(r->cache, layer, head, slots, &rows, r->values, err);
}

/* ---- weights of candidates ---- */

static ag_status reserve_scores(ag_reloader *r, size_t n, ag_error *err) {
    if (n <= r->cap) return AG_OK;
    ag_free(r->scores);
    ag_free(r->weights);
    r->scores = ag_calloc(2 * n, sizeof *r->scores);
    r->weights = ag_calloc(2 * n, sizeof *r->weights);
    r->cap = r->scores && r->weights ? 2 * n : 0;
    return r->cap ? AG_OK : AG_FAIL(err, NOMEM, "scores of %zu blocks", n);
}

/* Computes the largest product of each query with a key of each group. */
static ag_status multiply_groups(ag_reloader *r, uint32_t layer, uint32_t head,
                                 const resident_groups *groups, const float *const *queries,
                                 size_t n_queries, ag_error *err) {
    const uint32_t dim = ag_kv_cache_layer(r->cache, layer)->head_dim;
    for (uint32_t g = 0; g < groups->n; g++) {
        AG_TRY(read_keys(r, layer, head, groups->first + g * r->block, err));
        for (size_t i = 0; i < n_queries; i++) {
            float max = -INFINITY;
            for (uint32_t k = 0; k < r->block; k++)
                max = fmaxf(max, ag_dot(queries[i], r->keys + (size_t)k * dim, dim));
            r->products[i * r->max_groups + g] = max;
        }
    }
    return AG_OK;
}

static size_t n_queries(const query_rows *a) { return a->n_rows * a->group; }

static const float *query_at(const query_rows *a, size_t i) {
    return a->rows + (i / a->group * a->n_heads + a->first_head + i % a->group) * a->dim;
}

/* Adds each group's and block's share of one query's attention. products: those of the groups. */
static softmax_base add_query(ag_reloader *r, uint32_t layer, uint32_t head, uint32_t n_groups,
                              size_t n, const float *products, const float *q, float scale) {
    const uint32_t dim = ag_kv_cache_layer(r->cache, layer)->head_dim;
    float max = -INFINITY, sum = 0;
    ag_key_bounds_query(r->query_weights, q, dim);
    for (size_t i = 0; i < n; i++) {
        const uint32_t block = (uint32_t)i - n_groups;
        const float estimate =
            i < n_groups
                ? products[i]
                : ag_key_bounds_likely(ag_spill_block(r->spill, layer, head, block).key_bounds,
                                       r->query_weights, dim);
        r->scores[i] = scale * estimate;
        max = fmaxf(max, r->scores[i]);
    }
    for (size_t i = 0; i < n; i++) sum += r->scores[i] = expf(r->scores[i] - max);
    for (size_t i = 0; i < n; i++) r->weights[i] += r->scores[i] / sum;
    return (softmax_base){max, sum};
}

static ag_status reserve_bases(ag_reloader *r, size_t n, ag_error *err) {
    if (n <= r->n_bases) return AG_OK;
    ag_free(r->bases);
    r->bases = ag_calloc(n, sizeof *r->bases);
    r->n_bases = r->bases ? n : 0;
    return r->bases ? AG_OK : AG_FAIL(err, NOMEM, "list of %zu queries of a KV head", n);
}

static ag_status weigh_candidates(ag_reloader *r, uint32_t layer, uint32_t head,
                                  const resident_groups *groups, size_t n, const query_rows *a,
                                  ag_error *err) {
    const float *queries[QUERY_BATCH];
    AG_TRY(reserve_bases(r, n_queries(a), err));
    memset(r->weights, 0, n * sizeof *r->weights);
    for (size_t i = 0, n_batch; i < n_queries(a); i += n_batch) {
        n_batch = n_queries(a) - i < QUERY_BATCH ? n_queries(a) - i : QUERY_BATCH;
        for (size_t k = 0; k < n_batch; k++) queries[k] = query_at(a, i + k);
        AG_TRY(multiply_groups(r, layer, head, groups, queries, n_batch, err));
        for (size_t k = 0; k < n_batch; k++) {
            r->bases[i + k] = add_query(r, layer, head, groups->n, n,
                                        r->products + k * r->max_groups, queries[k], a->scale);
        }
    }
    return AG_OK;
}

/* Returns the weight of a spilled block by its keys, read from the file. If that fails it
 * returns `estimate`: the reload will find the block lost. */
static float weigh_block(ag_reloader *r, uint32_t layer, uint32_t head, uint32_t block,
                         float estimate, const query_rows *a) {
    const ag_kv_rows *rows = &r->incoming[0].rows;
    float weight = 0;
    if (!ag_spill_read(r->spill, layer, head, block, &r->incoming[0])) return estimate;
    const size_t row_bytes = ag_dtype_row_bytes(rows->k_type, a->dim);
    for (size_t i = 0; i < rows->n; i++)
        ag_dequantize_row(rows->k_type, r->keys + i * a->dim, rows->k + i * row_bytes, a->dim);
    for (size_t i = 0; i < n_queries(a); i++) {
        float max = -INFINITY;
        for (size_t k = 0; k < rows->n; k++)
            max = fmaxf(max, ag_dot(query_at(a, i), r->keys + k * a->dim, a->dim));
        weight += expf(a->scale * max - r->bases[i].max) / r->bases[i].sum;
    }
    return weight;
}

/* ---- exchange ---- */

typedef struct exchange {
    uint32_t in[MANY_BLOCKS]; /* blocks; sorted descending before the exchange */
    uint32_t n_in;
    uint32_t out[AG_KV_BLOCK * MANY_BLOCKS]; /* groups */
    uint32_t n_out;
    uint32_t free_slots; /* slots that can be reloaded without an exchange */
} exchange;

/* Returns the group of lowest weight below `than`; n_groups if there is none. */
static uint32_t lightest(const ag_reloader *r, uint32_t n_groups, float than) {
    uint32_t best = n_groups;
    for (uint32_t g = 0; g < n_groups; g++) {
        if (r->weights[g] < than) {
            than = r->weights[g];
            best = g;
        }
    }
    return best;
}

/* Frees n_missing slots by groups lighter than `weight`, whose own weights become INFINITY.
 * Returns false and changes nothing if there are not enough. */
static bool free_slots_for(const ag_reloader *r, uint32_t n_groups, float weight, int64_t n_missing,
                           exchange *x) {
    const uint32_t before = x->n_out;
    float old[AG_KV_BLOCK];
    while (n_missing > 0) {
        const uint32_t g = x->n_out - before < AG_KV_BLOCK && x->n_out < AG_KV_BLOCK * MANY_BLOCKS
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
        n_missing -= r->block;
    }
    return true;
}

/* Chooses the blocks to reload and the groups to evict. Key bounds select candidates, their keys
 * decide. Blocks that fit without an exchange need no keys. */
static void choose_exchange(ag_reloader *r, uint32_t layer, uint32_t head, uint32_t n_groups,
                            size_t n, const query_rows *a, exchange *x) {
    const uint32_t max = r->pass.many ? MANY_BLOCKS : FEW_BLOCKS;
    const float min_weight = min_share * (float)a->group;
    const int64_t n_slots = ag_kv_cache_n_slots(r->cache, layer, head);
    int64_t free_slots = r->pass.n_slots > n_slots ? r->pass.n_slots - n_slots : 0;
    x->free_slots = (uint32_t)free_slots;
    for (uint32_t n_examined = 0; x->n_in < max && n_examined < CANDIDATES_PER_BLOCK * max;
         n_examined++) {
        size_t best = n_groups;
        for (size_t i = n_groups + 1; i < n; i++) {
            if (r->weights[i] > r->weights[best]) best = i;
        }
        if (best == n || r->weights[best] <= min_weight) return;
        const uint32_t block = (uint32_t)best - n_groups, before = x->n_out;
        const int64_t n_more = ag_spill_block(r->spill, layer, head, block).n;
        const float estimate = r->weights[best];
        const float weight =
            n_more <= free_slots ? estimate : weigh_block(r, layer, head, block, estimate, a);
        r->weights[best] = 0;
        if (weight <= min_weight || !free_slots_for(r, n_groups, weight, n_more - free_slots, x))
            continue;
        free_slots += (int64_t)(x->n_out - before) * r->block - n_more;
        x->in[x->n_in++] = block;
    }
}

static int descending(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Moves the groups' slots to the spill store and compacts the head. */
static ag_status evict_groups(ag_reloader *r, uint32_t layer, uint32_t head, uint32_t first,
                              const exchange *x, ag_error *err) {
    const uint32_t n = ag_kv_cache_n_slots(r->cache, layer, head);
    uint32_t n_retained = 0, n_evicted = 0;
    for (uint32_t s = 0; s < n; s++) {
        const uint32_t group = s < first ? UINT32_MAX : (s - first) / r->block;
        bool is_evicted = false;
        for (uint32_t i = 0; i < x->n_out; i++) is_evicted = is_evicted || x->out[i] == group;
        if (is_evicted) r->evicted[n_evicted++] = s;
        else r->retained[n_retained++] = s;
    }
    ag_spill_store(r->spill, r->pass.sums, layer, head, r->evicted, n_evicted);
    ag_status st = ag_score_sums_fetch(r->pass.sums, layer, err);
    if (st == AG_OK) st = ag_kv_cache_compact(r->cache, layer, head, r->retained, n_retained, err);
    if (st == AG_OK) ag_score_sums_compact(r->pass.sums, layer, head, r->retained, n_retained);
    if (st != AG_OK) ag_spill_cancel_store(r->spill, layer, head);
    return st;
}

static ag_status insert_block(ag_reloader *r, uint32_t layer, uint32_t head, ag_spilled_rows *in,
                              ag_error *err) {
    static const float zeros[AG_KV_BLOCK];
    uint32_t slots[AG_KV_BLOCK];
    AG_TRY(ag_kv_cache_put_rows(r->cache, layer, head, &in->rows, slots, r->values, err));
    ag_score_sums_insert(r->pass.sums, layer, head, slots, r->pass.resets_sums ? zeros : in->sums,
                         in->rows.n);
    return AG_OK;
}

/* If it fails, blocks that were not inserted are in the store again. */
static ag_status do_exchange(ag_reloader *r, uint32_t layer, uint32_t head, uint32_t first,
                             exchange *x, ag_error *err) {
    uint32_t n = 0, n_slots = 0;
    qsort(x->in, x->n_in, sizeof *x->in, descending);
    for (uint32_t i = 0; i < x->n_in; i++) {
        if (!ag_spill_reload(r->spill, layer, head, x->in[i], &r->incoming[n])) continue;
        n_slots += r->incoming[n++].rows.n;
    }
    /* Lost blocks need no eviction: retain the heaviest groups, which were chosen last. */
    while (x->n_out && n_slots <= x->free_slots + (x->n_out - 1) * r->block) x->n_out--;
    ag_status st = x->n_out ? evict_groups(r, layer, head, first, x, err) : AG_OK;
    uint32_t n_inserted = 0;
    while (st == AG_OK && n_inserted < n) {
        st = insert_block(r, layer, head, &r->incoming[n_inserted], err);
        if (st == AG_OK) n_inserted++;
    }
    for (uint32_t i = n_inserted; i < n; i++)
        ag_spill_cancel_reload(r->spill, layer, head, &r->incoming[i]);
    return st;
}

ag_status ag_reloader_run_layer(ag_reloader *r, uint32_t layer, const ag_tensor *q, float scale,
                                ag_error *err) {
    const ag_kv_layer *kv_layer = ag_kv_cache_layer(r->cache, layer);
    const size_t n_rows = q->shape.dim[0], n_heads = q->shape.dim[1], dim = q->shape.dim[2];
    const size_t n_rows_used = n_rows < AG_RELOAD_ROWS ? n_rows : AG_RELOAD_ROWS;
    query_rows a = {.rows = ag_tensor_f32(q) + (n_rows - n_rows_used) * n_heads * dim,
                    .n_rows = n_rows_used,
                    .n_heads = n_heads,
                    .dim = dim,
                    .group = n_heads / kv_layer->n_kv_heads,
                    .scale = scale};
    if (kv_layer->window) return AG_OK;
    for (uint32_t h = 0; h < kv_layer->n_kv_heads; h++) {
        const uint32_t n_blocks = ag_spill_n_blocks(r->spill, layer, h);
        exchange x = {.n_in = 0};
        if (!n_blocks) continue;
        const resident_groups groups = find_groups(r, layer, h);
        const size_t n = (size_t)groups.n + n_blocks;
        AG_TRY(reserve_scores(r, n, err));
        a.first_head = h * a.group;
        AG_TRY(weigh_candidates(r, layer, h, &groups, n, &a, err));
        choose_exchange(r, layer, h, groups.n, n, &a, &x);
        if (x.n_in) AG_TRY(do_exchange(r, layer, h, groups.first, &x, err));
    }
    return AG_OK;
}
