/* SPDX-License-Identifier: Apache-2.0 */
/* A dispatch: the caller publishes a job by opening `state`. Workers that are awake join it, and
 * all claim chunks from one counter. When no chunk is left, the caller closes the job and waits for
 * the workers that joined. A worker that wakes up later finds the job closed. The caller does not
 * wait for it, so threads in excess of cores cost little. */
#include "backend/cpu/pool.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "platform/clock.h"
#include "platform/cpus.h"
#include "platform/thread.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { MAX_THREADS = 1024, CACHE_LINE = 64 };
/* Spin time: longer than the single-threaded steps between two dispatches of a decoded token. */
enum { SPIN_NS = 100000, PAUSES_PER_CLOCK_READ = 32 };

/* state: generation of the job << 32 | OPEN | number of workers inside it */
#define STATE_OPEN (UINT64_C(1) << 31)
#define STATE_WORKERS (STATE_OPEN - 1)
#define STATE_GENERATION (~UINT64_C(0) << 32)

struct ag_pool {
    uint32_t n_threads; /* including the caller's */
    bool on_big;        /* workers are bound to the big cores */
    ag_cpu_set big;
    bool spins;

    /* The job: written while no worker is inside, read after joining. */
    ag_pool_fn work;
    void *ctx;
    size_t n, grain, n_chunks;

    _Alignas(CACHE_LINE) atomic_size_t next_chunk;
    _Alignas(CACHE_LINE) _Atomic uint64_t state;
    _Alignas(CACHE_LINE) atomic_uint n_sleeping; /* workers that wait for `wake` */
    atomic_bool caller_sleeps, stop;

    ag_mutex mutex; /* only for going to sleep */
    ag_condition wake, done;

    uint32_t n_started;
    struct worker {
        ag_pool *pool;
        ag_os_thread thread;
        uint32_t index;
    } workers[];
};

static void cpu_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
    __asm__ volatile("yield");
#endif
}

static void run_chunks(ag_pool *p, uint32_t thread) {
    for (;;) {
        size_t chunk = atomic_fetch_add_explicit(&p->next_chunk, 1, memory_order_relaxed);
        if (chunk >= p->n_chunks) return;
        size_t begin = chunk * p->grain;
        size_t end = p->n - begin < p->grain ? p->n : begin + p->grain;
        p->work(p->ctx, begin, end, thread);
    }
}

/* ---- workers ---- */

static bool has_news(ag_pool *p, uint64_t seen_generation) {
    uint64_t s = atomic_load(&p->state);
    return ((s & STATE_OPEN) && (s & STATE_GENERATION) != seen_generation) || atomic_load(&p->stop);
}

static void worker_wait(ag_pool *p, uint64_t seen_generation) {
    if (p->spins) {
        int64_t end = ag_now_ns() + SPIN_NS;
        do {
            for (int i = 0; i < PAUSES_PER_CLOCK_READ; i++) {
                if (has_news(p, seen_generation)) return;
                cpu_pause();
            }
        } while (ag_now_ns() < end);
    }
    ag_mutex_lock(&p->mutex);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (!has_news(p, seen_generation)) ag_condition_wait(&p->wake, &p->mutex);
    atomic_fetch_sub(&p->n_sleeping, 1);
    ag_mutex_unlock(&p->mutex);
}

/* Joins the open job if it is new, and writes its generation to *seen_generation. */
static bool join(ag_pool *p, uint64_t *seen_generation) {
    uint64_t s = atomic_load(&p->state);
    while ((s & STATE_OPEN) && (s & STATE_GENERATION) != *seen_generation) {
        if (!atomic_compare_exchange_weak(&p->state, &s, s + 1)) continue;
        *seen_generation = s & STATE_GENERATION;
        return true;
    }
    return false;
}

static void leave(ag_pool *p) {
    uint64_t before = atomic_fetch_sub(&p->state, 1);
    if ((before & (STATE_OPEN | STATE_WORKERS)) != 1 || !atomic_load(&p->caller_sleeps)) return;
    ag_mutex_lock(&p->mutex);
    ag_condition_signal(&p->done);
    ag_mutex_unlock(&p->mutex);
}

static void *worker_main(void *arg) {
    struct worker *w = arg;
    ag_pool *p = w->pool;
    uint64_t seen_generation = 0;
    if (p->on_big) ag_bind_thread(&p->big);
    while (!atomic_load(&p->stop)) {
        if (join(p, &seen_generation)) {
            run_chunks(p, w->index);
            leave(p);
        } else {
            worker_wait(p, seen_generation);
        }
    }
    return NULL;
}

