/* SPDX-License-Identifier: Apache-2.0 */
/* Engine: creates and destroys it, and runs the engine thread. */
#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"
#include "serving/serving_impl.h"

#include <math.h>

ag_serving_params ag_serving_defaults(void) {
    return (ag_serving_params){
        .max_running = 64,
        .max_waiting = 256,
        .step_rows = 512,
        .prefix_bytes = UINT64_MAX,
        .prefix_dir_bytes = UINT64_C(4) << 30,
        .replay_keep_ratio = 0.25f,
        .replay_after_s = 30,
        .swap_period_s = 30,
    };
}

/* ---- engine thread ---- */

static const double FILE_POLL_S = 0.01;
/* Multiple of max_running: answers of later requests that may overtake a request. */
enum { MAX_OVERTAKEN = 2 };

/* Waits for work, at most `seconds`. Returns false at a timeout. The caller holds the mutex. */
static bool wait_for(ag_serving *s, double seconds) {
    return ag_condition_wait_for(&s->work, &s->lock, seconds);
}

/* Returns the earliest deadline in the list; 0 if a request was cancelled; INFINITY: none. The
 * caller holds the mutex. */
static double earliest_deadline(const ag_served_request *list) {
    double end = INFINITY;
    for (const ag_served_request *r = list; r; r = r->next) {
        if (atomic_load_explicit(&r->cancelled, memory_order_relaxed)) return 0;
        if (r->deadline && r->deadline < end) end = r->deadline;
    }
    return end;
}

/* Returns whether every running request waits for the mask thread. The caller holds the mutex. */
static bool all_wait_for_masks(const ag_serving *s) {
    for (const ag_served_request *r = s->queue.running; r; r = r->next) {
        if (!r->masks || !r->n_late || !ag_mask_group_is_working(r->masks)) return false;
    }
    return true;
}

/* Waits once for masks. Returns false if there is other work: a new request, a cancellation or a
 * deadline. The caller holds the mutex. */
static bool wait_for_masks(ag_serving *s) {
    const double end =
        fmin(earliest_deadline(s->queue.running), earliest_deadline(s->queue.waiting));
    return s->queue.n_submitted == s->queue.n_seen && wait_for(s, end - ag_now_s());
}

/* Returns when weights expire next. Weights whose sessions are being written are checked again
 * after FILE_POLL_S. */
static double next_expiry(const ag_serving *s) {
    const double at = ag_models_expiry(s), now = ag_now_s();
    return at <= now ? now + FILE_POLL_S : at;
}

/* Waits until there is work. Returns false if the engine is being destroyed. */
static bool wait_for_work(ag_serving *s) {
    /* Constant while the engine waits, unless a keep-alive is set. */
    double idle_at = s->queue.running ? 0 : fmin(ag_idle_due(s), next_expiry(s));
    if (s->retried) idle_at = fmin(idle_at, ag_now_s() + FILE_POLL_S);
    ag_mutex_lock(&s->lock);
    while (!s->queue.is_closed && !s->jobs && !s->engine_lock.is_requested &&
           !s->has_new_keep_alive && !ag_model_loader_is_done(&s->loader) &&
           all_wait_for_masks(s)) {
        if (s->queue.waiting && !s->is_blocked) break;
        if (s->queue.running) {
            if (!wait_for_masks(s)) break;
            continue;
        }
        if (s->queue.waiting) { /* a file is being read: poll, to check deadlines */
            wait_for(s, FILE_POLL_S);
            break;
        }
        if (!wait_for(s, idle_at - ag_now_s())) break;
    }
    const bool is_running = !s->queue.is_closed;
    s->queue.n_seen = s->queue.n_submitted;
    s->has_new_keep_alive = false;
    ag_mutex_unlock(&s->lock);
    if (is_running) ag_engine_lock_yield(&s->engine_lock);
    return is_running;
}

