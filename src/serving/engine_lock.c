/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that writes and reads files of sessions, and how it takes turns with the engine's. */
#include "core/fail.h"
#include "platform/clock.h"
#include "serving/serving_impl.h"

enum { MAX_CLOSE_S = 30 };

void ag_engine_lock_acquire(void *user) {
    ag_serving *s = user;
    ag_engine_lock *f = &s->engine_lock;
    if (!f->has_thread) return;
    ag_mutex_lock(&s->lock);
    f->is_requested = true;
    ag_condition_broadcast(&s->work);
    while (!f->is_held) ag_condition_wait(&f->changed, &s->lock);
    ag_mutex_unlock(&s->lock);
}

static void release_lock(ag_serving *s) {
    ag_engine_lock *f = &s->engine_lock;
    ag_mutex_lock(&s->lock);
    f->is_requested = f->is_held = false;
    ag_condition_broadcast(&f->changed);
    ag_mutex_unlock(&s->lock);
}

void ag_engine_lock_release(void *user) {
    ag_serving *s = user;
    if (!s->engine_lock.has_thread) return;
    release_lock(s);
    if (s->engine_lock.before_disk) s->engine_lock.before_disk(s->engine_lock.before_disk_user);
}

void ag_engine_lock_yield(ag_serving *s) {
    ag_engine_lock *f = &s->engine_lock;
    ag_mutex_lock(&s->lock);
    if (f->is_requested) {
        f->is_held = true;
        ag_condition_broadcast(&f->changed);
        while (f->is_held) ag_condition_wait(&f->changed, &s->lock);
    }
    ag_mutex_unlock(&s->lock);
}

void ag_engine_lock_wait(ag_serving *s) {
    ag_engine_lock *f = &s->engine_lock;
    ag_mutex_lock(&s->lock);
    while (f->has_thread && !f->is_requested) ag_condition_wait(&s->work, &s->lock);
    ag_mutex_unlock(&s->lock);
    ag_engine_lock_yield(s);
}

/* ---- the thread ---- */

/* false: there is none, and there will be none. */
static bool wait_for_work(ag_serving *s) {
    ag_engine_lock *f = &s->engine_lock;
    ag_mutex_lock(&s->lock);
    while (!f->has_work && !f->is_ending) ag_condition_wait(&f->changed, &s->lock);
    const bool any = f->has_work;
    f->has_work = false;
    ag_mutex_unlock(&s->lock);
    return any;
}

static void *files_main(void *user) {
    ag_serving *s = user;
    while (wait_for_work(s)) {
        ag_engine_lock_acquire(s);
        while (ag_prefix_files_run_next(s)) { /* others come between two of them */
            release_lock(s);
            ag_engine_lock_acquire(s);
        }
        release_lock(s);
    }
    ag_mutex_lock(&s->lock);
    s->engine_lock.has_ended = true;
    ag_condition_broadcast(&s->work);
    ag_mutex_unlock(&s->lock);
    return NULL;
}

void ag_engine_lock_notify(ag_serving *s) {
    ag_mutex_lock(&s->lock);
    s->engine_lock.has_work = true;
    ag_condition_broadcast(&s->engine_lock.changed);
    ag_mutex_unlock(&s->lock);
}

ag_status ag_engine_lock_open(ag_serving *s, ag_error *err) {
    s->engine_lock.has_thread = true;
    const int failed = ag_os_thread_start(&s->engine_lock.thread, files_main, s);
    if (!failed) return AG_OK;
    s->engine_lock.has_thread = false;
    return AG_FAIL(err, NOMEM, "file thread: error %d", failed);
}

void ag_engine_lock_close(ag_serving *s) {
    ag_engine_lock *f = &s->engine_lock;
    if (!f->has_thread) return;
    ag_mutex_lock(&s->lock);
    f->write_until = ag_now_s() + MAX_CLOSE_S;
    f->has_work = f->is_ending = true;
    ag_condition_broadcast(&f->changed);
    while (!f->has_ended) {
        while (!f->is_requested && !f->has_ended) ag_condition_wait(&s->work, &s->lock);
        if (f->has_ended) break;
        ag_mutex_unlock(&s->lock);
        ag_engine_lock_yield(s);
        ag_mutex_lock(&s->lock);
    }
    ag_mutex_unlock(&s->lock);
    ag_os_thread_join(&f->thread);
    f->has_thread = false;
}
