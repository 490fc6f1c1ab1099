/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/eviction/importance.h"

#include "cache/carve.h"
#include "cache/eviction/policies.h"
#include "cache/head_lengths.h"
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "core/hadamard.h"

#include <math.h>
#include <string.h>

/* ---- scratch ---- */

/* Returns whether the backend computes these scores in its memory. */
static bool scores_in_place(const ag_eviction_policy *policy, const ag_kv_cache *cache) {
    return policy->device_scores && ag_has_key_scores(ag_kv_cache_backend(cache));
}

enum { MAX_WORKERS = 4 }; /* each holds the keys of a head as floats */

/* Returns the maximum number of heads in memory: all if from_keys_layer() gets them in one call. */
static uint32_t max_workers(const ag_eviction_policy *policy, const ag_kv_totals *t) {
    return policy->from_keys_layer || t->max_heads < MAX_WORKERS ? t->max_heads : MAX_WORKERS;
}

/* Places all arrays of the scratch. in_place: the backend computes the scores of keys. */
static void place_arrays(ag_eviction_scratch *s, ag_carver *c, const ag_eviction_params *p,
                         const ag_kv_totals *t, bool in_place) {
    const ag_eviction_policy *policy = p->policy;
    const bool from_keys = ag_importance_traits_of(policy)->from_keys;
    const bool adaptive = ag_heads_by_scores(p->head_budget);
    const size_t slots = t->max_slots, head_slots = t->max_head_slots, heads = t->max_heads;
    const size_t dim = t->max_dim, workers = s->n_workers;
    s->separate_heads = from_keys || adaptive || policy->select_layer;
    s->keep = ag_carve(c, slots, sizeof *s->keep);
    s->work = ag_carve(c, slots, sizeof *s->work);
    s->positions = ag_carve(c, slots, sizeof *s->positions);
    s->values = ag_carve(c, slots, sizeof *s->values);
    s->importance = ag_carve(c, s->separate_heads ? head_slots : slots, sizeof *s->importance);
    s->n_keep = ag_carve(c, heads, sizeof *s->n_keep);
    s->bounds = ag_carve(c, heads, sizeof *s->bounds);
    if (adaptive) {
        s->views = ag_carve(c, heads, sizeof *s->views);
        s->ranked = ag_carve(c, head_slots, sizeof *s->ranked);
        s->order = ag_carve(c, head_slots, sizeof *s->order);
        s->best = ag_carve(c, head_slots, sizeof *s->best);
    }
    if (policy->select_layer) {
        s->selections = ag_carve(c, heads, sizeof *s->selections);
        s->layer_keep = ag_carve(c, head_slots, sizeof *s->layer_keep);
        s->layer_positions = ag_carve(c, head_slots, sizeof *s->layer_positions);
    }
    if (p->head_budget == AG_HEAD_BUDGET_VALUES) {
        s->head_values = ag_carve(c, slots * dim, sizeof *s->head_values);
        s->mean = ag_carve(c, dim, sizeof *s->mean);
    }
    if (!from_keys || in_place) return;
    s->heads = ag_carve(c, heads, sizeof *s->heads);
    s->head_positions = ag_carve(c, workers * slots, sizeof *s->head_positions);
    s->keys = ag_carve(c, workers * slots * dim, sizeof *s->keys);
    if (policy->with_values)
        s->head_values = ag_carve(c, workers * slots * dim, sizeof *s->head_values);
    if (policy->work_floats) s->work_floats = policy->work_floats(policy->user, dim);
    s->head_work = ag_carve(c, workers * s->work_floats, sizeof *s->head_work);
    if (policy->unrotated) {
        s->far = ag_carve(c, workers * dim, sizeof *s->far);
        s->table = ag_carve(c, ag_unrotate_table_floats(t->max_dim), sizeof *s->table);
    }
    if (policy->compare) s->more = ag_carve(c, head_slots, sizeof *s->more);
}

