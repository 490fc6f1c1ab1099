/* SPDX-License-Identifier: Apache-2.0 */
#include "core/alloc.h"
#include "core/backend_ops.h"
#include "core/fail.h"
#include "core/rollback.h"
#include "session/session_impl.h"
#include "session/speculate.h"

#include <string.h>

ag_session_params ag_session_defaults(void) {
    return (ag_session_params){
        .max_seq_len = 2048,
        .prefill_chunk = 512,
        .k_type = AG_F16,
        .v_type = AG_F16,
        .eviction = ag_eviction_defaults(),
    };
}

/* Cached layers, kind after kind. The order does not matter for sums over layers. */
typedef struct layer_list {
    ag_kv_layer layers[AG_MAX_LAYERS];
    uint32_t n;
} layer_list;

static ag_kv_layer kv_layer_of(const ag_layer_kind *k) {
    return (ag_kv_layer){.n_kv_heads = k->n_kv_heads, .head_dim = k->head_dim, .window = k->window};
}

/* Returns NULL if all layers are alike and have no window. */
static const ag_kv_layer *list_kinds(const ag_model_info *info, layer_list *list) {
    list->n = info->n_layers;
    if (info->n_layer_kinds == 1 && !info->layer_kinds[0].window) return NULL;
    list->n = 0;
    for (uint32_t k = 0; k < info->n_layer_kinds; k++) {
        const uint32_t end = list->n + info->layer_kinds[k].n_kv_layers;
        while (list->n < end && list->n < AG_MAX_LAYERS) {
            list->layers[list->n++] = kv_layer_of(&info->layer_kinds[k]);
        }
    }
    return list->layers;
}

/* Returns the query values of a token: the sum over layers with keys of their own, plus the largest
 * layer once more. */
static size_t query_values(const ag_model_info *info) {
    size_t sum = 0, max = 0;
    for (uint32_t k = 0; k < info->n_layer_kinds; k++) {
        const ag_layer_kind *kind = &info->layer_kinds[k];
        const size_t n = kind->n_kv_layers ? (size_t)kind->n_heads * kind->head_dim : 0;
        sum += kind->n_kv_layers * n;
        if (n > max) max = n;
    }
    return sum + max;
}

/* Lists the layers in the order of the model, as caches number them. */
static void sort_layers(const ag_model *m, layer_list *list) {
    uint32_t n = 0;
    for (uint32_t l = 0; l < m->info.n_layers; l++) {
        if (ag_spec_kv_source(&m->spec, l) != l) continue;
        list->layers[n++] = kv_layer_of(&m->info.layer_kinds[m->spec.kind_of[l]]);
    }
}

static ag_kv_params kv_params(const ag_model_info *info, const ag_session_params *p,
                              layer_list *list) {
    bool rotate = p->k_rotation == AG_K_ROTATION_ON ||
                  (p->k_rotation == AG_K_ROTATION_AUTO && p->k_type == AG_Q4_0);
    bool managed = ag_eviction_is_managed(&p->eviction);
    const ag_kv_layer *layers = list_kinds(info, list);
    return (ag_kv_params){
        .n_layers = list->n,
        .n_kv_heads = info->n_kv_heads,
        .head_dim = info->head_dim,
        .max_slots = p->max_seq_len,
        .k_type = p->k_type,
        .v_type = p->v_type,
        .n_protected = managed ? p->eviction.protected_prefix : 0,
        .hadamard = rotate,
        .layers = layers,
        .step_rows = p->prefill_chunk,
    };
}

/* Limits slots to the trained positions and chunks to the slots. */
static ag_status complete_params(const ag_model_info *info, const ag_session_params *params,
                                 ag_session_params *out, ag_error *err) {
    *out = params ? *params : ag_session_defaults();
    if (!out->max_seq_len) return AG_FAIL(err, INVALID, "max_seq_len is 0: it must be positive");
    if (!out->prefill_chunk)
        return AG_FAIL(err, INVALID, "prefill_chunk is 0: it must be positive");
    if (out->max_seq_len > info->max_positions) out->max_seq_len = info->max_positions;
    if (out->prefill_chunk > out->max_seq_len) out->prefill_chunk = out->max_seq_len;
    ag_eviction_resolve_policy(&out->eviction);
    if (!ag_eviction_is_managed(&out->eviction)) return AG_OK;
    layer_list list;
    ag_kv_params kv = kv_params(info, out, &list);
    uint32_t budget;
    return ag_eviction_budget(&out->eviction, &kv, &budget, err);
}

