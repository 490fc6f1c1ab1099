/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/spill.h"

#include "cache/key_bounds.h"
#include "cache/spill_file.h"
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "quant/quant.h"

#include <string.h>

enum {
    DEFAULT_SLOTS = 16,
    CACHE_MULTIPLE = 4, /* tracks at most this multiple of the cache's slots */
};

/* Shared by a session and its forks; immutable. */
typedef struct spilled_block {
    uint32_t users;
    uint32_t n;           /* slots */
    uint32_t first, last; /* positions */
    ag_dtype k_type, v_type;
    ag_spill_file *file; /* shared */
    uint32_t record;
    uint64_t sum;
    float key_bounds[]; /* [ag_key_bounds_bytes()] */
} spilled_block;

typedef struct entry {
    spilled_block *block;
    uint32_t until; /* slots of this position and above were truncated */
    uint64_t
        store_call; /* number of the ag_spill_store() call, from 1; 0: shared by another store */
} entry;

typedef struct spilled_head {
    entry *entries; /* owned; [n] */
    uint32_t n;
    size_t cap;
} spilled_head;

struct ag_spill {
    ag_spill_params params; /* path is owned */
    ag_kv_cache *cache;     /* borrowed */
    ag_spill_file *file;    /* shared */
    size_t record_bytes;
    uint32_t block; /* slots */
    size_t n_heads;
    uint64_t n_blocks, max_blocks;
    uint64_t n_stores;
    spilled_head *heads;     /* owned; [n_heads] */
    ag_spilled_rows staging; /* owned */
    float *keys;             /* owned; [block, head_dim] of the largest head */
    float *values;           /* owned; [2 * head_dim] */
    uint32_t oldest;         /* slots of lower positions are never reloaded */
    ag_spill_stats stats;
};

/* ---- layout of a block in the file: positions, sums, keys, values ---- */

size_t ag_spilled_bytes(ag_dtype k_type, ag_dtype v_type, uint32_t dim, uint32_t n) {
    return n * (sizeof(uint32_t) + sizeof(float) + ag_dtype_row_bytes(k_type, dim) +
                ag_dtype_row_bytes(v_type, dim));
}

void ag_spilled_rows_layout(ag_spilled_rows *r, ag_dtype k_type, ag_dtype v_type, uint32_t dim,
                            uint32_t n) {
    uint8_t *at = r->bytes;
    r->rows = (ag_kv_rows){.k_type = k_type, .v_type = v_type, .n = n};
    r->rows.positions = (uint32_t *)(void *)at;
    r->sums = (const float *)(const void *)(at + n * sizeof(uint32_t));
    r->rows.k = at + n * (sizeof(uint32_t) + sizeof(float));
    r->rows.v = r->rows.k + n * ag_dtype_row_bytes(k_type, dim);
}

/* Returns the smaller of the cache's type and another. */
static ag_dtype smaller_type(ag_dtype own, ag_dtype other, uint32_t dim) {
    if (dim % ag_dtype_block(other)) return own;
    return ag_dtype_row_bytes(own, dim) <= ag_dtype_row_bytes(other, dim) ? own : other;
}

static void spill_types(const ag_spill *s, uint32_t layer, ag_dtype *k_type, ag_dtype *v_type) {
    const ag_kv_params *kv = ag_kv_cache_params(s->cache);
    const uint32_t dim = kv->layers[layer].head_dim;
    *k_type = s->params.exact ? kv->k_type : smaller_type(kv->k_type, AG_Q8_0, dim);
    *v_type = s->params.exact ? kv->v_type : smaller_type(kv->v_type, AG_Q4_0, dim);
}

/* ---- creating ---- */

uint32_t ag_spill_params_block_slots(const ag_spill_params *p) {
    return p->block ? p->block : DEFAULT_SLOTS;
}

static size_t max_record_bytes(const ag_spill *s) {
    const ag_kv_params *kv = ag_kv_cache_params(s->cache);
    size_t largest = 0;
    for (uint32_t l = 0; l < kv->n_layers; l++) {
        ag_dtype k_type, v_type;
        spill_types(s, l, &k_type, &v_type);
        const size_t bytes = ag_spilled_bytes(k_type, v_type, kv->layers[l].head_dim, s->block);
        if (bytes > largest) largest = bytes;
    }
    return largest;
}