ag_status ag_eviction_scratch_create(ag_eviction_scratch *s, const ag_eviction_params *p,
                                     const ag_kv_cache *cache, ag_error *err) {
    const ag_kv_totals t = ag_kv_totals_of(ag_kv_cache_params(cache));
    const bool in_place = scores_in_place(p->policy, cache);
    ag_carver c = {0};
    const uint32_t n_threads = ag_backend_threads(ag_kv_cache_backend(cache));
    s->n_workers = max_workers(p->policy, &t);
    if (s->n_workers > n_threads && !p->policy->from_keys_layer) s->n_workers = n_threads;
    s->per_head_importance = p->head_budget != AG_HEAD_BUDGET_EVEN || (p->spill && p->spill->path);
    place_arrays(s, &c, p, &t, in_place);
    s->memory = ag_malloc(c.used);
    if (!s->memory) return AG_FAIL(err, NOMEM, "eviction scratch for %u slots", t.max_slots);
    /* Touched now, so that evictions under memory pressure add no pages. */
    memset(s->memory, 0, c.used);
    c = (ag_carver){.base = s->memory};
    place_arrays(s, &c, p, &t, in_place);
    return AG_OK;
}

size_t ag_eviction_scratch_bytes(const ag_eviction_params *p, const ag_kv_params *kv) {
    const ag_kv_totals t = ag_kv_totals_of(kv);
    ag_eviction_scratch s = {.n_workers = max_workers(p->policy, &t)};
    ag_carver c = {0};
    /* Without a backend, assume that it computes device scores itself. */
    place_arrays(&s, &c, p, &t, p->policy->device_scores);
    return c.used;
}

void ag_eviction_scratch_release(ag_eviction_scratch *s) { ag_free(s->memory); }

/* ---- importance ---- */

ag_status ag_importance_normalise(ag_eviction_scratch *s, ag_score_sums *sums,
                                  const ag_eviction_params *p, const ag_kv_cache *cache,
                                  uint32_t position, uint32_t n_window, uint32_t *layer,
                                  ag_error *err) {
    const ag_kv_layer *kv_layer;
    ag_score_sums_set_position(sums, position);
    while (p->policy->normalise && (kv_layer = ag_kv_cache_layer(cache, *layer))) {
        const uint32_t l = *layer;
        AG_TRY(ag_score_sums_fetch(sums, l, err));
        ++*layer;
        for (uint32_t h = 0; h < kv_layer->n_kv_heads; h++) {
            const uint32_t n = ag_kv_cache_n_slots(cache, l, h);
            p->policy->normalise(p->policy->user, p, ag_score_sums_of(sums, l, h), n,
                                 n_window < n ? n_window : n, s->values);
        }
        AG_TRY(ag_score_sums_store(sums, l, true, err));
    }
    return AG_OK;
}

