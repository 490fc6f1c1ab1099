/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/memory_budget.h"

#include "cache/eviction/budget.h"
#include "constrain/constraint.h"
#include "core/backend_ops.h"
#include "core/block_pool.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "models/model_impl.h"
#include "platform/process_memory.h"
#include "session/session_impl.h"

#include <antigravity/process.h>
#include <math.h>
#include <string.h>

enum {
    /* Heap fragmentation, lists and texts of requests, stacks. */
    MARGIN = 4 << 20,
    /* Part of MARGIN that covers waiting requests. */
    WAITING_MARGIN = 2 << 20,
    /* Per request: cache tables, lists of the sampler, events. */
    REQUEST_MARGIN = 128 << 10,
    /* Growth of a request's constraint that is reserved at a time, and that of each answer's clone.
     */
    CONSTRAINT_STEP = 2 << 20,
    CONSTRAINT_OWN = 64 << 10,
    /* Heap fragmentation after loading. */
    LOAD_MARGIN = 1 << 20,
    /* Packed activations and partial sums of backend operations. */
    OPERATIONS_MARGIN = 24 << 20,
};

uint64_t ag_memory_budget_used(const ag_memory_budget *b) {
    ag_memory_usage usage;
    uint64_t bytes = 0;
    if (ag_process_memory(&usage) == AG_OK) bytes = usage.anonymous + ag_process_shared_bytes();
    const ag_memory *mem = ag_backend_memory(b->backend);
    /* With zero_copy the process memory includes device buffers. */
    if (mem->ops->available && !b->params->backend.zero_copy) bytes += ag_memory_bytes_in_use(mem);
    return bytes;
}

/* ---- reserved and not used yet ---- */

/* Returns the cache bytes of one of a request's sessions. Blocks that sessions share count with the
 * first one, unless a policy moves slots: then the session copies them. */
static uint64_t cache_bytes(const ag_served_request *r, ag_session *session, bool first) {
    const ag_kv_cache *cache = ag_session_kv_cache(session);
    const uint64_t bytes = ag_kv_cache_memory_usage_bytes(cache);
    return first && !r->is_managed ? bytes : bytes - ag_kv_cache_shared_bytes(cache);
}

static uint64_t kv_in_use(const ag_served_request *r) {
    uint64_t bytes = 0;
    if (r->session) bytes += cache_bytes(r, r->session, true);
    for (size_t i = 0, n = 0; r->answers && i < r->p.n_answers; i++) {
        ag_session *session = r->answers[i].session;
        if (session) bytes += cache_bytes(r, session, n++ == 0);
    }
    return bytes;
}

/* Returns the bytes of the request's constraint: masks and states, which grow with the text. */
static uint64_t constraint_in_use(const ag_served_request *r) {
    if (r->masks) return ag_mask_group_bytes(r->masks);
    return r->p.constraint ? ag_constraint_shared_bytes(r->p.constraint) : 0;
}

static uint64_t unused_part(uint64_t reserved, uint64_t in_use) {
    return reserved > in_use ? reserved - in_use : 0;
}

/* Returns the bytes of the model's workspace that are not resident yet. */
static uint64_t outstanding_scratch(const ag_memory_budget *b, const ag_served_model *m) {
    const uint64_t rows = b->params->step_rows;
    if (!m->model || m->touched_rows >= rows) return 0;
    return m->scratch_remaining * (rows - m->touched_rows) / rows;
}

/* Returns the bytes that are reserved and not used yet: of running requests, of a reload, of a
 * load, and of workspaces that are not resident. */
static uint64_t outstanding(const ag_memory_budget *b) {
    uint64_t bytes = 0;
    for (const ag_served_request *r = b->queue->running; r; r = r->next) {
        bytes += r->fixed_reserved + unused_part(r->kv_reserved, kv_in_use(r)) +
                 unused_part(r->constraint_reserved, constraint_in_use(r));
    }
    bytes += b->prefixes->files.fetch.file ? b->prefixes->files.fetch.bytes : 0;
    bytes += ag_model_loader_outstanding(b->loader);
    for (const ag_served_model *m = b->models->first; m; m = m->next)
        bytes += outstanding_scratch(b, m);
    return bytes;
}

