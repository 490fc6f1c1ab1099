/* SPDX-License-Identifier: Apache-2.0 */
/* Memory plans: the memory that a model and its sessions will need, and the memory that a backend
 * has. Both are known before weights are read. */
#ifndef ANTIGRAVITY_PLAN_H
#define ANTIGRAVITY_PLAN_H

#include <antigravity/session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ag_memory_plan {
    uint64_t weight_bytes;    /* equals ag_model_memory_bytes() of the loaded model */
    uint64_t kv_bytes;        /* full caches of all sessions */
    uint64_t state_bytes;     /* states of layers without keys and values, all sessions */
    uint64_t workspace_bytes; /* activations of a prefill chunk and logits of all sessions */
    uint64_t eviction_bytes;  /* as in ag_session_plan, all sessions */
    uint64_t draft_bytes;     /* as in ag_session_plan, all sessions; on devices, whose drafts
                               * are off by default, rows of logits (16 or 64) if there are several
                               * sessions */
    uint64_t total_bytes;     /* sum of these six */
    uint64_t min_bytes;       /* total_bytes without caches that a policy manages; on the host
                               * without all caches, since they grow as they fill */
    uint64_t largest_bytes;   /* largest buffer that cannot be divided */

    char memory[128];          /* the device's name, or "this machine" */
    bool on_device;            /* device memory, allocated as buffers are created */
    uint64_t has_bytes;        /* size of the memory, or the control group's limit; 0: unknown */
    uint64_t free_bytes;       /* free part of it; on a device, what this process has not used */
    uint64_t max_buffer_bytes; /* largest buffer that the device guarantees; 0: any size */

    ag_dtype weight_type; /* most frequent type in memory */
    bool weights_as_is;   /* every matrix keeps its type of the file */
    bool weights_mixed;   /* matrices are converted to AG_WEIGHTS_MIX */
} ag_memory_plan;

/* Plans the model in dir and n sessions with these parameters. model and session may be NULL.
 * Reads the configuration and the headers only. */
AG_API ag_status ag_memory_plan_make(ag_backend *be, const char *dir, const ag_model_params *model,
                                     const ag_session_params *session, size_t n_sessions,
                                     ag_memory_plan *out, ag_error *err);
/* Plans a model of ag_model_synthetic(). */
AG_API ag_status ag_memory_plan_synthetic(ag_backend *be, const char *shape,
                                          const ag_model_params *model,
                                          const ag_session_params *session, size_t n_sessions,
                                          ag_memory_plan *out, ag_error *err);

/* Fails with AG_NOMEM, the needed and the available bytes, if min_bytes exceed free_bytes (device)
 * or has_bytes (host). A buffer above max_buffer_bytes is allocated and freed as a test. Unknown
 * sizes are not checked. */
AG_API ag_status ag_memory_plan_check(const ag_memory_plan *plan, ag_backend *be, ag_error *err);

#ifdef __cplusplus
}
#endif
#endif
