/* SPDX-License-Identifier: Apache-2.0 */
/* Mask thread: makes the token masks of constrained answers while the engine thread runs the model.
 *
 * The constraint of a request and its clones form a group. Only the mask thread touches the
 * constraints of a group that has jobs. The engine thread reads one mask of it: the mask of an
 * answer whose job has ended. Jobs of a group run in the order of their submission, so the steps
 * that a request takes do not depend on timing. Groups take turns, a job each.
 *
 * A constraint with a trigger needs no job while its text is free: the engine thread watches the
 * tokens. A token that fires the trigger is pending until a job has accepted or rejected it.
 *
 * An answer that needs its mask before it is made is late. Its request sits out decode steps until
 * the mask is made: all its answers go through the model together, or none does. */
#ifndef AG_SERVING_MASKS_H
#define AG_SERVING_MASKS_H

#include "platform/thread.h"

#include <antigravity/constrain.h>
#include <stdbool.h>

typedef struct ag_mask_group ag_mask_group;

typedef struct ag_mask_thread {
    ag_mutex *mutex;           /* the engine's; borrowed; guards all that follows has_thread */
    ag_condition *engine_work; /* wakes the engine thread; borrowed */
    ag_os_thread thread;
    bool has_thread;
    bool is_ending;
    ag_condition work;
    ag_mask_group *first, *last; /* groups with jobs that can run, next one first */
    void (*before_job)(void *user, size_t answer); /* for tests; NULL: none */
    void *before_job_user;
} ag_mask_thread;

/* Initialises the struct; ag_mask_thread_open() starts the thread. */
void ag_mask_thread_init(ag_mask_thread *t, ag_mutex *mutex, ag_condition *engine_work);
void ag_mask_thread_destroy(ag_mask_thread *t);
ag_status ag_mask_thread_open(ag_mask_thread *t, ag_error *err);
/* Stops the thread. Every group must have been released. */
void ag_mask_thread_close(ag_mask_thread *t);

/* Creates the group of n answers. Takes ownership of *root and sets it to NULL, also on failure
 * once the group exists. */
ag_status ag_mask_group_create(ag_mask_thread *t, ag_constraint **root, size_t n,
                               ag_mask_group **out, ag_error *err);
/* Does not wait: a job that is running is interrupted, and the mask thread frees the group. */
void ag_mask_group_release(ag_mask_group *g);
/* Returns the constraint of an answer. The engine thread may use it while the answer has no job. */
ag_constraint *ag_mask_group_constraint(ag_mask_group *g, size_t answer);
/* Returns the bytes of the group's constraints, as of the last job that has ended. */
uint64_t ag_mask_group_bytes(const ag_mask_group *g);

/* Submits the first job of each answer. After a job the group needs memory if its bytes exceed
 * `limit`. */
void ag_mask_group_start(ag_mask_group *g, uint64_t limit);
/* Submits a job: the answer's text continues with `id`, and its next mask is made. A token that a
 * trigger rejects is not an error: see ag_mask_group_has_rejected(). */
void ag_mask_group_submit(ag_mask_group *g, size_t answer, int32_t id);
/* Returns whether the answer's mask is made. */
bool ag_mask_group_is_ready(ag_mask_group *g, size_t answer);
/* Returns whether the answer's newest job, which has ended, rejected its token. */
bool ag_mask_group_has_rejected(const ag_mask_group *g, size_t answer);
/* Fails with the error of the failed job if the answer's mask will not be made. */
ag_status ag_mask_group_failure(ag_mask_group *g, size_t answer, ag_error *err);
/* Returns whether no job runs until the limit is raised. */
bool ag_mask_group_needs_memory(ag_mask_group *g);
/* Sets a higher limit, so that jobs of the group run again. */
void ag_mask_group_raise_limit(ag_mask_group *g, uint64_t limit);
/* Returns whether a job runs or can run. The caller holds the mutex. */
bool ag_mask_group_is_working(const ag_mask_group *g);

#endif