ag_status ag_session_plan_largest(const ag_model_info *info, const ag_session_params *params,
                                  ag_session_plan *out, size_t *largest, ag_error *err) {
    ag_session_params p;
    AG_TRY(complete_params(info, params, &p, err));
    layer_list list;
    ag_kv_params kv = kv_params(info, &p, &list);
    ag_workspace_shape ws = ag_model_workspace_shape(info, p.prefill_chunk, 1);
    const size_t parts[] = {ag_workspace_bytes(&ws), (size_t)info->state_bytes};
    *out = (ag_session_plan){
        .kv_bytes = ag_kv_cache_plan_bytes(&kv),
        .state_bytes = parts[1],
        .workspace_bytes = parts[0] + info->n_vocab * sizeof(float),
        .eviction_bytes = ag_cache_manager_plan_bytes(&p.eviction, &kv, query_values(info)),
        .draft_bytes = ag_draft_tables_bytes(&p) + ag_logit_rows_bytes(NULL, info),
    };
    *largest = parts[0] > parts[1] ? parts[0] : parts[1];
    return AG_OK;
}

ag_status ag_session_plan_memory(const ag_model_info *info, const ag_session_params *params,
                                 ag_session_plan *out, ag_error *err) {
    size_t largest;
    return ag_session_plan_largest(info, params, out, &largest, err);
}

static ag_status make_logits(ag_session *s, ag_error *err) {
    size_t n_vocab = s->model->info.n_vocab;
    AG_TRY(ag_tensor_alloc(&s->logits.row, &s->logits.owner, ag_backend_memory(s->model->backend),
                           AG_USAGE_SCRATCH, AG_F32, ag_shape_2d(1, n_vocab), err));
    /* A temporary mapping would not stay readable. */
    if (ag_buffer_is_mapped(s->logits.owner)) s->logits.host = ag_tensor_f32(&s->logits.row);
    if (s->logits.host) return AG_OK;
    s->logits.copied = ag_malloc(n_vocab * sizeof *s->logits.copied);
    s->logits.host = s->logits.copied;
    return s->logits.copied ? AG_OK : AG_FAIL(err, NOMEM, "row of %zu logits", n_vocab);
}

/* Reserves what attention needs for a full cache, so that decoding does not allocate. */
static ag_status reserve_attention(const ag_session *s, uint32_t n_rows, ag_error *err) {
    const ag_model_info *info = &s->model->info;
    ag_backend *be = s->model->backend;
    for (uint32_t k = 0; k < info->n_layer_kinds; k++) {
        if (info->layer_kinds[k].mixer != AG_MIXER_ATTENTION) continue;
        const ag_attention_limits limits = {
            .n_heads = info->layer_kinds[k].n_heads,
            .n_kv_heads = info->layer_kinds[k].n_kv_heads,
            .head_dim = info->layer_kinds[k].head_dim,
            .n_slots = ag_kv_totals_of(ag_kv_cache_params(s->cache)).max_slots,
            .n_rows = n_rows,
            .n_seqs = 1,
        };
        AG_TRY(ag_take_error(be, ag_attention_reserve(be, &limits), err));
    }
    return AG_OK;
}

ag_status ag_session_reserve_rows(ag_session *s, uint32_t n_rows, ag_error *err) {
    AG_TRY(ag_model_reserve(s->model, n_rows, 1, err));
    AG_TRY(reserve_attention(s, n_rows, err));
    return ag_session_make_logit_rows(s, err);
}