/* Averages the sums over the heads of a layer, which hold the same slots. */
static ag_status mean_of_heads(ag_eviction_scratch *s, ag_score_sums *sums,
                               const ag_kv_cache *cache, uint32_t layer, ag_error *err) {
    AG_TRY(ag_score_sums_fetch(sums, layer, err));
    const uint32_t n_heads = ag_kv_cache_layer(cache, layer)->n_kv_heads;
    const uint32_t n_slots = ag_kv_cache_n_slots(cache, layer, 0);
    enum { AT_ONCE = 64 };
    for (uint32_t slot = 0; slot < n_slots; slot += AT_ONCE) {
        const uint32_t n = n_slots - slot < AT_ONCE ? n_slots - slot : AT_ONCE;
        double mean[AT_ONCE] = {0};
        for (uint32_t h = 0; h < n_heads; h++) {
            const float *of = ag_score_sums_of(sums, layer, h) + slot;
            for (uint32_t i = 0; i < n; i++) mean[i] += of[i];
        }
        for (uint32_t i = 0; i < n; i++) s->importance[slot + i] = (float)(mean[i] / n_heads);
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
    const ag_eviction_params *p;
    ag_kv_cache *cache;
    const ag_score_sums *sums; /* sums of the layer, fetched; NULL: not used */
    const ag_rope_table *rope;
    uint32_t layer;
    ag_status status; /* only device memory can fail to be read, and then there is one thread */
    ag_error *err;
} keys_job;

/* Returns the inputs of head h in the memory of worker w. */
static ag_eviction_inputs inputs_of(const keys_job *job, size_t w, uint32_t h) {
    const ag_eviction_scratch *s = job->s;
    const size_t max_slots = ag_kv_cache_max_slots(job->cache, job->layer);
    const size_t dim = ag_kv_cache_layer(job->cache, job->layer)->head_dim;
    ag_eviction_inputs in = s->heads[h]; /* n_slots and removed are set */
    in.dim = dim;
    in.backend = ag_kv_cache_backend(job->cache);
    in.positions = s->head_positions + w * max_slots;
    in.keys = s->keys + w * max_slots * dim;
    in.values = s->head_values ? s->head_values + w * max_slots * dim : NULL;
    in.sums = job->sums ? ag_score_sums_of(job->sums, job->layer, h) : NULL;
    in.work = s->head_work ? s->head_work + w * s->work_floats : NULL;
    return in;
}

static ag_status load_head(const keys_job *job, size_t w, uint32_t h, ag_eviction_inputs *in) {
    const ag_eviction_scratch *s = job->s;
    const ag_eviction_policy *policy = job->p->policy;
    const size_t max_slots = ag_kv_cache_max_slots(job->cache, job->layer);
    uint32_t *positions = s->head_positions + w * max_slots;
    AG_TRY(ag_kv_cache_read_positions(job->cache, job->layer, h, positions, job->err));
    AG_TRY(ag_kv_cache_read_keys(job->cache, job->layer, h, in->keys, job->err));
    while (in->n_protected < in->n_slots &&
           positions[in->n_protected] < ag_kv_cache_protected(job->cache)) {
        in->n_protected++;
    }
    if (policy->unrotated) {
        if (ag_kv_cache_params(job->cache)->hadamard) ag_hadamard(in->keys, in->n_slots, in->dim);
        ag_unrotate(in->keys, in->n_slots, in->dim, positions, job->rope, s->table,
                    s->far + w * in->dim);
    }
    if (!s->head_values) return AG_OK;
    float *values = s->head_values + w * max_slots * in->dim;
    return ag_kv_cache_read_values(job->cache, job->layer, h, values, job->err);
}

/* Scores heads w, w + n_workers, ... in worker w. For from_keys_layer() it only loads them, each in
 * a worker of its own. */
static void score_keys_of_heads(void *ctx, size_t begin, size_t end, uint32_t thread) {
    keys_job *job = ctx;
    const ag_eviction_policy *policy = job->p->policy;
    const uint32_t n_heads = ag_kv_cache_layer(job->cache, job->layer)->n_kv_heads;
    (void)thread;
    for (size_t w = begin; w < end; w++) {
        for (uint32_t h = (uint32_t)w; h < n_heads; h += job->s->n_workers) {
            ag_eviction_inputs in = inputs_of(job, w, h);
            const ag_status st = load_head(job, w, h, &in);
            if (st != AG_OK) job->status = st;
            if (st != AG_OK) return;
            if (policy->from_keys_layer) job->s->heads[h] = in;
            else policy->from_keys(policy->user, job->p, &in);
        }
    }
}

/* Sets the inputs that from_keys() and compare() share. The layer will keep n_keep slots. */
static void list_heads(const keys_job *job, size_t n_keep) {
    const ag_eviction_scratch *s = job->s;
    const size_t max_slots = ag_kv_cache_max_slots(job->cache, job->layer);
    const uint32_t n_heads = ag_kv_cache_layer(job->cache, job->layer)->n_kv_heads;
    const size_t n = ag_heads_slots(job->cache, job->layer);
    const float removed = n > n_keep ? (float)(n - n_keep) / (float)n : 0;
    for (uint32_t h = 0; h < n_heads; h++) {
        s->heads[h] = (ag_eviction_inputs){
            .n_slots = ag_kv_cache_n_slots(job->cache, job->layer, h),
            .removed = removed,
            .importance = s->importance + h * max_slots,
            .more = s->more ? s->more + h * max_slots : NULL,
        };
    }
}

static ag_status score_keys_of_layer(keys_job *job, size_t n_keep) {
    ag_eviction_scratch *s = job->s;
    const ag_eviction_policy *policy = job->p->policy;
    const uint32_t n_heads = ag_kv_cache_layer(job->cache, job->layer)->n_kv_heads;
    list_heads(job, n_keep);
    if (policy->unrotated && s->table_of != job->rope->inv_freq) {
        ag_unrotate_table(job->rope, s->table);
        s->table_of = job->rope->inv_freq;
    }
    ag_for_each(ag_kv_cache_backend(job->cache), s->n_workers, score_keys_of_heads, job);
    if (job->status == AG_OK && policy->from_keys_layer) {
        ag_error unused;
        return policy->from_keys_layer(policy->user, job->p, job->layer, s->heads, n_heads,
                                       job->err ? job->err : &unused);
    }
    if (job->status == AG_OK && policy->compare)
        policy->compare(policy->user, job->p, s->heads, n_heads);
    return job->status;
}

ag_status ag_importance_of_layer(ag_eviction_scratch *s, ag_score_sums *sums,
                                 const ag_eviction_params *p, ag_kv_cache *cache,
                                 const ag_rope_table *rope, uint32_t layer, size_t n_keep,
                                 ag_error *err) {
    const ag_eviction_policy *policy = p->policy;
    const ag_importance_traits *traits = ag_importance_traits_of(policy);
    if (!traits->from_keys && !traits->of_newest_query) return AG_OK;
    if (ag_heads_slots(cache, layer) <= n_keep) return AG_OK; /* no head will use it */
    if (!traits->from_keys && s->per_head_importance) return AG_OK;
    if (!traits->from_keys) return mean_of_heads(s, sums, cache, layer, err);
    if (scores_in_place(policy, cache)) return score_in_place(s, cache, layer, err);
    AG_TRY(ag_score_sums_fetch(sums, layer, err));
    keys_job job = {s, p, cache, sums, rope, layer, AG_OK, err};
    return score_keys_of_layer(&job, n_keep);
}

static ag_status count_values(const ag_eviction_scratch *s, ag_kv_cache *cache, uint32_t layer,
                              uint32_t head, float *importance, ag_error *err) {
    AG_TRY(ag_kv_cache_read_values(cache, layer, head, s->head_values, err));
    ag_value_losses(importance, ag_kv_cache_n_slots(cache, layer, head), s->head_values,
                    ag_kv_cache_layer(cache, layer)->head_dim, s->mean);
    return AG_OK;
}

ag_status ag_importance_of(ag_eviction_scratch *s, ag_score_sums *sums,
                           const ag_eviction_policy *policy, ag_kv_cache *cache, uint32_t layer,
                           uint32_t head, ag_eviction_view *v, ag_error *err) {
    const ag_importance_traits *traits = ag_importance_traits_of(policy);
    float *importance = s->importance;
    if (!traits->has_scores) return AG_OK;
    const bool of_layer = traits->of_newest_query && !s->per_head_importance;
    if (s->separate_heads && !of_layer)
        importance += (size_t)head * ag_kv_cache_max_slots(cache, layer);
    /* In other cases ag_importance_of_layer() has written it. */
    if (traits->is_attention && !of_layer) {
        AG_TRY(ag_score_sums_fetch(sums, layer, err));
        memcpy(importance, ag_score_sums_of(sums, layer, head), v->n_slots * sizeof *importance);
        if (s->mean) AG_TRY(count_values(s, cache, layer, head, importance, err));
    }
    /* NaN has no order. */
    for (uint32_t i = 0; i < v->n_slots; i++) {
        if (isnan(importance[i])) importance[i] = -INFINITY;
    }
    v->importance = importance;
    return AG_OK;
}