ag_status ag_spilled_rows_create(const ag_kv_params *kv, ag_spilled_rows *out, ag_error *err) {
    /* A fork may have blocks of another length, and types that are at most as large as the
     * cache's. */
    out->n_bytes =
        ag_spilled_bytes(kv->k_type, kv->v_type, ag_kv_totals_of(kv).max_dim, AG_SPILL_MAX_SLOTS);
    out->bytes = ag_malloc(out->n_bytes);
    if (out->bytes) return AG_OK;
    return AG_FAIL(err, NOMEM, "spilled block of %zu bytes", out->n_bytes);
}

void ag_spilled_rows_release(ag_spilled_rows *r) {
    ag_free(r->bytes);
    r->bytes = NULL;
}

/* Slots evicted one by one leave blocks partly filled; then fewer slots are tracked. */
static uint64_t planned_blocks(const ag_kv_totals *e, uint32_t block) {
    return CACHE_MULTIPLE * (uint64_t)(e->head_slots / block + e->heads);
}

static ag_status create_with_file(const ag_spill_params *p, ag_kv_cache *cache, ag_spill_file *file,
                                  ag_spill **out, ag_error *err) {
    const ag_kv_totals e = ag_kv_totals_of(ag_kv_cache_params(cache));
    ag_spill *s = ag_calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return AG_FAIL(err, NOMEM, "spill store");
    s->params = *p;
    s->cache = cache;
    s->block = ag_spill_params_block_slots(p);
    s->n_heads = e.heads;
    s->max_blocks = planned_blocks(&e, s->block);
    s->params.path = ag_strdup(p->path);
    s->heads = ag_calloc(e.heads, sizeof *s->heads);
    s->keys = ag_calloc(s->block, e.max_dim * sizeof *s->keys);
    s->values = ag_calloc(e.max_dim, 2 * sizeof *s->values);
    s->record_bytes = max_record_bytes(s);
    ag_status st = ag_spilled_rows_create(ag_kv_cache_params(cache), &s->staging, err);
    if (st == AG_OK) {
        s->file = file ? ag_spill_file_share(file)
                       : ag_spill_file_create(p->path, s->record_bytes, p->max_bytes);
    }
    if (st == AG_OK && (!s->params.path || !s->heads || !s->keys || !s->values || !s->file))
        st = AG_FAIL(err, NOMEM, "spill state of %zu heads", e.heads);
    if (st == AG_OK) *out = s;
    else ag_spill_destroy(s);
    return st;
}

ag_status ag_spill_check(const ag_spill_params *p, ag_backend *be, ag_error *err) {
    if (!p || !p->path) return AG_OK;
    if (ag_backend_memory(be)->ops->commits_at_once) {
        return AG_FAIL(err, UNSUPPORTED,
                       "%s: cannot spill from a cache in device memory; use one in host memory",
                       p->path);
    }
    if (p->block <= AG_SPILL_MAX_SLOTS) return AG_OK;
    return AG_FAIL(err, INVALID, "spilled blocks have %u slots: at most %d are allowed", p->block,
                   AG_SPILL_MAX_SLOTS);
}

ag_status ag_spill_create(const ag_spill_params *p, ag_kv_cache *cache, ag_spill **out,
                          ag_error *err) {
    *out = NULL;
    if (!p || !p->path) return AG_OK;
    AG_TRY(ag_spill_check(p, ag_kv_cache_backend(cache), err));
    return create_with_file(p, cache, NULL, out, err);
}

size_t ag_spill_plan_bytes(const ag_spill_params *p, const ag_kv_params *kv) {
    const ag_kv_totals e = ag_kv_totals_of(kv);
    if (!p || !p->path) return 0;
    const uint32_t block = ag_spill_params_block_slots(p);
    const size_t each = sizeof(spilled_block) + sizeof(entry) + ag_key_bounds_bytes(e.max_dim);
    return sizeof(ag_spill) + e.heads * sizeof(spilled_head) +
           ag_spilled_bytes(kv->k_type, kv->v_type, e.max_dim, AG_SPILL_MAX_SLOTS) +
           (block + 2) * e.max_dim * sizeof(float) + planned_blocks(&e, block) * each;
}

ag_status ag_spill_create_sibling(const ag_spill *s, ag_spill **out, ag_error *err) {
    ag_spill_file *file = ag_spill_file_sibling(s->file);
    *out = NULL;
    if (!file) return AG_FAIL(err, NOMEM, "spill file");
    const ag_status st = create_with_file(&s->params, s->cache, file, out, err);
    ag_spill_file_release(file);
    return st;
}

const ag_spill_params *ag_spill_params_of(const ag_spill *s) { return s ? &s->params : NULL; }
uint32_t ag_spill_block_slots(const ag_spill *s) { return s->block; }
const ag_kv_params *ag_spill_kv(const ag_spill *s) { return ag_kv_cache_params(s->cache); }