/* Runs a job, or cancels it. A job that must be retried stays in the list of these. */
static void run_one_job(ag_serving *s, ag_serving_job *job, bool cancel) {
    job->must_retry = false;
    const ag_status st = cancel ? AG_FAIL(&job->error, CANCELLED, "the engine is being destroyed")
                                : job->run(s, job, &job->error);
    if (job->must_retry) {
        job->next = s->retried;
        s->retried = job;
        return;
    }
    /* A caller that waits for a model finds it in the statistics. */
    if (job->model && !cancel) ag_serving_publish(s, true);
    ag_mutex_lock(&s->lock);
    job->status = st;
    job->done = true;
    ag_condition_broadcast(&s->done);
    ag_mutex_unlock(&s->lock);
}

/* Runs the queued jobs, and those that must be retried, or cancels them. */
static void run_jobs(ag_serving *s, bool cancel) {
    ag_serving_job *again = s->retried;
    s->retried = NULL;
    for (ag_serving_job *next; again; again = next) {
        next = again->next;
        run_one_job(s, again, cancel);
    }
    for (;;) {
        ag_mutex_lock(&s->lock);
        ag_serving_job *job = s->jobs;
        if (job) s->jobs = job->next;
        ag_mutex_unlock(&s->lock);
        if (!job) return;
        run_one_job(s, job, cancel);
    }
}

ag_status ag_serving_run_job(ag_serving *s, ag_serving_job *job, ag_error *err) {
    ag_mutex_lock(&s->lock);
    job->next = s->jobs;
    s->jobs = job;
    ag_condition_broadcast(&s->work);
    while (!job->done) ag_condition_wait(&s->done, &s->lock);
    ag_mutex_unlock(&s->lock);
    if (job->status != AG_OK && err) *err = job->error;
    return job->status;
}

/* Returns whether the request was cancelled, was displaced or has reached its deadline, with the
 * error to report. */
static bool must_end(const ag_served_request *r, double now, ag_error *err) {
    if (atomic_load_explicit(&r->cancelled, memory_order_relaxed)) {
        AG_FAIL(err, CANCELLED, "the request was cancelled");
        return true;
    }
    if (r->is_displaced) {
        AG_FAIL(err, BUSY,
                "the queue is full: this request lost its place, because other clients wait and "
                "its client had more than half of the places; retry later");
        return true;
    }
    if (!r->deadline || now < r->deadline) return false;
    AG_FAIL(err, CANCELLED, "the request did not end within %g s", r->p.deadline_s);
    return true;
}

/* Returns a request of the list that must end; NULL: none. Takes the mutex, since other threads
 * append to the waiting list. */
static ag_served_request *find_ending(ag_serving *s, ag_served_request **list, ag_error *err) {
    const double now = ag_now_s();
    ag_mutex_lock(&s->lock);
    ag_served_request *r = *list;
    while (r && !must_end(r, now, err)) r = r->next;
    ag_mutex_unlock(&s->lock);
    return r;
}

static void end_due(ag_serving *s, ag_served_request **list) {
    ag_served_request *r;
    ag_error err;
    while ((r = find_ending(s, list, &err))) {
        ag_request_queue_remove(&s->queue, list, r);
        ag_request_end(s, r, err.status, &err);
    }
}

static ag_served_request *next_waiting(ag_serving *s, const ag_served_request *r) {
    ag_mutex_lock(&s->lock);
    ag_served_request *next = r ? r->next : s->queue.waiting;
    ag_mutex_unlock(&s->lock);
    return next;
}

/* Returns whether r may begin before `first`, which waits for places or for a prefix. */
static bool may_overtake(const ag_serving *s, const ag_served_request *first,
                         const ag_served_request *r) {
    return !first ||
           first->n_overtaken + r->p.n_answers <= MAX_OVERTAKEN * (size_t)s->params.max_running;
}

