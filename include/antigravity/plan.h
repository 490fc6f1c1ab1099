/* SPDX-License-Identifier: Apache-2.0 */
/* What a model and its sessions will take of a backend's memory, and what there is of it: known
 * before weights are read. */
#ifndef ANTIGRAVITY_PLAN_H
#define ANTIGRAVITY_PLAN_H

#include <antigravity/session.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ag_memory_plan {
    uint64_t weight_bytes;    /* exactly ag_model_memory_bytes() once the model is loaded */
    uint64_t kv_bytes;        /* full caches of all sessions */
    uint64_t state_bytes;     /* what layers of all sessions keep instead of keys and values */
    uint64_t workspace_bytes; /* activations of a prefill chunk and every session's logits */
    uint64_t eviction_bytes;  /* as in ag_session_plan, of all sessions */
    uint64_t draft_bytes;     /* the same, if all of them generate; 0 where there are no drafts */
    uint64_t total_bytes;     /* of these six */
    uint64_t min_bytes;       /* of these, what cannot be avoided: no cache that an eviction policy
                               * manages, and on the host no cache at all, since it grows as it fills */
    uint64_t largest_bytes;   /* the largest single buffer that cannot be divided */

    char memory[128];          /* whose memory it is: the device's name, or "this machine" */
    bool on_device;            /* it is a device's, taken as buffers are made */
    uint64_t has_bytes;        /* all of it, or the control group's limit; 0: not known */
    uint64_t free_bytes;       /* of these; of a device what this process has not taken */
    uint64_t max_buffer_bytes; /* the largest buffer that the device promises; 0: any */

    ag_dtype weight_type; /* what most weights become */
    bool weights_as_is;   /* each keeps the type that it has in the file */
    bool weights_mixed;   /* they become types of a mix */
} ag_memory_plan;

/* For the model in dir, and n sessions of these parameters. model and session may be NULL.
 * Reads the configuration and the headers only. */
AG_API ag_status ag_memory_plan_make(ag_backend *be, const char *dir, const ag_model_params *model,
                                     const ag_session_params *session, size_t n_sessions,
                                     ag_memory_plan *out, ag_error *err);
/* The same for ag_model_synthetic(). */
AG_API ag_status ag_memory_plan_synthetic(ag_backend *be, const char *shape,
                                          const ag_model_params *model,
                                          const ag_session_params *session, size_t n_sessions,
                                          ag_memory_plan *out, ag_error *err);

/* AG_NOMEM says what is needed and what there is, if min_bytes do not fit: on a device into what
 * is free, on the host into all there is. A buffer beyond what the device promises is asked for
 * and given back. What is not known is not checked. */
AG_API ag_status ag_memory_plan_check(const ag_memory_plan *plan, ag_backend *be, ag_error *err);

#ifdef __cplusplus
}
#endif
#endif
