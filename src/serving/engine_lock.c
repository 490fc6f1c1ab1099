/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/engine_lock.h"

#include "core/fail.h"
#include "platform/clock.h"

enum { MAX_CLOSE_S = 30 };

void ag_engine_lock_init(ag_engine_lock *l, ag_mutex *mutex, ag_condition *engine_work) {
    *l = (ag_engine_lock){.mutex = mutex, .engine_work = engine_work};
    ag_condition_init(&l->changed);
}

void ag_engine_lock_destroy(ag_engine_lock *l) { ag_condition_destroy(&l->changed); }

void ag_engine_lock_acquire(void *lock) {
    ag_engine_lock *l = lock;
    if (!l->has_thread) return;
    ag_mutex_lock(l->mutex);
    l->is_requested = true;
    ag_condition_broadcast(l->engine_work);
    while (!l->is_held) ag_condition_wait(&l->changed, l->mutex);
    ag_mutex_unlock(l->mutex);
}

static void hand_back(ag_engine_lock *l) {
    ag_mutex_lock(l->mutex);
    l->is_requested = l->is_held = false;
    ag_condition_broadcast(&l->changed);
    ag_mutex_unlock(l->mutex);
}

void ag_engine_lock_release(void *lock) {
    ag_engine_lock *l = lock;
    if (!l->has_thread) return;
    hand_back(l);
    if (l->before_disk) l->before_disk(l->before_disk_user);
}

void ag_engine_lock_yield(ag_engine_lock *l) {
    ag_mutex_lock(l->mutex);
    if (l->is_requested) {
        l->is_held = true;
        ag_condition_broadcast(&l->changed);
        while (l->is_held) ag_condition_wait(&l->changed, l->mutex);
    }
    ag_mutex_unlock(l->mutex);
}

void ag_engine_lock_wait(ag_engine_lock *l) {
    ag_mutex_lock(l->mutex);
    while (l->has_thread && !l->is_requested) ag_condition_wait(l->engine_work, l->mutex);
    ag_mutex_unlock(l->mutex);
    ag_engine_lock_yield(l);
}

/* ---- the file thread ---- */

/* Returns false if there is no work and there will be none. */
static bool wait_for_files(ag_engine_lock *l) {
    ag_mutex_lock(l->mutex);
    while (!l->has_work && !l->is_ending) ag_condition_wait(&l->changed, l->mutex);
    const bool any = l->has_work;
    l->has_work = false;
    ag_mutex_unlock(l->mutex);
    return any;
}

static void *file_thread_main(void *lock) {
    ag_engine_lock *l = lock;
    while (wait_for_files(l)) {
        ag_engine_lock_acquire(l);
        while (l->run_next(l->run_user)) { /* the engine runs a step between two files */
            hand_back(l);
            ag_engine_lock_acquire(l);
        }
        hand_back(l);
    }
    ag_mutex_lock(l->mutex);
    l->has_ended = true;
    ag_condition_broadcast(l->engine_work);
    ag_mutex_unlock(l->mutex);
    return NULL;
}

void ag_engine_lock_notify(ag_engine_lock *l) {
    ag_mutex_lock(l->mutex);
    l->has_work = true;
    ag_condition_broadcast(&l->changed);
    ag_mutex_unlock(l->mutex);
}

ag_status ag_engine_lock_open(ag_engine_lock *l, bool (*run_next)(void *user), void *user,
                              ag_error *err) {
    l->run_next = run_next;
    l->run_user = user;
    l->has_thread = true;
    const int failed = ag_os_thread_start(&l->thread, file_thread_main, l);
    if (!failed) return AG_OK;
    l->has_thread = false;
    return AG_FAIL(err, NOMEM, "file thread: error %d", failed);
}

void ag_engine_lock_close(ag_engine_lock *l) {
    if (!l->has_thread) return;
    ag_mutex_lock(l->mutex);
    l->write_until = ag_now_s() + MAX_CLOSE_S;
    l->has_work = l->is_ending = true;
    ag_condition_broadcast(&l->changed);
    while (!l->has_ended) {
        while (!l->is_requested && !l->has_ended) ag_condition_wait(l->engine_work, l->mutex);
        if (l->has_ended) break;
        ag_mutex_unlock(l->mutex);
        ag_engine_lock_yield(l);
        ag_mutex_lock(l->mutex);
    }
    ag_mutex_unlock(l->mutex);
    ag_os_thread_join(&l->thread);
    l->has_thread = false;
}