/* Creates the cache manager of the policy, with the rotation of each cached layer. */
static ag_status make_manager(ag_session *s, ag_error *err) {
    const ag_model *m = s->model;
    ag_rope_table *rope = ag_calloc(m->info.n_layers, sizeof *rope);
    if (!rope) return AG_FAIL(err, NOMEM, "rotations of %u layers", m->info.n_layers);
    uint32_t n = 0;
    for (uint32_t l = 0; l < m->info.n_layers; l++) {
        if (ag_spec_kv_source(&m->spec, l) != l) continue;
        ag_rope_table *table = &rope[n++];
        const ag_tensor *inv_freq = ag_model_rope(m, l, s->is_long, &table->factor);
        if (!inv_freq) continue;
        table->inv_freq = ag_tensor_f32(inv_freq);
        table->n_rotated = 2 * (uint32_t)ag_shape_numel(&inv_freq->shape);
    }
    ag_status st = ag_cache_manager_create(s->cache, &s->params.eviction, rope,
                                           m->info.max_positions, &s->manager, err);
    s->params.eviction.spill = ag_spill_params_of(ag_cache_manager_spill(s->manager));
    ag_free(rope);
    return st;
}

ag_status ag_session_make_state(const ag_session *s, ag_layer_state **out, ag_error *err) {
    const ag_model *m = s->model;
    ag_state_layer layers[AG_MAX_LAYERS];
    const uint32_t n = ag_model_states(m, layers);
    return ag_layer_state_create(m->backend, layers, n, out, err);
}

static uint64_t next_serial(void) {
    static atomic_ullong newest;
    return atomic_fetch_add(&newest, 1) + 1;
}

ag_status ag_session_create(ag_model *model, const ag_session_params *params, ag_session **out,
                            ag_error *err) {
    *out = NULL;
    ag_session_params p;
    AG_TRY(complete_params(&model->info, params, &p, err));
    ag_session *s = ag_calloc(1, sizeof *s);
    if (!s) return AG_FAIL(err, NOMEM, "session");
    s->model = model;
    s->serial = next_serial();
    s->params = p;
    /* Positions are unlimited with a policy. */
    s->is_long = ag_spec_is_long(&model->spec,
                                 ag_eviction_is_managed(&p.eviction) ? UINT64_MAX : p.max_seq_len);
    layer_list list;
    ag_kv_params kv = kv_params(&model->info, &p, &list);
    if (kv.layers) sort_layers(model, &list);
    ag_status st = ag_kv_cache_create(model->backend, &kv, &s->cache, err);
    if (st == AG_OK) st = ag_session_make_state(s, &s->state, err);
    if (st == AG_OK) st = make_manager(s, err);
    if (st == AG_OK) st = ag_model_reserve(model, p.prefill_chunk, 1, err);
    if (st == AG_OK) st = make_logits(s, err);
    if (st == AG_OK) st = reserve_attention(s, p.prefill_chunk, err);
    if (st == AG_OK) {
        *out = s;
    } else {
        ag_session_destroy(s);
    }
    return st;
}

void ag_session_destroy(ag_session *s) {
    if (!s) return;
    ag_session_leave_logit_rows(s);
    ag_cache_manager_destroy(s->manager);
    ag_kv_cache_destroy(s->cache);
    ag_layer_state_destroy(s->state);
    ag_speculation_destroy(s->speculation);
    ag_buffer_release(&s->logits.owner);
    ag_free(s->logits.copied);
    ag_free(s);
}

/* A fork shares the cache only with equal protected tokens and equal key rotation. */
static ag_status check_shareable(const ag_session *s, const ag_session *fork, ag_error *err) {
    const uint32_t sinks = ag_kv_cache_params(s->cache)->n_protected;
    const uint32_t requested = ag_kv_cache_params(fork->cache)->n_protected;
    if (requested != sinks) {
        return AG_FAIL(
            err, INVALID,
            "cannot fork: protected_prefix is %u, the session's is %u; they must be equal",
            requested, sinks);
    }
    if (fork->is_long == s->is_long) return AG_OK;
    return AG_FAIL(err, INVALID,
                   "cannot fork: the fork would use other longrope frequencies than the session");
}

