/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/cache_manager.h"
#include "cache/sys_monitor.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "core/fail.h"
#include "models/model_impl.h"
#include "platform/process_memory.h"
#include "session/session_impl.h"

#include <antigravity/plan.h>
#include <inttypes.h>
#include <stdio.h>

/* ---- available memory ---- */

/* Reads the memory of the machine or, if lower, the limit of the control group. */
static void read_host_memory(ag_memory_plan *plan) {
    ag_memory_signals now = {0};
    ag_sys_monitor *monitor;
    snprintf(plan->memory, sizeof plan->memory, "this machine");
    plan->has_bytes = ag_machine_memory_bytes();
    if (ag_sys_monitor_create(NULL, &monitor, NULL) != AG_OK) return;
    ag_sys_monitor_read(monitor, 0, &now);
    ag_sys_monitor_destroy(monitor);
    plan->free_bytes = now.has_available ? now.available : 0;
    if (!now.has_group || (plan->has_bytes && now.group_limit > plan->has_bytes)) return;
    const uint64_t left = now.group_limit > now.group_used ? now.group_limit - now.group_used : 0;
    snprintf(plan->memory, sizeof plan->memory, "this control group");
    plan->has_bytes = now.group_limit;
    if (!now.has_available || left < plan->free_bytes) plan->free_bytes = left;
}

static void read_memory(ag_backend *be, ag_memory_plan *plan) {
    const ag_memory *mem = ag_backend_memory(be);
    ag_memory_available available = {0};
    if (!mem->ops->available) {
        read_host_memory(plan);
        return;
    }
    mem->ops->available(mem, &available);
    plan->on_device = true;
    plan->has_bytes = available.bytes;
    plan->free_bytes = available.free;
    plan->max_buffer_bytes = available.largest;
    snprintf(plan->memory, sizeof plan->memory, "%s", available.name);
}

/* ---- required memory ---- */

static ag_status add_sessions(ag_backend *be, const ag_model_info *info,
                              const ag_session_params *params, size_t n, ag_memory_plan *plan,
                              ag_error *err) {
    ag_session_plan one;
    size_t largest;
    AG_TRY(ag_session_plan_largest(info, params, &one, &largest, err));
    const uint64_t more_logits = n ? (n - 1) * (uint64_t)info->n_vocab * sizeof(float) : 0;
    if (!n) return AG_OK;
    plan->kv_bytes = n * (uint64_t)one.kv_bytes;
    plan->state_bytes = n * (uint64_t)one.state_bytes;
    plan->eviction_bytes = n * (uint64_t)one.eviction_bytes;
    plan->workspace_bytes = one.workspace_bytes + more_logits;
    const uint64_t tables = one.draft_bytes - ag_logit_rows_bytes(NULL, info);
    const bool has_drafts = ag_batch_invariant_rows(be) > 1;
    if (has_drafts) plan->draft_bytes = n * tables;
    if (has_drafts || n > 1) plan->draft_bytes += ag_logit_rows_bytes(be, info);
    if (largest > plan->largest_bytes) plan->largest_bytes = largest;
    return AG_OK;
}

static ag_status fill_plan(ag_backend *be, const ag_model_info *info,
                           const ag_weights_plan *weights, const ag_session_params *session,
                           size_t n, ag_memory_plan *plan, ag_error *err) {
    plan->weight_bytes = weights->bytes;
    plan->largest_bytes = weights->largest;
    plan->weight_type = info->weight_type;
    plan->weights_as_is = info->as_is;
    plan->weights_mixed = info->mixed;
    AG_TRY(add_sessions(be, info, session, n, plan, err));
    read_memory(be, plan);
    plan->min_bytes = plan->weight_bytes + plan->workspace_bytes + plan->state_bytes;
    plan->total_bytes = plan->min_bytes + plan->kv_bytes + plan->eviction_bytes + plan->draft_bytes;
    const bool managed = session && ag_eviction_is_managed(&session->eviction);
    if (plan->on_device && !managed) plan->min_bytes = plan->total_bytes;
    return AG_OK;
}

ag_status ag_memory_plan_make(ag_backend *be, const char *dir, const ag_model_params *model,
                              const ag_session_params *session, size_t n_sessions,
                              ag_memory_plan *out, ag_error *err) {
    ag_model_info info;
    ag_weights_plan weights;
    *out = (ag_memory_plan){0};
    AG_TRY(ag_model_plan(be, dir, model, &info, &weights, err));
    return fill_plan(be, &info, &weights, session, n_sessions, out, err);
}

ag_status ag_memory_plan_synthetic(ag_backend *be, const char *shape, const ag_model_params *model,
                                   const ag_session_params *session, size_t n_sessions,
                                   ag_memory_plan *out, ag_error *err) {
    ag_model_info info;
    ag_weights_plan weights;
    *out = (ag_memory_plan){0};
    AG_TRY(ag_model_plan_synthetic(be, shape, model, &info, &weights, err));
    return fill_plan(be, &info, &weights, session, n_sessions, out, err);
}

/* ---- check ---- */

static double mib(uint64_t bytes) { return (double)bytes / (1 << 20); }

/* Allocates the largest buffer as a test if it exceeds the driver's stated maximum: many drivers
 * allow more, and the test is cheaper than a failed load. */
static ag_status try_largest(const ag_memory_plan *plan, ag_backend *be, ag_error *err) {
    ag_buffer *buffer;
    if (!plan->max_buffer_bytes || plan->largest_bytes <= plan->max_buffer_bytes) return AG_OK;
    ag_status st = ag_memory_alloc(ag_backend_memory(be), (size_t)plan->largest_bytes,
                                   AG_USAGE_WEIGHTS, &buffer, err);
    ag_buffer_release(&buffer);
    return st;
}

ag_status ag_memory_plan_check(const ag_memory_plan *plan, ag_backend *be, ag_error *err) {
    const uint64_t has = plan->on_device ? plan->free_bytes : plan->has_bytes;
    if (plan->has_bytes && plan->min_bytes > has) {
        char caches[96] = "";
        int at = 0;
        if (plan->min_bytes == plan->total_bytes)
            at = snprintf(caches, sizeof caches, ", KV cache %.1f", mib(plan->kv_bytes));
        if (plan->state_bytes)
            snprintf(caches + at, sizeof caches - (size_t)at, ", state %.1f",
                     mib(plan->state_bytes));
        return AG_FAIL(err, NOMEM,
                       "%.1f MiB are needed (weights %.1f%s, workspace %.1f), but %s has %.1f MiB, "
                       "%.1f of them free",
                       mib(plan->min_bytes), mib(plan->weight_bytes), caches,
                       mib(plan->workspace_bytes), plan->memory, mib(plan->has_bytes),
                       mib(plan->free_bytes));
    }
    return try_largest(plan, be, err);
}
