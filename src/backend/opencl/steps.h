/* SPDX-License-Identifier: Apache-2.0 */
/* What is kept for steps of decoding: for each session of each model that decodes here its
 * recording (recording.h) and its program for a token in one launch (token.h), so that sessions and
 * models taking turns neither record nor upload anew. A step belongs to a session that is known by
 * its model, its logits and its cache's first block. Of more sessions than there are entries the
 * one that was used longest ago loses its entry; one whose memory is gone loses it when the next
 * step begins. */
#ifndef AG_OPENCL_STEPS_H
#define AG_OPENCL_STEPS_H

#include "backend/opencl/recording.h"
#include "backend/opencl/token.h"

enum { AG_CL_STEP_ENTRIES = 16 };

typedef struct ag_cl_step_entry {
    uint64_t used; /* by the clock; 0: free */
    const ag_decode_layer *model;
    ag_buffer *logits; /* borrowed, while it lives: see ag_cl_backend.lost */
    size_t logits_at;
    const ag_kv_block *blocks; /* where the cache keeps its table: never followed */
    ag_cl_recording recording;
    ag_cl_token token;
} ag_cl_step_entry;

struct ag_cl_steps {
    ag_cl_step_entry entries[AG_CL_STEP_ENTRIES];
    uint64_t clock;
    ag_cl_launch_list choice; /* what finds the best of a row of logits (ops_top_k.c) */
    ag_cl_step_entry *newest; /* of the last step */
};

/* Bits of ag_cl_backend.lost and ag_cl_buffer.named_by: an entry's recording names the buffer, an
 * entry is known by it, the launches of a choice name it. */
static inline uint64_t ag_cl_recording_bit(size_t entry) { return (uint64_t)1 << entry; }
static inline uint64_t ag_cl_key_bit(size_t entry) {
    return (uint64_t)1 << (AG_CL_STEP_ENTRIES + entry);
}
#define AG_CL_CHOICE_BIT ((uint64_t)1 << (2 * AG_CL_STEP_ENTRIES))

/* The slots of the same names. */
ag_status ag_cl_repeat_step(ag_backend *b, const ag_decode_step *step, ag_operations_fn operations,
                            void *user, ag_repeat *done);
ag_status ag_cl_decode_step(ag_backend *b, const ag_decode_step *step, bool *taken);

/* For the launches that find the best of a row; NULL: they are not kept. */
ag_cl_launch_list *ag_cl_step_choice(ag_cl_backend *cl);
/* Lets go of launches and programs whose buffers are gone, if there are any. */
void ag_cl_steps_sweep(ag_cl_backend *cl);
void ag_cl_steps_close(ag_cl_backend *cl);

#endif