/* Returns the slots that a session of n_tokens needs at most. */
static uint32_t slots_needed(const ag_session_params *p, uint64_t n_prompt, uint64_t n_tokens,
                             uint32_t budget) {
    uint64_t slots = n_tokens;
    if (budget) {
        const bool bounded = p->eviction.prefill == AG_KV_PREFILL_BOUNDED;
        uint64_t max = (uint64_t)budget + p->eviction.slack + p->prefill_chunk;
        if (!bounded && n_prompt + 1 > max) max = n_prompt + 1;
        if (max < slots) slots = max;
    }
    slots = (slots + 127) / 128 * 128 + 128; /* + 128: one block that is copied on write */
    /* Heads of different lengths end in different blocks. */
    if (budget && p->eviction.head_budget != AG_HEAD_BUDGET_EVEN) slots += 128;
    return slots > p->max_seq_len ? p->max_seq_len : (uint32_t)slots;
}

static uint32_t eviction_budget(const ag_session_params *p, uint32_t n_default) {
    const ag_eviction_params *e = &p->eviction;
    if (!ag_eviction_is_managed(e)) return 0;
    if (e->budget_bytes || e->budget_ratio > 0) return n_default;
    if (e->budget_tokens) return e->budget_tokens;
    if (e->policy->default_budget) return e->policy->default_budget(e->policy->user, e);
    return 1024;
}

/* Plans a cache for n_tokens, including the growth of the device's block pool. */
static ag_status plan_kv(const ag_memory_budget *b, const ag_served_request *r,
                         const ag_session_params *params, uint64_t n_tokens, ag_session_plan *plan,
                         ag_error *err) {
    ag_session_params p = *params;
    const uint32_t budget = eviction_budget(&p, p.max_seq_len);
    p.max_seq_len = slots_needed(&p, r->p.n_prompt, n_tokens, budget);
    p.eviction.budget_ratio = 0; /* it relates to the original max_seq_len */
    if (budget && p.eviction.budget_tokens >= p.max_seq_len)
        p.eviction.budget_tokens = p.max_seq_len - 1;
    AG_TRY(ag_session_plan_memory(&r->p.model->info, &p, plan, err));
    plan->kv_bytes = ag_block_pool_max_bytes(ag_backend_memory(b->backend), plan->kv_bytes);
    return AG_OK;
}

static uint64_t max_new_tokens(const ag_served_request *r) {
    return r->p.max_tokens >= 0 ? (uint64_t)r->p.max_tokens : AG_SERVING_EXTEND_TOKENS;
}

ag_status ag_memory_budget_plan_request(const ag_memory_budget *b, ag_served_request *r,
                                        ag_error *err) {
    const ag_session_params *params = &r->p.session;
    const uint64_t n_vocab = r->p.model->info.n_vocab, n = r->p.n_answers, more = max_new_tokens(r);
    ag_session_plan one, answer, full;
    r->is_managed = params->eviction.policy || params->eviction.memory.threshold_bytes;
    AG_TRY(plan_kv(b, r, params, r->p.n_prompt + more, &one, err));
    AG_TRY(plan_kv(b, r, params, r->is_managed ? r->p.n_prompt + more : more, &answer, err));
    r->kv_reserved = one.kv_bytes + (n - 1) * (uint64_t)answer.kv_bytes;
    /* A policy's arrays have the size of the full context. */
    AG_TRY(ag_session_plan_memory(&r->p.model->info, params, &full, err));
    r->fixed_reserved = n * (one.state_bytes + full.eviction_bytes + n_vocab * sizeof(float) +
                             ag_sampler_bytes(&r->p.sampling, n_vocab) + REQUEST_MARGIN);
    r->constraint_reserved =
        r->p.constraint ? constraint_in_use(r) + CONSTRAINT_STEP + n * CONSTRAINT_OWN : 0;
    if (!ag_model_needs_prompt_copies(&r->p.model->info)) return AG_OK;
    r->kv_reserved += one.kv_bytes;
    r->fixed_reserved += one.state_bytes + n_vocab * sizeof(float);
    return AG_OK;
}

/* ---- reserving ---- */

static ag_served_model *idle_model(const ag_memory_budget *b, const ag_served_model *keep) {
    ag_served_model *oldest = NULL;
    for (ag_served_model *m = b->models->first; m; m = m->next) {
        if (!m->model || m->n_requests || m == keep) continue;
        if (!oldest || m->used_at < oldest->used_at) oldest = m;
    }
    return oldest;
}

/* Evicts a cached session, or unloads an idle model. Returns false if there is neither. */
static bool free_something(ag_memory_budget *b, const ag_served_model *keep) {
    if (ag_prefix_cache_evict_one(b->prefixes)) return true;
    ag_served_model *m = b->keeps_weights ? NULL : idle_model(b, keep);
    if (!m || ag_prefix_store_has(&b->prefixes->store, m)) return false;
    ag_served_model_unload(m);
    return true;
}