/* ---- blocks ---- */

static spilled_head *head_at(const ag_spill *s, uint32_t layer, uint32_t head) {
    return &s->heads[ag_kv_cache_first_head(s->cache, layer) + head];
}

static void drop_block(spilled_block *b) {
    if (--b->users) return;
    ag_spill_file_free(b->file, b->record);
    ag_spill_file_release(b->file);
    ag_free(b);
}

/* The last entry takes the index of the removed one. */
static void remove_entry(ag_spill *s, spilled_head *h, uint32_t i) {
    drop_block(h->entries[i].block);
    h->entries[i] = h->entries[--h->n];
    s->n_blocks--;
}

void ag_spill_clear(ag_spill *s) {
    if (!s) return;
    for (size_t i = 0; s->heads && i < s->n_heads; i++) {
        while (s->heads[i].n) remove_entry(s, &s->heads[i], s->heads[i].n - 1);
    }
    s->oldest = 0;
    s->stats = (ag_spill_stats){0};
}

void ag_spill_destroy(ag_spill *s) {
    if (!s) return;
    ag_spill_clear(s);
    for (size_t i = 0; s->heads && i < s->n_heads; i++) ag_free(s->heads[i].entries);
    ag_spill_file_release(s->file);
    ag_spilled_rows_release(&s->staging);
    ag_free((void *)(uintptr_t)s->params.path);
    ag_free(s->heads);
    ag_free(s->keys);
    ag_free(s->values);
    ag_free(s);
}

ag_status ag_spill_copy(ag_spill *to, const ag_spill *from, ag_error *err) {
    if (!to || !from) return AG_OK;
    if (!strcmp(to->params.path, from->params.path) && to->record_bytes == from->record_bytes &&
        to->params.max_bytes == from->params.max_bytes) {
        ag_spill_file_release(to->file);
        to->file = ag_spill_file_share(from->file);
    }
    for (size_t i = 0; i < from->n_heads; i++) {
        const spilled_head *src = &from->heads[i];
        spilled_head *dst = &to->heads[i];
        if (AG_GROW(dst->entries, &dst->cap, src->n, NULL) != AG_OK)
            return AG_FAIL(err, NOMEM, "list of %u spilled blocks", src->n);
        for (uint32_t k = 0; k < src->n; k++) {
            src->entries[k].block->users++;
            dst->entries[dst->n] = src->entries[k];
            dst->entries[dst->n++].store_call = 0;
            to->n_blocks++;
        }
    }
    return AG_OK;
}

void ag_spill_truncate(ag_spill *s, uint32_t position) {
    if (s) s->oldest = 0;
    for (size_t i = 0; s && i < s->n_heads; i++) {
        spilled_head *h = &s->heads[i];
        for (uint32_t k = h->n; k-- > 0;) {
            entry *e = &h->entries[k];
            if (e->block->last < position) continue;
            if (e->block->first >= position) {
                remove_entry(s, h, k);
                continue;
            }
            if (e->until > position) e->until = position;
        }
    }
}

void ag_spill_expire(ag_spill *s, uint32_t position) {
    if (!s || position <= s->oldest) return;
    s->oldest = position;
    for (size_t i = 0; i < s->n_heads; i++) {
        spilled_head *h = &s->heads[i];
        for (uint32_t k = h->n; k-- > 0;) {
            if (h->entries[k].block->last < position) remove_entry(s, h, k);
        }
    }
}

static void count_lost(ag_spill *s, ag_spill_file *file, uint32_t n) {
    const char *trouble = ag_spill_file_unreported_trouble(file);
    s->stats.n_failed += n;
    if (!trouble) return;
    ag_backend_log(ag_kv_cache_backend(s->cache), AG_LOG_WARN,
                   "%s: what leaves the KV cache may be lost, as without one", trouble);
}

/* ---- storing ---- */

/* Returns whether removing the block frees space in the file. */
static bool is_unshared(const ag_spill *s, const spilled_block *b) {
    return b->users == 1 && b->file == s->file;
}

/* Drops the block with the lowest positions. */
static bool drop_oldest(ag_spill *s, spilled_head *h, bool unshared) {
    uint32_t oldest = UINT32_MAX;
    for (uint32_t i = 0; i < h->n; i++) {
        const spilled_block *b = h->entries[i].block;
        if (unshared && !is_unshared(s, b)) continue;
        if (oldest == UINT32_MAX || b->first < h->entries[oldest].block->first) oldest = i;
    }
    if (oldest == UINT32_MAX) return false;
    s->stats.n_dropped += h->entries[oldest].block->n;
    remove_entry(s, h, oldest);
    return true;
}

