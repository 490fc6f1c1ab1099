/* SPDX-License-Identifier: Apache-2.0 */
/* Device steps: an entry with stages and mailboxes (token.h) for each session that decodes on this
 * backend, so that alternating sessions upload nothing again. A session is identified by its
 * program, its logits and the first block of its cache. If all entries are used, the least recently
 * used one is replaced. An entry whose logits were freed is released when the next step starts. */
#ifndef AG_OPENCL_STEPS_H
#define AG_OPENCL_STEPS_H

#include "backend/opencl/token.h"

enum { AG_CL_STEP_ENTRIES = 16 };

typedef struct ag_cl_step_entry {
    uint64_t used; /* value of the clock at the last use; 0: free */
    const ag_program *program;
    ag_buffer *logits; /* borrowed until it is freed: see ag_cl_backend.lost */
    size_t logits_at;
    const ag_kv_block *blocks; /* address of the cache's table, never dereferenced */
    ag_cl_token token;
} ag_cl_step_entry;

struct ag_cl_steps {
    ag_cl_step_entry entries[AG_CL_STEP_ENTRIES];
    uint64_t clock;
};

/* Implements run_program. */
ag_status ag_cl_run_program(ag_backend *b, const ag_step *step, bool *taken);

/* Releases entries whose logits were freed. */
void ag_cl_steps_sweep(ag_cl_backend *cl);
void ag_cl_steps_close(ag_cl_backend *cl);

#endif
