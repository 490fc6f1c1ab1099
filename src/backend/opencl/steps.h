/* SPDX-License-Identifier: Apache-2.0 */
/* Stages and mailboxes for tokens in one launch (token.h): an entry for each session of each model
 * that decodes here, so that sessions and models that take turns upload nothing anew. A session is
 * known by its program, its logits and its cache's first block. With more sessions than entries the
 * session that was used longest ago loses its entry. A session whose logits are gone loses it when
 * the next step begins. */
#ifndef AG_OPENCL_STEPS_H
#define AG_OPENCL_STEPS_H

#include "backend/opencl/token.h"

enum { AG_CL_STEP_ENTRIES = 16 };

typedef struct ag_cl_step_entry {
    uint64_t used; /* by the clock; 0: free */
    const ag_program *program;
    ag_buffer *logits; /* borrowed, while it lives: see ag_cl_backend.lost */
    size_t logits_at;
    const ag_kv_block *blocks; /* where the cache keeps its table: never followed */
    ag_cl_token token;
} ag_cl_step_entry;

struct ag_cl_steps {
    ag_cl_step_entry entries[AG_CL_STEP_ENTRIES];
    uint64_t clock;
};

/* The slot of the same name. */
ag_status ag_cl_run_program(ag_backend *b, const ag_step *step, bool *taken);

/* Releases the entries of sessions that are gone. */
void ag_cl_steps_sweep(ag_cl_backend *cl);
void ag_cl_steps_close(ag_cl_backend *cl);

#endif
