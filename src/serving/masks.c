/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/masks.h"

#include "constrain/constraint.h"
#include "core/alloc.h"
#include "core/fail.h"

#include <antigravity/interrupt.h>
#include <stdatomic.h>

enum { NO_ID = -1 };

typedef struct mask_job {
    ag_constraint *constraint; /* owned */
    int32_t id;                /* token that continues the text, or NO_ID */
    uint64_t bytes;            /* bytes of the constraint, without those that the group shares */
    bool is_ready;             /* the mask is made; guarded by the engine's mutex */
    bool is_rejected;          /* the trigger has rejected the token; valid if is_ready */
} mask_job;

struct ag_mask_group {
    ag_mask_thread *thread; /* borrowed */
    ag_constraint *root;    /* constraint of the request; owned */
    size_t n;
    mask_job *jobs;             /* [n] one per answer */
    atomic_bool abandoned;      /* the request ended while a job was running */
    atomic_uint_fast64_t bytes; /* published after each job */
    /* Guarded by the engine's mutex. */
    ag_mask_group *next;
    size_t *queue; /* [n] ring of answers that have a job */
    size_t first, n_queued;
    bool is_listed, is_busy; /* in the thread's list; a job is running */
    bool needs_memory;       /* bytes exceed the limit: no job runs until it is raised */
    uint64_t limit;
    ag_status status; /* status of the failed job; no job runs after it */
    ag_error error;
};

/* ---- groups ---- */

static void free_group(ag_mask_group *g) {
    for (size_t i = 0; g->jobs && i < g->n; i++) ag_constraint_destroy(g->jobs[i].constraint);
    ag_constraint_destroy(g->root);
    ag_free(g->jobs);
    ag_free(g->queue);
    ag_free(g);
}

static void count_bytes(ag_mask_group *g) {
    uint64_t bytes = ag_constraint_shared_bytes(g->root);
    for (size_t i = 0; i < g->n; i++) bytes += g->jobs[i].bytes;
    atomic_store_explicit(&g->bytes, bytes, memory_order_relaxed);
}

ag_status ag_mask_group_create(ag_mask_thread *t, ag_constraint **root, size_t n,
                               ag_mask_group **out, ag_error *err) {
    ag_status st = AG_OK;
    *out = NULL;
    ag_mask_group *g = ag_calloc(1, sizeof *g);
    if (!g) return AG_FAIL(err, NOMEM, "masks of a request");
    g->thread = t;
    g->root = *root;
    *root = NULL;
    g->n = n;
    g->jobs = ag_calloc(n, sizeof *g->jobs);
    g->queue = ag_calloc(n, sizeof *g->queue);
    if (!g->jobs || !g->queue) st = AG_FAIL(err, NOMEM, "masks of %zu answers", n);
    for (size_t i = 0; st == AG_OK && i < n; i++) {
        st = ag_constraint_clone(g->root, &g->jobs[i].constraint, err);
        if (st == AG_OK) g->jobs[i].bytes = ag_constraint_own_bytes(g->jobs[i].constraint);
    }
    if (st != AG_OK) {
        free_group(g);
        return st;
    }
    count_bytes(g);
    *out = g;
    return AG_OK;
}

ag_constraint *ag_mask_group_constraint(ag_mask_group *g, size_t answer) {
    return g->jobs[answer].constraint;
}

uint64_t ag_mask_group_bytes(const ag_mask_group *g) {
    return atomic_load_explicit(&g->bytes, memory_order_relaxed);
}

/* ---- list of groups; the caller holds the mutex ---- */

static void list_group(ag_mask_group *g) {
    ag_mask_thread *t = g->thread;
    if (g->is_listed || g->is_busy || !g->n_queued || g->needs_memory) return;
    g->is_listed = true;
    g->next = NULL;
    if (t->last) t->last->next = g;
    else t->first = g;
    t->last = g;
    ag_condition_signal(&t->work);
}

static void unlist_group(ag_mask_group *g) {
    ag_mask_thread *t = g->thread;
    ag_mask_group **at = &t->first, *previous = NULL;
    if (!g->is_listed) return;
    for (; *at != g; at = &(*at)->next) previous = *at;
    *at = g->next;
    if (t->last == g) t->last = previous;
    g->is_listed = false;
}

static void push_job(ag_mask_group *g, size_t answer, int32_t id) {
    mask_job *job = &g->jobs[answer];
    job->id = id;
    job->is_ready = false;
    if (g->status != AG_OK) return;
    g->queue[(g->first + g->n_queued++) % g->n] = answer;
    list_group(g);
}

void ag_mask_group_release(ag_mask_group *g) {
    if (!g) return;
    ag_mutex *mutex = g->thread->mutex;
    ag_mutex_lock(mutex);
    unlist_group(g);
    const bool is_busy = g->is_busy;
    if (is_busy) atomic_store(&g->abandoned, true);
    ag_mutex_unlock(mutex);
    if (!is_busy) free_group(g);
}

/* ---- mask thread ---- */

static bool is_abandoned(void *user) {
    ag_mask_group *g = user;
    return atomic_load_explicit(&g->abandoned, memory_order_relaxed);
}

