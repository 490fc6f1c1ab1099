/* SPDX-License-Identifier: Apache-2.0 */
#include "bandwidth.h"

#include "clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

enum { GATE_CLOSED, GATE_OPEN, GATE_GIVEN_UP };
enum { MIN_PASSES = 2, UNIT_BYTES = 4096, MAX_LOOPS = 6 };
static const size_t most_bytes = (size_t)1 << 30;
static const size_t huge_page = (size_t)2 << 20;
/* How long to read: to choose the loop, and with the chosen one. */
static const double choice_s = 0.05, measure_s = 0.3;

/* Reads words[0..n); the sum keeps the compiler honest. */
typedef uint64_t (*read_loop)(const uint64_t *words, size_t n);

struct bandwidth {
    unsigned char *data;
    size_t bytes, mapped;
    uint32_t n_threads;
    size_t slice;     /* bytes of one thread, whole units */
    read_loop chosen; /* the fastest */
    /* A measurement under way. */
    read_loop loop; /* NULL: pages come into being */
    double duration_s, best_s;
    bool more; /* another pass follows */
    pthread_barrier_t barrier;
    atomic_int gate; /* GATE_CLOSED until all threads are there */
    _Atomic uint64_t sink;
};

typedef struct reader {
    bandwidth *b;
    uint32_t index;
} reader;

static uint64_t read_words_1(const uint64_t *p, size_t n) {
    uint64_t s[8] = {0};
    for (size_t i = 0; i < n; i += 8)
        for (size_t k = 0; k < 8; k++) s[k] += p[i + k];
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

static uint64_t read_words_4(const uint64_t *p, size_t n) {
    uint64_t s[8] = {0};
    size_t part = n / 4;
    for (size_t i = 0; i < part; i += 8) {
        for (size_t k = 0; k < 8; k++) {
            s[k] += p[i + k];
            s[k] += p[part + i + k];
            s[k] += p[2 * part + i + k];
            s[k] += p[3 * part + i + k];
        }
    }
    return s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

#ifdef __x86_64__
__attribute__((target("avx2"))) static __m256i load_256(const uint64_t *p) {
    return _mm256_load_si256((const __m256i *)(const void *)p);
}

/* Two lines of each of `streams` parts a step. */
__attribute__((target("avx2"))) static uint64_t read_256(const uint64_t *p, size_t n,
                                                         size_t streams) {
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    size_t part = n / streams;
    for (size_t i = 0; i < part; i += 16) {
        for (size_t s = 0; s < streams; s++) {
            const uint64_t *q = p + s * part + i;
            a = _mm256_xor_si256(a, load_256(q));
            b = _mm256_xor_si256(b, load_256(q + 4));
            c = _mm256_xor_si256(c, load_256(q + 8));
            d = _mm256_xor_si256(d, load_256(q + 12));
        }
    }
    a = _mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d));
    return (uint64_t)_mm256_extract_epi64(a, 0);
}

__attribute__((target("avx2"))) static uint64_t read_256_1(const uint64_t *p, size_t n) {
    return read_256(p, n, 1);
}

__attribute__((target("avx2"))) static uint64_t read_256_4(const uint64_t *p, size_t n) {
    return read_256(p, n, 4);
}

__attribute__((target("avx512f"))) static uint64_t read_512(const uint64_t *p, size_t n,
                                                            size_t streams) {
    __m512i a = _mm512_setzero_si512(), b = a;
    size_t part = n / streams;
    for (size_t i = 0; i < part; i += 16) {
        for (size_t s = 0; s < streams; s++) {
            const uint64_t *q = p + s * part + i;
            a = _mm512_xor_si512(a, _mm512_load_si512((const void *)q));
            b = _mm512_xor_si512(b, _mm512_load_si512((const void *)(q + 8)));
        }
    }
    return (uint64_t)_mm512_reduce_add_epi64(_mm512_xor_si512(a, b));
}

__attribute__((target("avx512f"))) static uint64_t read_512_1(const uint64_t *p, size_t n) {
    return read_512(p, n, 1);
}

__attribute__((target("avx512f"))) static uint64_t read_512_4(const uint64_t *p, size_t n) {
    return read_512(p, n, 4);
}
#endif

static size_t list_loops(read_loop loops[MAX_LOOPS]) {
    size_t n = 0;
    loops[n++] = read_words_1;
    loops[n++] = read_words_4;
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx2")) {
        loops[n++] = read_256_1;
        loops[n++] = read_256_4;
    }
    if (__builtin_cpu_supports("avx512f")) {
        loops[n++] = read_512_1;
        loops[n++] = read_512_4;
    }
#endif
    return n;
}

/* An eighth of what is free, so that measuring does not push others out of memory. */
static size_t choose_bytes(void) {
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    size_t available = pages > 0 && page > 0 ? (size_t)pages * (size_t)page : most_bytes;
    return available / 8 < most_bytes ? available / 8 : most_bytes;
}

/* Passes over the slice until the time is up; all threads begin and end each of them together. */
static void read_slice(const reader *r) {
    bandwidth *b = r->b;
    size_t shift = huge_page - (uintptr_t)b->data % huge_page;
    unsigned char *base = b->data + shift % huge_page + r->index * b->slice;
    uint64_t sum = 0;
    if (!b->loop) {
        memset(base, 1, b->slice); /* near the thread that reads it */
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

/* The calling thread is the first reader. False if another one could not be started: those that
 * were would wait for it at the barrier for ever, so they leave before it. */
static bool run_all(bandwidth *b, pthread_t *threads, reader *readers) {
    uint32_t n = 1;
    atomic_store(&b->gate, GATE_CLOSED);
    for (; n < b->n_threads; n++) {
        readers[n] = (reader){b, n};
        if (pthread_create(&threads[n], NULL, run_reader, &readers[n]) != 0) break;
    }
    bool complete = n == b->n_threads;
    atomic_store(&b->gate, complete ? GATE_OPEN : GATE_GIVEN_UP);
    readers[0] = (reader){b, 0};
    if (complete) read_slice(&readers[0]);
    for (uint32_t i = 1; i < n; i++) pthread_join(threads[i], NULL);
    return complete;
}

/* Bytes per second of the loop's best pass; 0 if the threads could not be started. */
static double run_loop(bandwidth *b, read_loop loop, double duration_s) {
    double rate = 0;
    pthread_t *threads = calloc(b->n_threads, sizeof *threads);
    reader *readers = calloc(b->n_threads, sizeof *readers);
    b->loop = loop;
    b->duration_s = duration_s;
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

bandwidth *bandwidth_create(uint32_t n_threads) {
    bandwidth *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    b->n_threads = n_threads ? n_threads : 1;
    b->slice = choose_bytes() / b->n_threads / UNIT_BYTES * UNIT_BYTES;
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
    /* Refused where there are no huge pages; ordinary ones measure lower, as they would decode. */
    madvise(p, b->mapped, MADV_HUGEPAGE);
    run_loop(b, NULL, 0);
    read_loop loops[MAX_LOOPS];
    size_t n = list_loops(loops);
    double best = -1;
    for (size_t i = 0; i < n; i++) {
        double rate = run_loop(b, loops[i], choice_s);
        if (rate <= best) continue;
        best = rate;
        b->chosen = loops[i];
    }
    return b;
}

void bandwidth_destroy(bandwidth *b) {
    if (!b) return;
    munmap(b->data, b->mapped);
    free(b);
}

double bandwidth_measure(bandwidth *b) { return b ? run_loop(b, b->chosen, measure_s) : 0; }

void bandwidth_sweep(bandwidth *b) {
    if (b) run_loop(b, b->chosen, 0);
}