/* Returns the bytes that free_something() could free at most. */
static uint64_t freeable_bytes(const ag_memory_budget *b, const ag_served_model *keep) {
    uint64_t bytes = ag_prefix_cache_bytes(b->prefixes);
    if (b->keeps_weights) return bytes;
    for (const ag_served_model *m = b->models->first; m; m = m->next) {
        if (m->model && !m->n_requests && m != keep)
            bytes += m->base_bytes + outstanding_scratch(b, m);
    }
    return bytes;
}

/* Gives a pressure hint to running sessions: their policy may watch memory. */
static void warn_sessions(ag_memory_budget *b, bool is_short) {
    const ag_pressure level = is_short ? AG_PRESSURE_CRITICAL : AG_PRESSURE_NORMAL;
    if (is_short == b->has_warned) return;
    b->has_warned = is_short;
    for (ag_served_request *r = b->queue->running; r; r = r->next) {
        if (r->session) ag_session_memory_hint(r->session, level);
        for (size_t i = 0; i < r->p.n_answers; i++) {
            if (r->answers[i].session) ag_session_memory_hint(r->answers[i].session, level);
        }
    }
}

static double in_mib(uint64_t bytes) { return (double)bytes / (1 << 20); }

/* Returns the bytes to set aside for requests that will wait. */
static uint64_t waiting_reserve(const ag_memory_budget *b, uint64_t limit) {
    const uint64_t max = ag_request_queue_max_bytes(limit), waiting = b->queue->waiting_bytes;
    return max - (waiting > WAITING_MARGIN ? waiting : WAITING_MARGIN);
}

/* Buffers of the file thread. */
enum { FILES_MARGIN = 2 << 20 };

/* Returns the bytes to set aside: margins, waiting requests, and the part of caller_reserve that
 * the caller does not use yet. */
static uint64_t set_aside_bytes(const ag_memory_budget *b) {
    const ag_serving_params *p = b->params;
    const uint64_t in_use = p->caller_bytes ? p->caller_bytes(p->caller_user) : 0;
    return MARGIN + (b->prefixes->files.dir ? FILES_MARGIN : 0) +
           waiting_reserve(b, p->memory_limit) +
           (p->caller_reserve > in_use ? p->caller_reserve - in_use : 0);
}

/* Returns a memory limit that would suffice, in MiB, rounded up to a tenth. A larger limit sets
 * more aside for waiting requests and, in proportion, for the caller. */
static double sufficient_mib(const ag_memory_budget *b, uint64_t needed) {
    const double mib = 1 << 20, limit = (double)b->params->memory_limit;
    const double waiting = (double)waiting_reserve(b, b->params->memory_limit);
    const double reserve = (double)b->params->caller_reserve;
    double enough = (double)needed;
    for (int i = 0; i < 32; i++)
        enough = (double)needed - waiting + (double)waiting_reserve(b, (uint64_t)enough) +
                 reserve / limit * (enough - limit);
    return ceil(enough / mib * 10) / 10;
}

uint64_t ag_memory_budget_shortfall(const ag_memory_budget *b, uint64_t bytes) {
    const uint64_t limit = b->params->memory_limit;
    if (!limit) return 0;
    const uint64_t needed = ag_memory_budget_used(b) + outstanding(b) + set_aside_bytes(b) + bytes;
    return needed > limit ? needed - limit : 0;
}

ag_status ag_memory_budget_reserve(ag_memory_budget *b, uint64_t bytes, const ag_served_model *keep,
                                   const char *what, ag_error *err) {
    const uint64_t limit = b->params->memory_limit;
    if (!limit) return AG_OK;
    for (;;) {
        const uint64_t used = ag_memory_budget_used(b), reserved = outstanding(b),
                       set_aside = set_aside_bytes(b);
        const uint64_t needed = used + reserved + set_aside + bytes;
        const bool fits = needed <= limit;
        if (fits) {
            warn_sessions(b, false);
            return AG_OK;
        }
        const uint64_t writing = ag_prefix_store_writing_bytes(&b->prefixes->store);
        if (b->prefixes->store.n_writing && needed <= limit + writing)
            return AG_FAIL(err, BUSY,
                           "%s must wait: %.1f MiB of cached sessions are being written to disk",
                           what, in_mib(writing));
        if (needed - limit <= freeable_bytes(b, keep) + MARGIN && free_something(b, keep)) continue;
        if (b->prefixes->store.n_writing)
            return AG_FAIL(err, BUSY, "%s must wait: cached sessions are being written to disk",
                           what);
        warn_sessions(b, true);
        return AG_FAIL(err, NOMEM,
                       "%s needs %.1f MiB: %.1f are used, %.1f reserved and %.1f set aside, of a "
                       "memory limit of %.1f; a limit of %.1f MiB suffices",
                       what, in_mib(bytes), in_mib(used), in_mib(reserved), in_mib(set_aside),
                       in_mib(limit), sufficient_mib(b, needed));
    }
}

