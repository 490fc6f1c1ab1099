/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/masks.h"

#include "constrain/constraint.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "serving/serving_impl.h"

#include <antigravity/interrupt.h>

enum { NO_ID = -1 };

typedef struct mask_job {
    ag_constraint *constraint; /* owned */
    int32_t id;                /* the token that the text continues with, or NO_ID */
    uint64_t bytes;            /* bytes of the constraint, without those that the group shares */
    bool is_ready;             /* the mask is made; under the lock */
} mask_job;

struct ag_mask_group {
    ag_constraint *root; /* the request's; owned */
    size_t n;
    mask_job *jobs;             /* [n] of the answers */
    atomic_bool abandoned;      /* the request has ended while a job was running */
    atomic_uint_fast64_t bytes; /* published after each job */
    /* Under the engine's lock. */
    ag_mask_group *next;
    size_t *queue; /* [n] answers with a job, a ring */
    size_t first, n_queued;
    bool is_listed, is_busy; /* in the thread's list; with a job that is running */
    bool needs_memory;       /* bytes exceed the limit: no job runs until it is raised */
    uint64_t limit;
    ag_status status; /* status of the failed job; no job runs after it */
    size_t failed;    /* its answer */
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

ag_status ag_mask_group_create(ag_served_request *r, ag_error *err) {
    ag_mask_group *g = ag_calloc(1, sizeof *g);
    if (!g) return AG_FAIL(err, NOMEM, "masks of a request");
    r->masks = g;
    g->root = r->p.constraint;
    r->p.constraint = NULL;
    g->n = r->p.n_answers;
    g->jobs = ag_calloc(g->n, sizeof *g->jobs);
    g->queue = ag_calloc(g->n, sizeof *g->queue);
    if (!g->jobs || !g->queue) return AG_FAIL(err, NOMEM, "masks of %zu answers", g->n);
    for (size_t i = 0; i < g->n; i++) {
        AG_TRY(ag_constraint_clone(g->root, &g->jobs[i].constraint, err));
        g->jobs[i].bytes = ag_constraint_own_bytes(g->jobs[i].constraint);
    }
    count_bytes(g);
    return AG_OK;
}

ag_constraint *ag_mask_group_constraint(ag_mask_group *g, size_t answer) {
    return g->jobs[answer].constraint;
}

uint64_t ag_mask_group_bytes(const ag_mask_group *g) {
    return atomic_load_explicit(&g->bytes, memory_order_relaxed);
}

/* ---- the list of groups; with the lock ---- */

static void list_group(ag_serving *s, ag_mask_group *g) {
    ag_mask_thread *t = &s->masks;
    if (g->is_listed || g->is_busy || !g->n_queued || g->needs_memory) return;
    g->is_listed = true;
    g->next = NULL;
    if (t->last) t->last->next = g;
    else t->first = g;
    t->last = g;
    ag_condition_signal(&t->work);
}

static void unlist_group(ag_serving *s, ag_mask_group *g) {
    ag_mask_thread *t = &s->masks;
    ag_mask_group **at = &t->first, *previous = NULL;
    if (!g->is_listed) return;
    for (; *at != g; at = &(*at)->next) previous = *at;
    *at = g->next;
    if (t->last == g) t->last = previous;
    g->is_listed = false;
}

static void push_job(ag_serving *s, ag_mask_group *g, size_t answer, int32_t id) {
    mask_job *job = &g->jobs[answer];
    job->id = id;
    job->is_ready = false;
    if (g->status != AG_OK) return;
    g->queue[(g->first + g->n_queued++) % g->n] = answer;
    list_group(s, g);
}

void ag_mask_group_release(ag_serving *s, ag_mask_group *g) {
    if (!g) return;
    ag_mutex_lock(&s->lock);
    unlist_group(s, g);
    const bool is_busy = g->is_busy;
    if (is_busy) atomic_store(&g->abandoned, true);
    ag_mutex_unlock(&s->lock);
    if (!is_busy) free_group(g);
}

/* ---- the thread ---- */

static bool is_abandoned(void *user) {
    ag_mask_group *g = user;
    return atomic_load_explicit(&g->abandoned, memory_order_relaxed);
}

static ag_status run_job(mask_job *job, ag_error *err) {
    const uint32_t *mask;
    if (job->id != NO_ID) AG_TRY(ag_constraint_accept(job->constraint, job->id, err));
    return ag_constraint_mask(job->constraint, &mask, err);
}

/* With the lock. */
static void end_job(ag_serving *s, ag_mask_group *g, size_t answer, ag_status st,
                    const ag_error *err) {
    g->is_busy = false;
    if (st == AG_OK) {
        g->jobs[answer].is_ready = true;
        g->needs_memory = ag_mask_group_bytes(g) > g->limit;
        list_group(s, g);
    } else {
        g->status = st;
        g->error = *err;
        g->failed = answer;
        g->n_queued = 0;
    }
    ag_condition_signal(&s->work);
}

/* With the lock, which it releases while the job runs. */
static void run_next(ag_serving *s) {
    ag_mask_thread *t = &s->masks;
    ag_mask_group *g = t->first;
    ag_error err;
    unlist_group(s, g);
    const size_t answer = g->queue[g->first];
    g->first = (g->first + 1) % g->n;
    g->n_queued--;
    g->is_busy = true;
    ag_mutex_unlock(&s->lock);

    mask_job *job = &g->jobs[answer];
    if (t->before_job) t->before_job(t->before_job_user, answer);
    ag_set_thread_interrupt(is_abandoned, g);
    const ag_status st = run_job(job, &err);
    ag_set_thread_interrupt(NULL, NULL);
    job->bytes = ag_constraint_own_bytes(job->constraint);
    count_bytes(g);

    ag_mutex_lock(&s->lock);
    if (!atomic_load(&g->abandoned)) {
        end_job(s, g, answer, st, &err);
        return;
    }
    ag_mutex_unlock(&s->lock);
    free_group(g);
    ag_mutex_lock(&s->lock);
}

static void *masks_main(void *user) {
    ag_serving *s = user;
    ag_mask_thread *t = &s->masks;
    ag_mutex_lock(&s->lock);
    while (t->first || !t->is_ending) {
        if (t->first) run_next(s);
        else ag_condition_wait(&t->work, &s->lock);
    }
    ag_mutex_unlock(&s->lock);
    return NULL;
}

ag_status ag_masks_open(ag_serving *s, ag_error *err) {
    const int failed = ag_os_thread_start(&s->masks.thread, masks_main, s);
    if (failed) return AG_FAIL(err, NOMEM, "mask thread: error %d", failed);
    s->masks.has_thread = true;
    return AG_OK;
}

void ag_masks_close(ag_serving *s) {
    if (!s->masks.has_thread) return;
    ag_mutex_lock(&s->lock);
    s->masks.is_ending = true;
    ag_condition_signal(&s->masks.work);
    ag_mutex_unlock(&s->lock);
    ag_os_thread_join(&s->masks.thread);
    s->masks.has_thread = false;
}

/* ---- the engine's side ---- */

void ag_masks_start(ag_serving *s, ag_served_request *r) {
    ag_mask_group *g = r->masks;
    ag_mutex_lock(&s->lock);
    g->limit = ag_memory_budget_constraint_limit(s, r);
    for (size_t i = 0; i < g->n; i++) push_job(s, g, i, NO_ID);
    ag_mutex_unlock(&s->lock);
}

void ag_masks_submit(ag_serving *s, const ag_answer *a, int32_t id) {
    ag_mask_group *g = a->request->masks;
    ag_mutex_lock(&s->lock);
    push_job(s, g, a->index, id);
    ag_mutex_unlock(&s->lock);
}

static bool is_ready(ag_serving *s, const ag_answer *a) {
    ag_mutex_lock(&s->lock);
    const bool ready = a->request->masks->jobs[a->index].is_ready;
    ag_mutex_unlock(&s->lock);
    return ready;
}

ag_status ag_masks_choose(ag_serving *s, ag_answer *a, ag_error *err) {
    ag_served_request *r = a->request;
    /* In the order of the answers: those behind a late one are late, too. */
    if (!r->masks || (!r->n_late && is_ready(s, a))) return ag_answer_choose(s, a, err);
    a->is_late = true;
    r->n_late++;
    return AG_OK;
}

/* The request fails where the turn comes to the answer whose mask failed, so that other answers get
 * the same tokens whatever the timing. While the prompt is read, there are no tokens yet. */
static ag_status current_failure(ag_serving *s, const ag_served_request *r, ag_error *err) {
    ag_mask_group *g = r->masks;
    size_t i = 0;
    while (r->n_late && !r->answers[i].is_late) i++;
    ag_mutex_lock(&s->lock);
    const bool is_due = r->n_late ? !g->jobs[i].is_ready : r->session && g->failed == 0;
    const ag_status st = is_due ? g->status : AG_OK;
    if (st != AG_OK) *err = g->error;
    ag_mutex_unlock(&s->lock);
    return st;
}

/* Lets a group that has reached its limit go on, if there is memory for it. */
static ag_status raise_limit(ag_serving *s, ag_served_request *r, ag_error *err) {
    ag_mask_group *g = r->masks;
    ag_mutex_lock(&s->lock);
    const bool needs_memory = g->needs_memory;
    ag_mutex_unlock(&s->lock);
    if (!needs_memory) return AG_OK;
    AG_TRY(ag_memory_budget_extend_constraint(s, r, err));
    ag_mutex_lock(&s->lock);
    g->limit = ag_memory_budget_constraint_limit(s, r);
    g->needs_memory = false;
    list_group(s, g);
    ag_mutex_unlock(&s->lock);
    return AG_OK;
}

ag_status ag_masks_choose_late(ag_serving *s, ag_served_request *r, ag_error *err) {
    AG_TRY(raise_limit(s, r, err));
    for (size_t i = 0; r->n_late && i < r->p.n_answers; i++) {
        ag_answer *a = &r->answers[i];
        if (!a->is_late) continue;
        if (!is_ready(s, a)) break;
        a->is_late = false;
        r->n_late--;
        AG_TRY(ag_answer_choose(s, a, err));
    }
    return current_failure(s, r, err);
}

bool ag_masks_block_all(const ag_serving *s) {
    for (const ag_served_request *r = s->running; r; r = r->next) {
        const ag_mask_group *g = r->masks;
        if (!g || !r->n_late || g->needs_memory || g->status != AG_OK) return false;
        if (!g->n_queued && !g->is_busy) return false;
    }
    return true;
}