/* Begins waiting requests, oldest first. None overtakes a request that waits for memory. */
static void admit(ag_serving *s) {
    ag_served_request *first = NULL; /* first request that cannot begin yet */
    s->is_blocked = false;
    for (ag_served_request *r = next_waiting(s, NULL), *next; r; r = next) {
        ag_error err;
        next = next_waiting(s, r);
        if (!may_overtake(s, first, r)) break;
        if (ag_client_must_wait(&s->queue, r)) continue;
        /* After many overtook it, a request reads its prefix itself. */
        r->may_wait_for_prefix = r->n_overtaken < s->params.max_running;
        const bool has_places = s->queue.n_answers + r->p.n_answers <= s->params.max_running;
        const ag_status st = has_places ? ag_request_begin(s, r, &err) : AG_BUSY;
        if (st == AG_BUSY && r->swap_wait_s <= 0) {
            s->is_blocked = true;
            if (has_places && r->awaits_load) continue; /* it takes nothing that others need */
            if (has_places && !r->awaits_prefix) return;
            if (!first) first = r;
        } else if (st == AG_OK) {
            ag_request_queue_start(&s->queue, r);
            if (first) first->n_overtaken += r->p.n_answers;
        } else {
            ag_request_queue_remove(&s->queue, &s->queue.waiting, r);
            ag_request_end(s, r, st, &err);
        }
    }
}

static void end_all(ag_serving *s, ag_served_request **list) {
    ag_mutex_lock(&s->lock);
    for (ag_served_request *r = *list; r; r = r->next) atomic_store(&r->cancelled, true);
    ag_mutex_unlock(&s->lock);
    end_due(s, list);
}

/* Loop of the engine thread: loads, jobs, ends, admissions, one step, statistics, idle work. */
static void *engine_main(void *user) {
    ag_serving *s = user;
    while (wait_for_work(s)) {
        const double start = ag_now_s();
        ag_models_finish_load(s);
        run_jobs(s, false);
        end_due(s, &s->queue.waiting);
        end_due(s, &s->queue.running);
        admit(s);
        ag_serving_step(s);
        s->now.busy_s += ag_now_s() - start;
        ag_serving_publish(s, !s->queue.running);
        ag_models_unload_expired(s);
        ag_idle_work(s);
    }
    ag_model_loader_close(&s->loader);
    run_jobs(s, true);
    end_all(s, &s->queue.running);
    end_all(s, &s->queue.waiting);
    return NULL;
}

/* ---- creation and destruction ---- */

static ag_status check_params(const ag_serving_params *p, ag_error *err) {
    if (!p->max_running || p->max_running > AG_SERVING_MAX_RUNNING) {
        return AG_FAIL(err, INVALID, "max_running is %u: it must be 1 to %d", p->max_running,
                       AG_SERVING_MAX_RUNNING);
    }
    if (p->step_rows < 32 || p->step_rows > 65536) {
        return AG_FAIL(err, INVALID, "step_rows is %u: it must be 32 to 65536", p->step_rows);
    }
    if (!(p->replay_share >= 0 && p->replay_share <= 1)) {
        return AG_FAIL(err, INVALID, "replay_share is %g: it must be 0 to 1",
                       (double)p->replay_share);
    }
    const bool has_target = p->replay_keep_tokens || p->replay_keep_ratio > 0;
    if (p->replay_share > 0 &&
        !(has_target && p->replay_keep_ratio >= 0 && p->replay_keep_ratio <= 1)) {
        return AG_FAIL(err, INVALID,
                       "replay_keep_ratio is %g, replay_keep_tokens %u: one must be positive, and "
                       "the ratio at most 1",
                       (double)p->replay_keep_ratio, p->replay_keep_tokens);
    }
    return AG_OK;
}

/* Stops the threads and frees everything. The engine thread has ended, or never ran. */
static void release(ag_serving *s) {
    ag_prefix_files_queue_all(&s->prefixes.files);
    ag_engine_lock_close(&s->engine_lock);
    ag_prefix_store_drop_all(&s->prefixes.store);
    ag_prefix_files_release(&s->prefixes.files);
    ag_mask_thread_close(&s->masks);
    for (ag_served_model *m = s->models.first, *next; m; m = next) {
        next = m->next;
        ag_served_model_unload(m);
        ag_served_model_destroy(m);
    }
    ag_sys_monitor_destroy(s->prefixes.monitor);
    ag_session_list_release(s, s->sessions);
    ag_backend_destroy(s->backend);
    ag_mask_thread_destroy(&s->masks);
    ag_engine_lock_destroy(&s->engine_lock);
    ag_condition_destroy(&s->done);
    ag_condition_destroy(&s->work);
    ag_mutex_destroy(&s->lock);
    ag_free(s);
}