static ag_status run_job(mask_job *job, ag_error *err) {
    const uint32_t *mask;
    const bool was_free = ag_constraint_is_free(job->constraint);
    ag_status st = AG_OK;
    if (job->id != NO_ID) st = ag_constraint_accept(job->constraint, job->id, err);
    job->is_rejected = was_free && st == AG_INVALID;
    if (job->is_rejected) return AG_OK;
    return st == AG_OK ? ag_constraint_mask(job->constraint, &mask, err) : st;
}

/* The caller holds the mutex. */
static void end_job(ag_mask_group *g, size_t answer, ag_status st, const ag_error *err) {
    g->is_busy = false;
    if (st == AG_OK) {
        g->jobs[answer].is_ready = true;
        g->needs_memory = ag_mask_group_bytes(g) > g->limit;
        list_group(g);
    } else {
        g->status = st;
        g->error = *err;
        g->n_queued = 0;
    }
    ag_condition_signal(g->thread->engine_work);
}

/* The caller holds the mutex. Releases it while the job runs. */
static void run_next(ag_mask_thread *t) {
    ag_mask_group *g = t->first;
    ag_error err;
    unlist_group(g);
    const size_t answer = g->queue[g->first];
    g->first = (g->first + 1) % g->n;
    g->n_queued--;
    g->is_busy = true;
    ag_mutex_unlock(t->mutex);

    mask_job *job = &g->jobs[answer];
    if (t->before_job) t->before_job(t->before_job_user, answer);
    ag_set_thread_interrupt(is_abandoned, g);
    const ag_status st = run_job(job, &err);
    ag_set_thread_interrupt(NULL, NULL);
    job->bytes = ag_constraint_own_bytes(job->constraint);
    count_bytes(g);

    ag_mutex_lock(t->mutex);
    if (!atomic_load(&g->abandoned)) {
        end_job(g, answer, st, &err);
        return;
    }
    ag_mutex_unlock(t->mutex);
    free_group(g);
    ag_mutex_lock(t->mutex);
}

static void *masks_main(void *user) {
    ag_mask_thread *t = user;
    ag_mutex_lock(t->mutex);
    while (t->first || !t->is_ending) {
        if (t->first) run_next(t);
        else ag_condition_wait(&t->work, t->mutex);
    }
    ag_mutex_unlock(t->mutex);
    return NULL;
}

void ag_mask_thread_init(ag_mask_thread *t, ag_mutex *mutex, ag_condition *engine_work) {
    *t = (ag_mask_thread){.mutex = mutex, .engine_work = engine_work};
    ag_condition_init(&t->work);
}

void ag_mask_thread_destroy(ag_mask_thread *t) { ag_condition_destroy(&t->work); }

ag_status ag_mask_thread_open(ag_mask_thread *t, ag_error *err) {
    const int failed = ag_os_thread_start(&t->thread, masks_main, t);
    if (failed) return AG_FAIL(err, NOMEM, "mask thread: error %d", failed);
    t->has_thread = true;
    return AG_OK;
}

void ag_mask_thread_close(ag_mask_thread *t) {
    if (!t->has_thread) return;
    ag_mutex_lock(t->mutex);
    t->is_ending = true;
    ag_condition_signal(&t->work);
    ag_mutex_unlock(t->mutex);
    ag_os_thread_join(&t->thread);
    t->has_thread = false;
}

/* ---- engine thread ---- */

void ag_mask_group_start(ag_mask_group *g, uint64_t limit) {
    ag_mutex_lock(g->thread->mutex);
    g->limit = limit;
    for (size_t i = 0; i < g->n; i++) {
        g->jobs[i].is_ready = ag_constraint_is_free(g->jobs[i].constraint);
        if (!g->jobs[i].is_ready) push_job(g, i, NO_ID);
    }
    ag_mutex_unlock(g->thread->mutex);
}

void ag_mask_group_submit(ag_mask_group *g, size_t answer, int32_t id) {
    ag_mutex_lock(g->thread->mutex);
    push_job(g, answer, id);
    ag_mutex_unlock(g->thread->mutex);
}

bool ag_mask_group_is_ready(ag_mask_group *g, size_t answer) {
    ag_mutex_lock(g->thread->mutex);
    const bool is_ready = g->jobs[answer].is_ready;
    ag_mutex_unlock(g->thread->mutex);
    return is_ready;
}

bool ag_mask_group_has_rejected(const ag_mask_group *g, size_t answer) {
    return g->jobs[answer].is_rejected;
}

ag_status ag_mask_group_failure(ag_mask_group *g, size_t answer, ag_error *err) {
    ag_mutex_lock(g->thread->mutex);
    const ag_status st = g->jobs[answer].is_ready ? AG_OK : g->status;
    if (st != AG_OK) *err = g->error;
    ag_mutex_unlock(g->thread->mutex);
    return st;
}

bool ag_mask_group_needs_memory(ag_mask_group *g) {
    ag_mutex_lock(g->thread->mutex);
    const bool needs_memory = g->needs_memory;
    ag_mutex_unlock(g->thread->mutex);
    return needs_memory;
}

void ag_mask_group_raise_limit(ag_mask_group *g, uint64_t limit) {
    ag_mutex_lock(g->thread->mutex);
    g->limit = limit;
    g->needs_memory = false;
    list_group(g);
    ag_mutex_unlock(g->thread->mutex);
}

bool ag_mask_group_is_working(const ag_mask_group *g) {
    return !g->needs_memory && g->status == AG_OK && (g->n_queued || g->is_busy);
}