/* ---- the caller ---- */

static void wake_workers(ag_pool *p) {
    if (!atomic_load(&p->n_sleeping)) return;
    ag_mutex_lock(&p->mutex);
    ag_condition_broadcast(&p->wake);
    ag_mutex_unlock(&p->mutex);
}

static bool workers_left(ag_pool *p) { return (atomic_load(&p->state) & STATE_WORKERS) == 0; }

static void caller_wait(ag_pool *p) {
    if (p->spins) {
        int64_t end = ag_now_ns() + SPIN_NS;
        do {
            for (int i = 0; i < PAUSES_PER_CLOCK_READ; i++) {
                if (workers_left(p)) return;
                cpu_pause();
            }
        } while (ag_now_ns() < end);
    } else if (workers_left(p)) {
        return;
    }
    ag_mutex_lock(&p->mutex);
    atomic_store(&p->caller_sleeps, true);
    while (!workers_left(p)) ag_condition_wait(&p->done, &p->mutex);
    atomic_store(&p->caller_sleeps, false);
    ag_mutex_unlock(&p->mutex);
}

void ag_pool_run(ag_pool *p, size_t n, size_t grain, ag_pool_fn work, void *ctx) {
    if (!n) return;
    if (!grain) grain = 1;
    if (p->n_threads == 1 || n <= grain) {
        work(ctx, 0, n, 0);
        return;
    }
    p->work = work;
    p->ctx = ctx;
    p->n = n;
    p->grain = grain;
    p->n_chunks = n / grain + (n % grain != 0);
    atomic_store_explicit(&p->next_chunk, 0, memory_order_relaxed);
    uint64_t generation = atomic_load_explicit(&p->state, memory_order_relaxed) & STATE_GENERATION;
    atomic_store(&p->state, (generation + (UINT64_C(1) << 32)) | STATE_OPEN);
    wake_workers(p);
    run_chunks(p, 0);
    atomic_fetch_and(&p->state, ~STATE_OPEN);
    caller_wait(p);
}

uint32_t ag_pool_threads(const ag_pool *p) { return p->n_threads; }

/* ---- life ---- */

static ag_status start_workers(ag_pool *p, ag_error *err) {
    for (uint32_t i = 0; i + 1 < p->n_threads; i++) {
        struct worker *w = &p->workers[i];
        *w = (struct worker){.pool = p, .index = i + 1};
        const int failure = ag_os_thread_start(&w->thread, worker_main, w);
        if (failure)
            return AG_FAIL(err, NOMEM, "thread %u of %u: %s", i + 2, p->n_threads,
                           strerror(failure));
        p->n_started++;
    }
    return AG_OK;
}

ag_status ag_pool_create(uint32_t n_threads, ag_pool **out, ag_error *err) {
    *out = NULL;
    uint32_t usable = ag_usable_cpus();
    ag_cpu_set cores = {0};
    bool fewer = false;
    if (!n_threads) {
        n_threads = ag_default_cpus(&cores, &fewer);
        if (n_threads > MAX_THREADS) n_threads = MAX_THREADS;
    }
    if (n_threads > MAX_THREADS) {
        return AG_FAIL(err, INVALID, "%u threads asked for, %d is the limit", n_threads,
                       MAX_THREADS);
    }
    ag_pool *p = ag_aligned_alloc(sizeof *p + (n_threads - 1) * sizeof p->workers[0]);
    if (!p) return AG_FAIL(err, NOMEM, "thread pool of %u threads", n_threads);
    memset(p, 0, sizeof *p);
    p->n_threads = n_threads;
    p->on_big = fewer;
    p->big = cores;
    p->spins = n_threads <= usable;
    ag_mutex_init(&p->mutex);
    ag_condition_init(&p->wake);
    ag_condition_init(&p->done);
    ag_status st = start_workers(p, err);
    if (st != AG_OK) {
        ag_pool_destroy(p);
        return st;
    }
    *out = p;
    return AG_OK;
}

void ag_pool_destroy(ag_pool *p) {
    if (!p) return;
    ag_mutex_lock(&p->mutex);
    atomic_store(&p->stop, true);
    ag_condition_broadcast(&p->wake);
    ag_mutex_unlock(&p->mutex);
    for (uint32_t i = 0; i < p->n_started; i++) ag_os_thread_join(&p->workers[i].thread);
    ag_condition_destroy(&p->done);
    ag_condition_destroy(&p->wake);
    ag_mutex_destroy(&p->mutex);
    ag_aligned_free(p);
}