/* Fails if the process exceeds the memory limit before it loads a model. */
static ag_status check_base(const ag_serving *s, ag_error *err) {
    if (!s->params.memory_limit) return AG_OK;
    const uint64_t used = ag_memory_budget_used(&s->budget);
    if (!used)
        return AG_FAIL(err, UNSUPPORTED,
                       "memory_limit: this system does not report the memory of a process");
    if (used + s->params.caller_reserve < s->params.memory_limit) return AG_OK;
    return AG_FAIL(err, NOMEM,
                   "memory_limit is %llu bytes: the process uses %llu before it loads a model, and "
                   "%llu are reserved",
                   (unsigned long long)s->params.memory_limit, (unsigned long long)used,
                   (unsigned long long)s->params.caller_reserve);
}

/* Creates the synchronisation objects and connects the parts of the engine. */
static void init_parts(ag_serving *s) {
    ag_mutex_init(&s->lock);
    ag_condition_init(&s->work);
    ag_condition_init(&s->done);
    ag_engine_lock_init(&s->engine_lock, &s->lock, &s->work);
    ag_mask_thread_init(&s->masks, &s->lock, &s->work);
    s->queue.params = s->prefixes.params = s->budget.params = &s->params;
    s->queue.mutex = &s->lock;
    s->queue.work = &s->work;
    s->prefixes.queue = s->budget.queue = &s->queue;
    s->prefixes.models = s->budget.models = &s->models;
    s->prefixes.lock = s->budget.lock = s->prefixes.files.lock = &s->engine_lock;
    s->prefixes.files.store = &s->prefixes.store;
    s->budget.prefixes = &s->prefixes;
    s->budget.loader = &s->loader;
    s->loader.seqs = s->params.max_running;
    s->loader.rows = s->params.step_rows > s->loader.seqs ? s->params.step_rows : s->loader.seqs;
    s->loader.mutex = &s->lock;
    s->loader.work = &s->work;
    for (size_t i = 0; i < AG_SERVING_MAX_LOADS; i++) s->load_times[i] = -INFINITY;
}

static ag_status open_files(ag_serving *s, ag_error *err) {
    ag_prefix_files *files = &s->prefixes.files;
    if (!s->params.prefix_dir) return AG_OK;
    AG_TRY(ag_prefix_files_open(files, s->params.prefix_dir, s->params.prefix_dir_bytes, err));
    return ag_engine_lock_open(&s->engine_lock, ag_prefix_files_run_next, files, err);
}

ag_status ag_serving_create(const ag_serving_params *params, ag_serving **out, ag_error *err) {
    const ag_serving_params p = params ? *params : ag_serving_defaults();
    *out = NULL;
    AG_TRY(check_params(&p, err));
    ag_serving *s = ag_calloc(1, sizeof *s);
    if (!s) return AG_FAIL(err, NOMEM, "serving engine");
    s->params = p;
    init_parts(s);
    ag_status st = ag_backend_create(&p.backend, &s->backend, err);
    s->prefixes.backend = s->budget.backend = s->backend;
    s->prefixes.files.backend = s->loader.backend = s->backend;
    if (st == AG_OK) st = check_base(s, err);
    if (st == AG_OK && !p.memory_limit && p.prefix_bytes == UINT64_MAX)
        st = ag_sys_monitor_create(NULL, &s->prefixes.monitor, err);
    if (st == AG_OK) st = open_files(s, err);
    if (st == AG_OK) st = ag_mask_thread_open(&s->masks, err);
    if (st == AG_OK) {
        ag_serving_publish(s, true);
        const int failed = ag_os_thread_start(&s->thread, engine_main, s);
        if (failed) st = AG_FAIL(err, NOMEM, "engine thread: error %d", failed);
    }
    if (st != AG_OK) {
        release(s);
        return st;
    }
    *out = s;
    return AG_OK;
}

void ag_serving_destroy(ag_serving *s) {
    if (!s) return;
    ag_mutex_lock(&s->lock);
    s->queue.is_closed = true;
    ag_condition_broadcast(&s->work);
    ag_mutex_unlock(&s->lock);
    ag_os_thread_join(&s->thread);
    release(s);
}
