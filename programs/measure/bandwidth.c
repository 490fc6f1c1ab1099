/* SPDX-License-Identifier: Apache-2.0 */
#include "bandwidth.h"

#include "clock.h"
#include "read_loops.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GATE_CLOSED, GATE_OPEN, GATE_ABANDONED };
enum { MIN_PASSES = 2, FINALISTS = 3 };
static const size_t max_bytes = (size_t)1 << 30;
static const size_t huge_page = (size_t)2 << 20;
/* Reading time per loop: to choose the finalists, and in a measurement. */
static const double choice_s = 0.05, measure_s = 0.1;
static const char limit_name[] = "AG_BANDWIDTH_MIB";

struct bandwidth {
    unsigned char *data;
    size_t bytes, mapped;
    bool is_brief; /* MIN_PASSES per loop */
    uint32_t n_threads;
    size_t slice;                /* bytes per thread, a multiple of READ_UNIT_BYTES */
    read_loop chosen[FINALISTS]; /* fastest first; NULL: fewer finalists */
    /* State of a measurement. */
    read_loop loop; /* NULL: touch the pages */
    double duration_s, best_s;
    bool more; /* another pass follows */
    pthread_barrier_t barrier;
    atomic_int gate; /* GATE_CLOSED until all threads have started */
    _Atomic uint64_t sink;
};

typedef struct reader {
    bandwidth *b;
    uint32_t index;
} reader;

/* Returns the bytes that the environment sets; 0 if unset or not a number from 1 to 1024. */
static size_t wanted_bytes(void) {
    const char *text = getenv(limit_name);
    char *end = NULL;
    const unsigned long mib = text ? strtoul(text, &end, 10) : 0;
    return mib && !*end && mib <= max_bytes >> 20 ? (size_t)mib << 20 : 0;
}

/* Returns an eighth of the free memory, at most max_bytes, so that other programs keep theirs. */
static size_t choose_bytes(void) {
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t available = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : max_bytes;
    return available / 8 < max_bytes ? available / 8 : max_bytes;
}

/* Reads the slice repeatedly until the time is up. All threads begin and end each pass together. */
static void read_slice(const reader *r) {
    bandwidth *b = r->b;
    size_t shift = huge_page - (uintptr_t)b->data % huge_page;
    unsigned char *base = b->data + shift % huge_page + r->index * b->slice;
    uint64_t sum = 0;
    if (!b->loop) {
        memset(base, 1, b->slice); /* first touch, on the NUMA node of the reader */
        return;
    }
    double first = clock_s();
    for (int pass = 1; b->more; pass++) {
        pthread_barrier_wait(&b->barrier);
        double begin = clock_s();
        sum += b->loop((const uint64_t *)(const void *)base, b->slice / sizeof(uint64_t));
        pthread_barrier_wait(&b->barrier);
        double now = clock_s();
        if (r->index == 0) {
            if (now - begin < b->best_s) b->best_s = now - begin;
            b->more = pass < MIN_PASSES || now - first < b->duration_s;
        }
        pthread_barrier_wait(&b->barrier);
    }
    atomic_fetch_add(&b->sink, sum);
}

static void *run_reader(void *user) {
    const reader *r = user;
    while (atomic_load(&r->b->gate) == GATE_CLOSED) sched_yield();
    if (atomic_load(&r->b->gate) == GATE_OPEN) read_slice(r);
    return NULL;
}

/* Runs all readers; the calling thread is the first. Returns false if a thread could not be
 * started. Then the started ones leave before the barrier, which would block forever. */
static bool run_all(bandwidth *b, pthread_t *threads, reader *readers) {
    uint32_t n = 1;
    atomic_store(&b->gate, GATE_CLOSED);
    for (; n < b->n_threads; n++) {
        readers[n] = (reader){b, n};
        if (pthread_create(&threads[n], NULL, run_reader, &readers[n]) != 0) break;
    }
    bool complete = n == b->n_threads;
    atomic_store(&b->gate, complete ? GATE_OPEN : GATE_ABANDONED);
    readers[0] = (reader){b, 0};
    if (complete) read_slice(&readers[0]);
    for (uint32_t i = 1; i < n; i++) pthread_join(threads[i], NULL);
    return complete;
}

/* Returns bytes/s of the loop's best pass; 0 if threads could not be started. */
static double run_loop(bandwidth *b, read_loop loop, double duration_s) {
    double rate = 0;
    pthread_t *threads = calloc(b->n_threads, sizeof *threads);
    reader *readers = calloc(b->n_threads, sizeof *readers);
    b->loop = loop;
    b->duration_s = b->is_brief ? 0 : duration_s;
    b->best_s = 1e9;
    b->more = true;
    if (threads && readers && pthread_barrier_init(&b->barrier, NULL, b->n_threads) == 0) {
        if (run_all(b, threads, readers)) rate = (double)b->bytes / b->best_s;
        pthread_barrier_destroy(&b->barrier);
    }
    free(threads);
    free(readers);
    return rate;
}

/* Chooses several loops, since one timing may favour the wrong loop. */
static void choose_loops(bandwidth *b) {
    read_loop loops[READ_LOOPS_MAX];
    double rates[FINALISTS] = {0};
    const size_t n = read_loops_list(loops);
    for (size_t i = 0; i < n; i++) {
        const double rate = run_loop(b, loops[i], choice_s);
        size_t rank = FINALISTS;
        while (rank > 0 && rate > rates[rank - 1]) rank--;
        for (size_t k = FINALISTS; k-- > rank + 1;) {
            rates[k] = rates[k - 1];
            b->chosen[k] = b->chosen[k - 1];
        }
        if (rank == FINALISTS) continue;
        rates[rank] = rate;
        b->chosen[rank] = loops[i];
    }
}

bandwidth *bandwidth_create(uint32_t n_threads) {
    bandwidth *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    b->n_threads = n_threads ? n_threads : 1;
    const size_t wanted = wanted_bytes();
    b->is_brief = wanted > 0;
    b->slice =
        (wanted ? wanted : choose_bytes()) / b->n_threads / READ_UNIT_BYTES * READ_UNIT_BYTES;
    b->bytes = b->slice * b->n_threads;
    b->mapped = b->bytes + huge_page;
    void *p =
        b->bytes ? mmap(NULL, b->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                 : MAP_FAILED;
    if (p == MAP_FAILED) {
        free(b);
        return NULL;
    }
    b->data = p;
    /* Fails without huge pages. Small pages measure lower rates, as decoding sees them. */
    madvise(p, b->mapped, MADV_HUGEPAGE);
    run_loop(b, NULL, 0);
    choose_loops(b);
    return b;
}

void bandwidth_destroy(bandwidth *b) {
    if (!b) return;
    munmap(b->data, b->mapped);
    free(b);
}

double bandwidth_measure(bandwidth *b) {
    double best = 0;
    for (size_t i = 0; b && i < FINALISTS && b->chosen[i]; i++) {
        const double rate = run_loop(b, b->chosen[i], measure_s);
        if (rate > best) best = rate;
    }
    return best;
}

void bandwidth_sweep(bandwidth *b) {
    if (b && b->chosen[0]) run_loop(b, b->chosen[0], 0);
}
