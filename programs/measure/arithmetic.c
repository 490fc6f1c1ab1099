/* SPDX-License-Identifier: Apache-2.0 */
#include "arithmetic.h"

#include "clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { PASSES = 5 };
static const double pass_s = 0.01;

typedef struct worker {
    const peak_loop *loop;
    double rate; /* operations/s of its best pass */
} worker;

/* Returns a number of steps that takes about pass_s. */
static size_t choose_steps(const peak_loop *loop) {
    for (size_t n = 1000;; n *= 2) {
        const double begin = clock_s();
        loop->run(n);
        if (clock_s() - begin >= pass_s / 2) return 2 * n;
    }
}

static void *work(void *user) {
    worker *w = user;
    if (w->loop->prepare && !w->loop->prepare()) return NULL;
    const size_t n = choose_steps(w->loop);
    for (int i = 0; i < PASSES; i++) {
        const double begin = clock_s();
        w->loop->run(n);
        const double rate = (double)n * w->loop->operations / (clock_s() - begin);
        if (rate > w->rate) w->rate = rate;
    }
    return NULL;
}

static double run_workers(const peak_loop *loop, uint32_t n_threads) {
    double rate = 0;
    uint32_t n = 0;
    pthread_t *threads = calloc(n_threads, sizeof *threads);
    worker *workers = calloc(n_threads, sizeof *workers);
    for (; threads && workers && n < n_threads; n++) {
        workers[n].loop = loop;
        if (pthread_create(&threads[n], NULL, work, &workers[n]) != 0) break;
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(threads[i], NULL);
        rate += workers[i].rate;
    }
    free(threads);
    free(workers);
    return n == n_threads ? rate : 0;
}

double arithmetic_measure(const char *isa, arithmetic_kind kind, uint32_t n_threads) {
    for (size_t i = 0; i < n_peak_loops; i++) {
        const peak_loop *loop = &peak_loops[i];
        if (strcmp(loop->isa, isa) == 0 && loop->kind == kind) return run_workers(loop, n_threads);
    }
    return 0;
}
