/* SPDX-License-Identifier: Apache-2.0 */
/* Engine lock: lets the file thread use sessions, models and cached prefixes, which otherwise only
 * the engine thread may touch.
 *
 * The file thread acquires the lock to save or to restore a session, and releases it around disk
 * I/O. The engine thread yields between two steps, and while it waits for memory that a save will
 * free. Every field below `engine_work` is guarded by `mutex`, unless it says otherwise. */
#ifndef AG_SERVING_ENGINE_LOCK_H
#define AG_SERVING_ENGINE_LOCK_H

#include "platform/thread.h"

#include <antigravity/status.h>
#include <stdbool.h>

typedef struct ag_engine_lock {
    ag_mutex *mutex;           /* the engine's; borrowed */
    ag_condition *engine_work; /* wakes the engine thread; borrowed */
    ag_os_thread thread;
    bool has_thread; /* changes only while neither thread runs */
    bool has_work, is_ending, has_ended;
    bool is_requested, is_held; /* wanted by, in the hands of the file thread */
    ag_condition changed;
    double write_until;           /* deadline of the last writes, in ag_now_s(); 0: none */
    bool (*run_next)(void *user); /* the file thread's work; false: nothing to do */
    void *run_user;
    void (*before_disk)(void *user); /* for tests, called after a release; NULL: none */
    void *before_disk_user;
} ag_engine_lock;

/* Initialises the lock without a file thread. `mutex` and `engine_work` are borrowed. */
void ag_engine_lock_init(ag_engine_lock *l, ag_mutex *mutex, ag_condition *engine_work);
void ag_engine_lock_destroy(ag_engine_lock *l);

/* Starts the file thread. It calls run_next(user) with the lock, until that returns false, each
 * time it is notified. */
ag_status ag_engine_lock_open(ag_engine_lock *l, bool (*run_next)(void *user), void *user,
                              ag_error *err);
/* Stops the file thread after its last work, for which it has 30 seconds. The engine thread must
 * have ended. */
void ag_engine_lock_close(ag_engine_lock *l);
/* Wakes the file thread: there is something to save or to restore. */
void ag_engine_lock_notify(ag_engine_lock *l);

/* File thread. Acquire the lock, waiting until the engine thread yields, and release it. `lock` is
 * an ag_engine_lock. Without a file thread they do nothing. */
void ag_engine_lock_acquire(void *lock);
void ag_engine_lock_release(void *lock);

/* Engine thread. If the file thread wants the lock, waits until it has released it. */
void ag_engine_lock_yield(ag_engine_lock *l);
/* The same, but first waits until the file thread wants the lock. */
void ag_engine_lock_wait(ag_engine_lock *l);

#endif
