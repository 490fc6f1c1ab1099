/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/eviction/importance.h"

#include "cache/eviction/policies.h"
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"

#include <math.h>
#include <string.h>

/* ---- scratch ---- */

/* Resident from the beginning: memory is not to grow just when it is short. */
static void *resident(size_t n, size_t bytes) {
    void *p = n < SIZE_MAX / bytes ? ag_malloc(n * bytes) : NULL;
    if (p) memset(p, 0, n * bytes);
    return p;
}

/* The backend scores keys this way where they lie. */
static bool scores_in_place(const ag_eviction_policy *policy, const ag_kv_cache *cache) {
    return policy->from_keys == ag_eviction_keydiff.from_keys &&
           ag_has_key_scores(ag_kv_cache_backend(cache));
}

enum { MOST_WORKERS = 4 }; /* each has a head's keys as floats */

ag_status ag_eviction_scratch_create(ag_eviction_scratch *s, const ag_eviction_policy *policy,
                                     const ag_kv_cache *cache, ag_error *err) {
    const ag_kv_extent e = ag_kv_extent_of(ag_kv_cache_params(cache));
    size_t n = e.most_slots;
    bool keys = policy->importance == AG_IMPORTANCE_KEYS;
    s->n_workers = ag_backend_threads(ag_kv_cache_backend(cache));
    if (s->n_workers > MOST_WORKERS) s->n_workers = MOST_WORKERS;
    if (s->n_workers > e.most_heads) s->n_workers = e.most_heads;
    s->keep = resident(n, sizeof *s->keep);
    s->work = resident(n, sizeof *s->work);
    s->positions = resident(n, sizeof *s->positions);
    s->values = resident(n, sizeof *s->values);
    s->importance = resident(keys ? e.most_head_slots : n, sizeof *s->importance);
    if (keys && scores_in_place(policy, cache)) keys = false;
    if (keys) s->keys = resident(n * e.most_dim, s->n_workers * sizeof *s->keys);
    if (keys) s->mean = resident(e.most_dim, s->n_workers * sizeof *s->mean);
    if (s->keep && s->work && s->positions && s->values && s->importance &&
        (!keys || (s->keys && s->mean))) {
        return AG_OK;
    }
    return AG_FAIL(err, NOMEM, "eviction scratch for %zu slots: out of memory", n);
}

size_t ag_eviction_scratch_bytes(const ag_eviction_policy *policy, const ag_kv_params *kv) {
    const ag_eviction_scratch *s = NULL;
    const ag_kv_extent e = ag_kv_extent_of(kv);
    const size_t n = e.most_slots;
    size_t lists = sizeof *s->keep + sizeof *s->work + sizeof *s->positions + sizeof *s->values;
    if (policy->importance != AG_IMPORTANCE_KEYS) return n * (lists + sizeof *s->importance);
    const size_t all = n * lists + e.most_head_slots * sizeof *s->importance;
    if (policy->from_keys == ag_eviction_keydiff.from_keys) return all; /* no backend needs more */
    size_t workers = e.most_heads < MOST_WORKERS ? e.most_heads : MOST_WORKERS;
    return all + workers * e.most_dim * (n * sizeof *s->keys + sizeof *s->mean);
}

void ag_eviction_scratch_release(ag_eviction_scratch *s) {
    ag_free(s->keep);
    ag_free(s->work);
    ag_free(s->positions);
    ag_free(s->values);
    ag_free(s->importance);
    ag_free(s->keys);
    ag_free(s->mean);
}

/* ---- importance ---- */

ag_status ag_importance_normalise(ag_eviction_scratch *s, ag_score_sums *sums,
                                  const ag_eviction_params *p, const ag_kv_cache *cache,
                                  uint32_t position, uint32_t n_window, ag_error *err) {
    const ag_kv_layer *is;
    ag_score_sums_set_position(sums, position);
    for (uint32_t l = 0; p->policy->normalise && (is = ag_kv_cache_layer(cache, l)); l++) {
        AG_TRY(ag_score_sums_fetch(sums, l, err));
        for (uint32_t h = 0; h < is->n_kv_heads; h++) {
            const uint32_t n = ag_kv_cache_n_slots(cache, l, h);
            p->policy->normalise(p->policy->user, p, ag_score_sums_of(sums, l, h), n,
                                 n_window < n ? n_window : n, s->values);
        }
        AG_TRY(ag_score_sums_store(sums, l, true, err));
    }
    return AG_OK;
}

