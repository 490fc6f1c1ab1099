/* SPDX-License-Identifier: Apache-2.0 */
/* The thread that writes and reads files of sessions, and how it takes turns with the engine's. */
#include "core/fail.h"
#include "platform/clock.h"
#include "serving/serving_impl.h"

enum { MOST_END_S = 30 };

void ag_floor_take(void *user) {
    ag_serving *s = user;
    ag_floor *f = &s->floor;
    if (!f->has_thread) return;
    ag_mutex_lock(&s->lock);
    f->is_wanted = true;
    ag_condition_broadcast(&s->work);
    while (!f->is_given) ag_condition_wait(&f->changed, &s->lock);
    ag_mutex_unlock(&s->lock);
}

static void give_back(ag_serving *s) {
    ag_floor *f = &s->floor;
    ag_mutex_lock(&s->lock);
    f->is_wanted = f->is_given = false;
    ag_condition_broadcast(&f->changed);
    ag_mutex_unlock(&s->lock);
}

void ag_floor_leave(void *user) {
    ag_serving *s = user;
    if (!s->floor.has_thread) return;
    give_back(s);
    if (s->floor.before_disk) s->floor.before_disk(s->floor.before_disk_user);
}

void ag_floor_give(ag_serving *s) {
    ag_floor *f = &s->floor;
    ag_mutex_lock(&s->lock);
    if (f->is_wanted) {
        f->is_given = true;
        ag_condition_broadcast(&f->changed);
        while (f->is_given) ag_condition_wait(&f->changed, &s->lock);
    }
    ag_mutex_unlock(&s->lock);
}

void ag_floor_wait(ag_serving *s) {
    ag_floor *f = &s->floor;
    ag_mutex_lock(&s->lock);
    while (f->has_thread && !f->is_wanted) ag_condition_wait(&s->work, &s->lock);
    ag_mutex_unlock(&s->lock);
    ag_floor_give(s);
}

/* ---- the thread ---- */

/* false: there is none, and there will be none. */
static bool wait_for_files(ag_serving *s) {
    ag_floor *f = &s->floor;
    ag_mutex_lock(&s->lock);
    while (!f->has_work && !f->is_ending) ag_condition_wait(&f->changed, &s->lock);
    const bool any = f->has_work;
    f->has_work = false;
    ag_mutex_unlock(&s->lock);
    return any;
}

static void *files_main(void *user) {
    ag_serving *s = user;
    while (wait_for_files(s)) {
        ag_floor_take(s);
        while (ag_prefix_files_work(s)) { /* others come between two of them */
            give_back(s);
            ag_floor_take(s);
        }
        give_back(s);
    }
    ag_mutex_lock(&s->lock);
    s->floor.has_ended = true;
    ag_condition_broadcast(&s->work);
    ag_mutex_unlock(&s->lock);
    return NULL;
}

void ag_floor_call(ag_serving *s) {
    ag_mutex_lock(&s->lock);
    s->floor.has_work = true;
    ag_condition_broadcast(&s->floor.changed);
    ag_mutex_unlock(&s->lock);
}

ag_status ag_floor_open(ag_serving *s, ag_error *err) {
    s->floor.has_thread = true;
    const int failed = ag_os_thread_start(&s->floor.thread, files_main, s);
    if (!failed) return AG_OK;
    s->floor.has_thread = false;
    return AG_FAIL(err, NOMEM, "file thread: error %d", failed);
}

void ag_floor_close(ag_serving *s) {
    ag_floor *f = &s->floor;
    if (!f->has_thread) return;
    ag_mutex_lock(&s->lock);
    f->end_by = ag_now_s() + MOST_END_S;
    f->has_work = f->is_ending = true;
    ag_condition_broadcast(&f->changed);
    while (!f->has_ended) {
        while (!f->is_wanted && !f->has_ended) ag_condition_wait(&s->work, &s->lock);
        if (f->has_ended) break;
        ag_mutex_unlock(&s->lock);
        ag_floor_give(s);
        ag_mutex_lock(&s->lock);
    }
    ag_mutex_unlock(&s->lock);
    ag_os_thread_join(&f->thread);
    f->has_thread = false;
}