/* Returns the bytes of a request with a context of at most 256 tokens. */
static uint64_t min_request_bytes(const ag_served_model *m, ag_error *err) {
    ag_session_params p = m->session;
    ag_session_plan plan;
    if (p.max_seq_len > 256) p.max_seq_len = 256;
    p.eviction = ag_eviction_defaults();
    if (ag_session_plan_memory(&m->info, &p, &plan, err) != AG_OK) return 0;
    return plan.kv_bytes + plan.state_bytes + 4 * (uint64_t)m->info.n_vocab * sizeof(float) +
           REQUEST_MARGIN + LOAD_MARGIN;
}

ag_status ag_memory_budget_reserve_weights(ag_memory_budget *b, ag_served_model *m, ag_error *err) {
    const uint64_t min = min_request_bytes(m, err);
    if (!min) return AG_INVALID;
    return ag_memory_budget_reserve(b, m->weight_bytes + m->scratch_bytes + min, m, m->name, err);
}

uint64_t ag_memory_budget_scratch(const ag_memory_budget *b, const ag_served_model *m,
                                  ag_error *err) {
    const size_t max = b->params->max_running;
    const size_t rows = b->params->step_rows > max ? b->params->step_rows : max;
    ag_session_plan plan;
    ag_session_params p = m->session;
    p.prefill_chunk = ag_prompt_chunk(b->params);
    if (ag_session_plan_memory(&m->info, &p, &plan, err) != AG_OK) return 0;
    const ag_workspace_shape shape = ag_model_workspace_shape(&m->info, rows, max);
    return ag_workspace_bytes(&shape) + ag_logit_rows_bytes(b->backend, &m->info) +
           OPERATIONS_MARGIN;
}

/* Reserves memory for a running request: it cannot be deferred, so the engine waits until queued
 * sessions have been written. */
static ag_status reserve_after_writes(ag_memory_budget *b, uint64_t bytes,
                                      const ag_served_model *keep, const char *what,
                                      ag_error *err) {
    ag_status st = ag_memory_budget_reserve(b, bytes, keep, what, err);
    while (st == AG_BUSY) {
        ag_engine_lock_wait(b->lock);
        st = ag_memory_budget_reserve(b, bytes, keep, what, err);
    }
    return st;
}

ag_status ag_memory_budget_extend_constraint(ag_memory_budget *b, ag_served_request *r,
                                             ag_error *err) {
    if (!b->params->memory_limit || !r->masks) return AG_OK;
    const uint64_t in_use = constraint_in_use(r);
    if (in_use + CONSTRAINT_STEP / 2 <= r->constraint_reserved) return AG_OK;
    AG_TRY(reserve_after_writes(b, CONSTRAINT_STEP, r->p.model, "the constraint", err));
    r->constraint_reserved =
        (in_use > r->constraint_reserved ? in_use : r->constraint_reserved) + CONSTRAINT_STEP;
    return AG_OK;
}

uint64_t ag_memory_budget_constraint_limit(const ag_memory_budget *b, const ag_served_request *r) {
    return b->params->memory_limit ? r->constraint_reserved - CONSTRAINT_STEP / 2 : UINT64_MAX;
}

bool ag_memory_budget_extend_answer(ag_memory_budget *b, ag_answer *a) {
    ag_served_request *r = a->request;
    const ag_session_params *params = &r->p.session;
    ag_session_plan before, after;
    const uint64_t n = r->p.n_prompt + a->n_reserved;
    if (plan_kv(b, r, params, n, &before, NULL) != AG_OK ||
        plan_kv(b, r, params, n + AG_SERVING_EXTEND_TOKENS, &after, NULL) != AG_OK)
        return false;
    const uint64_t more = after.kv_bytes > before.kv_bytes ? after.kv_bytes - before.kv_bytes : 0;
    if (reserve_after_writes(b, more, r->p.model, "the answer", NULL) != AG_OK) return false;
    r->kv_reserved += more;
    a->n_reserved += AG_SERVING_EXTEND_TOKENS;
    return true;
}