/* Drops a block of the fullest head, so that all heads retain some. unshared: only one whose
 * removal frees space in the file. */
static bool drop_for_space(ag_spill *s, bool unshared) {
    spilled_head *largest = &s->heads[0];
    for (size_t i = 1; i < s->n_heads; i++)
        if (s->heads[i].n > largest->n) largest = &s->heads[i];
    if (drop_oldest(s, largest, unshared)) return true;
    for (size_t i = 0; i < s->n_heads; i++)
        if (drop_oldest(s, &s->heads[i], unshared)) return true;
    return false;
}

static bool put_record(ag_spill *s, size_t n_bytes, uint32_t *record) {
    if (ag_spill_file_is_full(s->file) && !drop_for_space(s, true)) {
        ag_spill_file_report_full(s->file);
        return false;
    }
    return ag_spill_file_put(s->file, s->staging.bytes, n_bytes, record);
}

/* Adds the block in the staging memory to a head. */
static bool add_staged(ag_spill *s, uint32_t layer, uint32_t head) {
    const uint32_t dim = ag_kv_cache_layer(s->cache, layer)->head_dim;
    const ag_kv_rows *rows = &s->staging.rows;
    spilled_head *h = head_at(s, layer, head);
    spilled_block *b = ag_malloc(sizeof *b + ag_key_bounds_bytes(dim));
    const size_t n_bytes = ag_spilled_bytes(rows->k_type, rows->v_type, dim, rows->n);
    uint32_t record;
    if (s->n_blocks >= s->max_blocks) (void)drop_for_space(s, false);
    if (!b || AG_GROW(h->entries, &h->cap, h->n + 1, NULL) != AG_OK ||
        !put_record(s, n_bytes, &record)) {
        ag_free(b);
        return false;
    }
    ag_dequantize_row(rows->k_type, s->keys, rows->k, (size_t)rows->n * dim);
    *b = (spilled_block){
        .users = 1,
        .n = rows->n,
        .first = rows->positions[0],
        .last = rows->positions[rows->n - 1],
        .k_type = rows->k_type,
        .v_type = rows->v_type,
        .file = ag_spill_file_share(s->file),
        .record = record,
        .sum = ag_spill_checksum(s->staging.bytes, n_bytes),
    };
    ag_key_bounds_make(b->key_bounds, s->keys, rows->n, dim, s->values);
    h->entries[h->n++] = (entry){b, UINT32_MAX, s->n_stores};
    s->n_blocks++;
    return true;
}

static float *staged_sums(const ag_spill *s) { return (float *)(uintptr_t)s->staging.sums; }

void ag_spill_store(ag_spill *s, const ag_score_sums *sums, uint32_t layer, uint32_t head,
                    const uint32_t *slots, uint32_t n) {
    const uint32_t dim = ag_kv_cache_layer(s->cache, layer)->head_dim;
    const float *all_sums = sums ? ag_score_sums_of(sums, layer, head) : NULL;
    ag_dtype k_type, v_type;
    s->n_stores++;
    spill_types(s, layer, &k_type, &v_type);
    for (uint32_t i = 0, rows; i < n; i += rows) {
        rows = n - i < s->block ? n - i : s->block;
        ag_spilled_rows_layout(&s->staging, k_type, v_type, dim, rows);
        for (uint32_t k = 0; k < rows; k++)
            staged_sums(s)[k] = all_sums ? all_sums[slots[i + k]] : 0;
        const bool store_call = ag_kv_cache_get_rows(s->cache, layer, head, slots + i,
                                                     &s->staging.rows, s->values, NULL) == AG_OK &&
                                add_staged(s, layer, head);
        if (store_call) s->stats.n_spilled += rows;
        else count_lost(s, s->file, rows);
    }
}

void ag_spill_cancel_store(ag_spill *s, uint32_t layer, uint32_t head) {
    spilled_head *h = head_at(s, layer, head);
    for (uint32_t i = h->n; i-- > 0;) {
        if (h->entries[i].store_call != s->n_stores) continue;
        s->stats.n_spilled -= h->entries[i].block->n;
        remove_entry(s, h, i);
    }
}

