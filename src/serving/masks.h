/* SPDX-License-Identifier: Apache-2.0 */
/* Mask thread: makes the token masks of constrained answers while the engine thread runs the model.
 *
 * The constraint of a request and its clones form a group. Only the mask thread touches the
 * constraints of a group that has jobs. The engine thread reads one mask of it: the mask of an
 * answer whose job has ended. Jobs of a group run in the order of their submission, so the steps
 * that a request takes do not depend on timing. Groups take turns, a job each.
 *
 * An answer that needs its mask before it is made is late. Its request sits out decode steps until
 * the mask is there: all its answers go through the model together, or none does. */
#ifndef AG_SERVING_MASKS_H
#define AG_SERVING_MASKS_H

#include "platform/thread.h"

#include <antigravity/constrain.h>
#include <antigravity/serving.h>

typedef struct ag_answer ag_answer;
typedef struct ag_served_request ag_served_request;
typedef struct ag_mask_group ag_mask_group;

typedef struct ag_mask_thread {
    ag_os_thread thread;
    bool has_thread, is_ending; /* is_ending: under the engine's lock, as all below */
    ag_condition work;
    ag_mask_group *first, *last; /* groups with jobs that can run, next one first */
    void (*before_job)(void *user, size_t answer); /* for tests; NULL: none */
    void *before_job_user;
} ag_mask_thread;

ag_status ag_masks_open(ag_serving *s, ag_error *err);
/* Every group must have been released. */
void ag_masks_close(ag_serving *s);

/* Makes r->masks of r->p.constraint, which becomes the group's, with a clone for each answer. */
ag_status ag_mask_group_create(ag_served_request *r, ag_error *err);
/* Does not wait: a job that is running is interrupted, and the mask thread frees the group. */
void ag_mask_group_release(ag_serving *s, ag_mask_group *g);
/* Returns the constraint of an answer, for its sampler. */
ag_constraint *ag_mask_group_constraint(ag_mask_group *g, size_t answer);
/* Returns the bytes of the group's constraints, as of the last job that has ended. */
uint64_t ag_mask_group_bytes(const ag_mask_group *g);

/* Submits the first job of each answer. */
void ag_masks_start(ag_serving *s, ag_served_request *r);
/* Submits a job: the answer's text continues with `id`, and its next mask is made. */
void ag_masks_submit(ag_serving *s, const ag_answer *a, int32_t id);
/* Chooses the next token of an answer whose logits are there, or marks the answer as late. */
ag_status ag_masks_choose(ag_serving *s, ag_answer *a, ag_error *err);
/* Chooses the next tokens of late answers whose masks are there. Fails if a mask has failed. */
ag_status ag_masks_choose_late(ag_serving *s, ag_served_request *r, ag_error *err);
/* With the engine's lock: returns true if every running request waits for the mask thread. */
bool ag_masks_block_all(const ag_serving *s);

#endif