/* Creates a session of these parameters that shares the cache of s and copies its state. */
static ag_status fork_session(ag_session *s, const ag_session_params *params, ag_session **out,
                              ag_error *err) {
    *out = NULL;
    AG_TRY(ag_session_settle(s, err));
    AG_TRY(ag_session_fetch_logits(s, err));
    AG_TRY(ag_session_create(s->model, params, out, err));
    ag_session *fork = *out;
    ag_status st = check_shareable(s, fork, err);
    if (st == AG_OK) st = ag_kv_cache_share(fork->cache, s->cache, err);
    if (st == AG_OK) st = ag_layer_state_copy(fork->state, s->state, err);
    if (st == AG_OK) st = ag_cache_manager_copy(fork->manager, s->manager, err);
    fork->is_ragged = ag_session_is_ragged(s);
    ag_cache_manager_set_ragged(fork->manager, fork->is_ragged);
    if (st != AG_OK) {
        ag_session_destroy(fork);
        *out = NULL;
        return st;
    }
    fork->position = s->position;
    fork->logits.location = s->logits.location;
    if (s->logits.location == AG_LOGITS_ON_HOST)
        memcpy(fork->logits.host, s->logits.host, s->model->info.n_vocab * sizeof(float));
    return AG_OK;
}

ag_status ag_session_fork(ag_session *s, ag_session **out, ag_error *err) {
    return fork_session(s, &s->params, out, err);
}

ag_status ag_session_fork_with(ag_session *s, const ag_eviction_params *eviction, ag_session **out,
                               ag_error *err) {
    ag_session_params params = s->params;
    params.eviction = eviction ? *eviction : ag_eviction_defaults();
    return fork_session(s, &params, out, err);
}

bool ag_session_is_ragged(const ag_session *s) {
    return s->is_ragged || ag_cache_manager_is_ragged(s->manager);
}

ag_status ag_session_settle(ag_session *s, ag_error *err) {
    return ag_cache_manager_settle(s->manager, err);
}

void ag_session_reset(ag_session *s) {
    ag_kv_cache_clear(s->cache);
    ag_layer_state_reset(s->state);
    ag_cache_manager_reset(s->manager);
    s->position = 0;
    s->is_ragged = false;
    s->prompt_remaining = 0;
    s->logits.location = AG_LOGITS_ABSENT;
}

ag_status ag_session_truncate(ag_session *s, uint32_t position, ag_error *err) {
    if (position > s->position) {
        return AG_FAIL(err, INVALID,
                       "cannot truncate to position %u: the session is at position %u", position,
                       s->position);
    }
    if (position == s->position) return AG_OK;
    if (position) AG_TRY(ag_session_settle(s, err));
    const uint32_t reachable = ag_kv_cache_oldest_reachable(s->cache);
    if (position >= reachable || !position)
        AG_TRY(ag_layer_state_truncate(s->state, position, err));
    ag_status st = ag_kv_cache_truncate(s->cache, position, err);
    if (st == AG_INVALID) return st; /* nothing has changed */
    s->logits.location = AG_LOGITS_ABSENT;
    s->prompt_remaining = 0;
    AG_TRY(st);
    ag_cache_manager_truncate(s->manager, position);
    if (!position) s->is_ragged = false;
    s->position = position;
    return AG_OK;
}

uint32_t ag_session_oldest_reachable(const ag_session *s) {
    const uint32_t cache = ag_kv_cache_oldest_reachable(s->cache);
    const uint32_t state = ag_layer_state_oldest_reachable(s->state);
    return cache > state ? cache : state;
}

/* Returns the position after the head's last slot; 0 without slots. */
static uint32_t end_of(const ag_kv_cache *c, uint32_t layer, uint32_t head) {
    uint32_t n = ag_kv_cache_n_slots(c, layer, head);
    return n ? ag_kv_cache_position(c, layer, head, n - 1) + 1 : 0;
}