/* Converts rows [first, first + n) of src. */
static bool convert_spilled_rows(ag_dtype to, uint8_t *dst, ag_dtype from, const uint8_t *src,
                                 uint32_t first, uint32_t n, uint32_t dim, float *values) {
    const size_t to_row = ag_dtype_row_bytes(to, dim), from_row = ag_dtype_row_bytes(from, dim);
    for (uint32_t i = 0; i < n; i++) {
        if (ag_convert_row(to, dst + i * to_row, from, src + (first + i) * from_row, values, dim,
                           AG_ROUND_KV, NULL) != AG_OK) {
            return false;
        }
    }
    return true;
}

void ag_spill_add(ag_spill *s, uint32_t layer, uint32_t head, const ag_kv_rows *rows,
                  const float *sums) {
    const uint32_t dim = ag_kv_cache_layer(s->cache, layer)->head_dim;
    ag_kv_rows *to = &s->staging.rows;
    ag_dtype k_type, v_type;
    spill_types(s, layer, &k_type, &v_type);
    for (uint32_t i = 0, n; i < rows->n; i += n) {
        n = rows->n - i < s->block ? rows->n - i : s->block;
        ag_spilled_rows_layout(&s->staging, k_type, v_type, dim, n);
        memcpy(to->positions, rows->positions + i, n * sizeof *rows->positions);
        memcpy(staged_sums(s), sums + i, n * sizeof *sums);
        const bool added =
            convert_spilled_rows(k_type, to->k, rows->k_type, rows->k, i, n, dim, s->values) &&
            convert_spilled_rows(v_type, to->v, rows->v_type, rows->v, i, n, dim, s->values) &&
            add_staged(s, layer, head);
        if (!added) count_lost(s, s->file, n);
    }
}

/* ---- queries ---- */

uint32_t ag_spill_n_blocks(const ag_spill *s, uint32_t layer, uint32_t head) {
    return s ? head_at(s, layer, head)->n : 0;
}

bool ag_spill_is_empty(const ag_spill *s) { return !s || !s->n_blocks; }

static const entry *entry_at(const ag_spill *s, uint32_t layer, uint32_t head, uint32_t i) {
    return &head_at(s, layer, head)->entries[i];
}

ag_spilled_block ag_spill_block(const ag_spill *s, uint32_t layer, uint32_t head, uint32_t i) {
    const spilled_block *b = entry_at(s, layer, head, i)->block;
    return (ag_spilled_block){
        .n = b->n, .k_type = b->k_type, .v_type = b->v_type, .key_bounds = b->key_bounds};
}

void ag_spill_stats_of(const ag_spill *s, ag_spill_stats *out) {
    *out = (ag_spill_stats){0};
    if (!s) return;
    *out = s->stats;
    out->file_bytes = ag_spill_file_bytes(s->file);
    out->trouble = ag_spill_file_trouble(s->file);
}

/* ---- reading ---- */

bool ag_spill_read(ag_spill *s, uint32_t layer, uint32_t head, uint32_t i, ag_spilled_rows *out) {
    const entry *e = entry_at(s, layer, head, i);
    const spilled_block *b = e->block;
    const uint32_t dim = ag_kv_cache_layer(s->cache, layer)->head_dim;
    const size_t n_bytes = ag_spilled_bytes(b->k_type, b->v_type, dim, b->n);
    if (!ag_spill_file_get(b->file, b->record, out->bytes, n_bytes, b->sum)) {
        count_lost(s, b->file, b->n);
        return false;
    }
    ag_spilled_rows_layout(out, b->k_type, b->v_type, dim, b->n);
    while (out->rows.n && out->rows.positions[out->rows.n - 1] >= e->until) out->rows.n--;
    return true;
}

bool ag_spill_reload(ag_spill *s, uint32_t layer, uint32_t head, uint32_t i, ag_spilled_rows *out) {
    const bool is_read = ag_spill_read(s, layer, head, i, out);
    const uint32_t dim = ag_kv_cache_layer(s->cache, layer)->head_dim;
    ag_kv_rows *rows = &out->rows;
    while (is_read && rows->n && rows->positions[0] < s->oldest) {
        rows->positions++;
        out->sums++;
        rows->k += ag_dtype_row_bytes(rows->k_type, dim);
        rows->v += ag_dtype_row_bytes(rows->v_type, dim);
        rows->n--;
    }
    remove_entry(s, head_at(s, layer, head), i);
    if (is_read) s->stats.n_reloaded += out->rows.n;
    return is_read;
}

void ag_spill_cancel_reload(ag_spill *s, uint32_t layer, uint32_t head, const ag_spilled_rows *r) {
    s->stats.n_reloaded -= r->rows.n;
    ag_spill_add(s, layer, head, &r->rows, r->sums);
}