/* The mean over a layer's heads, which hold the same slots. */
static ag_status mean_of_heads(ag_eviction_scratch *s, ag_score_sums *sums,
                               const ag_kv_cache *cache, uint32_t layer, ag_error *err) {
    AG_TRY(ag_score_sums_fetch(sums, layer, err));
    uint32_t n_heads = ag_kv_cache_layer(cache, layer)->n_kv_heads;
    uint32_t n = ag_kv_cache_n_slots(cache, layer, 0);
    for (uint32_t slot = 0; slot < n; slot++) {
        double sum = 0;
        for (uint32_t h = 0; h < n_heads; h++) sum += ag_score_sums_of(sums, layer, h)[slot];
        s->importance[slot] = (float)(sum / n_heads);
    }
    return AG_OK;
}

static ag_status score_in_place(const ag_eviction_scratch *s, const ag_kv_cache *cache,
                                uint32_t layer, ag_error *err) {
    ag_backend *be = ag_kv_cache_backend(cache);
    ag_kv_view view;
    ag_kv_cache_get_view(cache, layer, &view);
    return ag_take_error(
        be, ag_score_keys(be, &view, s->importance, ag_kv_cache_max_slots(cache, layer)), err);
}

typedef struct keys_job {
    ag_eviction_scratch *s;
    const ag_eviction_policy *policy;
    ag_kv_cache *cache;
    uint32_t layer;
    ag_status
        status; /* only memory that the host does not see can fail: then there is one thread */
    ag_error *err;
} keys_job;

/* Worker w scores heads w, w + n_workers, ... */
static void score_keys_of_heads(void *ctx, size_t begin, size_t end, uint32_t thread) {
    keys_job *job = ctx;
    const ag_eviction_scratch *s = job->s;
    const ag_kv_layer *is = ag_kv_cache_layer(job->cache, job->layer);
    const size_t max_slots = ag_kv_cache_max_slots(job->cache, job->layer);
    (void)thread;
    for (size_t w = begin; w < end; w++) {
        float *keys = s->keys + w * max_slots * is->head_dim;
        float *mean = s->mean + w * is->head_dim;
        for (uint32_t h = (uint32_t)w; h < is->n_kv_heads; h += s->n_workers) {
            ag_status st = ag_kv_cache_read_keys(job->cache, job->layer, h, keys, job->err);
            if (st != AG_OK) job->status = st;
            if (st != AG_OK) return;
            job->policy->from_keys(job->policy->user, keys,
                                   ag_kv_cache_n_slots(job->cache, job->layer, h), is->head_dim,
                                   s->importance + h * max_slots, mean);
        }
    }
}

ag_status ag_importance_of_layer(ag_eviction_scratch *s, ag_score_sums *sums,
                                 const ag_eviction_policy *policy, ag_kv_cache *cache,
                                 uint32_t layer, uint32_t budget, ag_error *err) {
    const bool keys = policy->importance == AG_IMPORTANCE_KEYS;
    if (!keys && policy->importance != AG_IMPORTANCE_NEWEST) return AG_OK;
    if (ag_kv_layer_length(cache, layer) <= budget) return AG_OK; /* nobody will ask */
    if (!keys && s->own_importance) return AG_OK;
    if (!keys) return mean_of_heads(s, sums, cache, layer, err);
    if (scores_in_place(policy, cache)) return score_in_place(s, cache, layer, err);
    keys_job job = {s, policy, cache, layer, AG_OK, err};
    ag_for_each(ag_kv_cache_backend(cache), s->n_workers, score_keys_of_heads, &job);
    return job.status;
}

ag_status ag_importance_of(ag_eviction_scratch *s, ag_score_sums *sums,
                           const ag_eviction_policy *policy, const ag_kv_cache *cache,
                           uint32_t layer, uint32_t head, ag_eviction_view *v, ag_error *err) {
    float *importance = s->importance;
    switch (policy->importance) {
    case AG_IMPORTANCE_NONE:
        return AG_OK;
    case AG_IMPORTANCE_NEWEST: /* the layer's is there */
        if (!s->own_importance) break;
        /* fall through */
    case AG_IMPORTANCE_WINDOW:
    case AG_IMPORTANCE_TOTAL:
        AG_TRY(ag_score_sums_fetch(sums, layer, err));
        memcpy(importance, ag_score_sums_of(sums, layer, head), v->n_slots * sizeof *importance);
        break;
    case AG_IMPORTANCE_KEYS: /* the head's is there */
        importance += (size_t)head * ag_kv_cache_max_slots(cache, layer);
        break;
    }
    /* A number that cannot be compared would leave no order. */
    for (uint32_t i = 0; i < v->n_slots; i++) {
        if (isnan(importance[i])) importance[i] = -INFINITY;
    }
    v->importance = importance;
    return AG_OK;
}