ag_status ag_session_follow_cache(ag_session *s, ag_error *err) {
    if (s->manager)
        return AG_FAIL(err, INVALID, "cannot follow the cache: an eviction policy manages it");
    if (s->state)
        return AG_FAIL(err, INVALID,
                       "cannot follow the cache: layers have a state, which only tokens update");
    const ag_kv_params *kv = ag_kv_cache_params(s->cache);
    uint32_t end = end_of(s->cache, 0, 0);
    for (uint32_t l = 0; l < kv->n_layers; l++) {
        for (uint32_t h = 0; h < kv->layers[l].n_kv_heads; h++) {
            if (end_of(s->cache, l, h) == end) continue;
            return AG_FAIL(
                err, INVALID,
                "cannot follow the cache: layer %u, KV head %u ends before position %u, not %u", l,
                h, end_of(s->cache, l, h), end);
        }
    }
    s->position = end;
    s->logits.location = AG_LOGITS_ABSENT;
    s->prompt_remaining = 0;
    return AG_OK;
}

uint32_t ag_session_position(const ag_session *s) { return s->position; }
ag_kv_cache *ag_session_kv_cache(ag_session *s) { return s->cache; }
const ag_model_info *ag_session_model_info(const ag_session *s) { return &s->model->info; }
const float *ag_session_logits(const ag_session *s) {
    return s->logits.location == AG_LOGITS_ON_HOST ? s->logits.host : NULL;
}

static const ag_eviction_stats no_evictions;

const ag_eviction_stats *ag_session_evictions(const ag_session *s) {
    return s->manager ? ag_cache_manager_stats(s->manager) : &no_evictions;
}

void ag_session_spilled(const ag_session *s, ag_spill_stats *out) {
    ag_spill_stats_of(ag_cache_manager_spill(s->manager), out);
}

const ag_eviction_stats *ag_session_last_evictions(const ag_session *s) {
    return s->manager ? ag_cache_manager_last_stats(s->manager) : &no_evictions;
}

uint32_t ag_session_kv_budget(const ag_session *s) {
    return s->manager ? ag_cache_manager_budget(s->manager) : 0;
}

void ag_session_memory_hint(ag_session *s, ag_pressure level) {
    ag_cache_manager_hint(s->manager, level);
}

ag_status ag_session_begin_turn(ag_session *s, uint32_t position, ag_error *err) {
    if (position < s->position) {
        return AG_FAIL(err, INVALID,
                       "cannot begin a turn at position %u: the session is at position %u",
                       position, s->position);
    }
    return ag_cache_manager_begin_turn(s->manager, position, err);
}

ag_status ag_session_protect(ag_session *s, uint32_t n, ag_error *err) {
    const uint32_t max = ag_kv_cache_protected(s->cache);
    if (n > max) {
        return AG_FAIL(err, INVALID,
                       "cannot protect %u tokens: at most %u are possible (protected_prefix)%s", n,
                       max, s->manager ? "" : "; no token is evicted without a policy");
    }
    ag_kv_cache_protect(s->cache, n);
    ag_cache_manager_prefix_shrank(s->manager);
    return AG_OK;
}

uint32_t ag_session_protected(const ag_session *s) { return ag_kv_cache_protected(s->cache); }

ag_pressure ag_session_memory_pressure(const ag_session *s) {
    return ag_cache_manager_pressure(s->manager);
}

size_t ag_session_max_verify_rows(const ag_session *s) {
    size_t n = ag_batch_invariant_rows(s->model->backend);
    if (n < 2) n = AG_SPECULATE_ROWS;
    const size_t max[] = {s->params.prefill_chunk, ag_session_capacity_left(s),
                          ag_kv_cache_rows_before_expiry(s->cache), AG_ROLLBACK};
    for (size_t i = 0; i < sizeof max / sizeof *max; i++) {
        if (max[i] < n) n = max[i];
    }
    return n > 1 ? ag_cache_manager_verifiable(s->manager, s->position, n) : 1;
}

uint32_t ag_session_capacity_left(const ag_session *s) {
    if (s->manager) return (uint32_t)INT32_MAX - s->position;
    uint32_t slots = ag_kv_cache_free_slots(s->cache);
    uint32_t positions =
        s->position < s->model->info.max_positions ? s->model->info.max_positions - s->position : 0;
    return slots < positions ? slots : positions;
}
