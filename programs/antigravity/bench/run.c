/* SPDX-License-Identifier: Apache-2.0 */
/* Measures one row: warm-up, repetitions, and the memory's read rate before and after. */
#include "bench.h"

#include "../command.h"
#include "../support/statistics.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"
#include "clock.h"
#include "energy.h"

#include <antigravity/operations.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_ATTEMPTS = 3, WARM_UP_TOKENS = 16 };
/* If two read rates differ by more than this, something else used the machine. */
static const double steady = 0.05;
/* Used if the system does not report the size of its last-level cache. */
static const uint64_t usual_cache = (uint64_t)32 << 20;

typedef struct run {
    bench *b;
    const bench_row *row;
    ag_session **sessions; /* [row->parallel] */
    ag_step_item *items;   /* [row->parallel] */
    ag_sampler *greedy;
    int32_t chosen;
    int32_t *ids; /* [max(row->n_prompt, row->parallel)] */
    ag_error err;
} run;

/* Fills ids with random tokens of the vocabulary. Speed does not depend on the ids. */
static void fill_ids(int32_t *ids, size_t n, uint32_t n_vocab) {
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)((state >> 8) % n_vocab);
    }
}

static ag_status prefill(run *r, uint32_t n) {
    ag_status status = AG_OK;
    for (uint32_t s = 0; s < r->row->parallel && status == AG_OK && n; s++)
        status = ag_session_prefill(r->sessions[s], r->ids, n, progress_update, NULL, &r->err);
    return status;
}

bool bench_keep_going(void *user, int32_t id, const char *text, size_t len) {
    (void)user, (void)id, (void)text, (void)len;
    return progress_update(NULL, 0, 0);
}

/* Decodes with sampling on the device, as generation does. Otherwise copies of the logits to the
 * host would be timed. The first pass is the prompt's. */
static ag_status decode_on_device(run *r, uint32_t n) {
    ag_generate_params p = ag_generate_defaults();
    ag_generate_stats stats;
    p.max_tokens = n;
    p.ignore_eos = true;
    p.on_token = bench_keep_going;
    p.sampler = r->greedy;
    ag_status status = ag_session_generate(r->sessions[0], r->ids, 1, &p, &stats, &r->err);
    if (status == AG_OK && stats.finish == AG_FINISH_CANCELLED) return r->err.status = AG_CANCELLED;
    return status;
}

/* Decodes a token of all sessions. choose: with samplers, which run on the device if there is one.
 */
static ag_status decode_together(run *r, bool choose) {
    const uint32_t n = r->row->parallel;
    if (!choose) return ag_session_decode_batch(r->sessions, r->ids, n, &r->err);
    for (uint32_t i = 0; i < n; i++) {
        r->items[i] = (ag_step_item){.session = r->sessions[i],
                                     .ids = &r->ids[i],
                                     .n = 1,
                                     .phase = AG_PHASE_DECODE,
                                     .logits = AG_LOGITS_LAST,
                                     .sampler = r->greedy,
                                     .chosen = &r->chosen};
    }
    return ag_session_step(r->items, n, &r->err);
}

static ag_status decode(run *r, uint32_t n) {
    ag_status status = AG_OK;
    const bool on_device = strcmp(ag_backend_name(r->b->engine.backend), "cpu") != 0;
    if (on_device && r->row->parallel == 1 && n) return decode_on_device(r, n);
    for (uint32_t i = 0; i < n && status == AG_OK; i++) {
        if (!progress_update(NULL, i + 1, n)) return r->err.status = AG_CANCELLED;
        status = r->row->parallel == 1 ? ag_session_decode(r->sessions[0], r->ids[0], &r->err)
                                       : decode_together(r, on_device);
    }
    return status;
}

/* Returns the tokens in the cache of sequence i before a test. */
static uint32_t depth_of(const bench_row *row, uint32_t i) {
    return i ? row->depth : row->first_depth;
}

/* Runs once: fills the cache to the depth, then times prefill and decoding. *joules: energy of the
 * processor; below 0: unknown. */
static ag_status time_once(run *r, uint32_t n_prompt, uint32_t n_gen, double *s, double *joules) {
    ag_backend *be = r->b->engine.backend;
    ag_status status = AG_OK;
    for (uint32_t i = 0; i < r->row->parallel && status == AG_OK; i++) {
        status = bench_set_depth(be, r->sessions[i], depth_of(r->row, i), &r->err);
    }
    if (status == AG_OK) status = ag_sync(be);
    if (status == AG_OK && r->b->launches) status = bench_launches_add(NULL, be, &r->err);
    if (r->b->ops) ag_model_time_ops(r->b->engine.model, bench_ops_seconds(r->b->ops));
    const energy_reading before = energy_read();
    double begin = clock_s();
    if (status == AG_OK) status = prefill(r, n_prompt);
    if (status == AG_OK) status = decode(r, n_gen);
    if (status == AG_OK) status = ag_sync(be);
    *s = clock_s() - begin;
    const energy_reading after = energy_read();
    *joules = energy_between(&before, &after);
    ag_model_time_ops(r->b->engine.model, NULL);
    if (status == AG_OK && r->b->launches) status = bench_launches_add(r->b->launches, be, &r->err);
    return status;
}

static void summarise(bench_row *row) {
    double sorted[MAX_REPETITIONS];
    size_t n = row->n_samples;
    memcpy(sorted, row->samples, n * sizeof sorted[0]);
    sort_ascending(sorted, n);
    row->median = percentile(sorted, n, 0.5);
    row->lowest = sorted[0];
    row->highest = sorted[n - 1];
    row->deviation = mean_of(sorted, n).deviation;
}

/* Sets the row's share of the read rate. A pass over the weights serves one token of every
 * sequence. Each sequence reads its own cache, which on average holds half of the tokens to
 * decode. */
static void set_share(const run *r, bench_row *row) {
    double rate = row->read_before > row->read_after ? row->read_before : row->read_after;
    if (!row->n_gen) return;
    double bytes = (double)ag_model_bytes_per_token(r->b->engine.model);
    for (uint32_t i = 0; i < row->parallel; i++)
        bytes += bench_cache_bytes(r->sessions[i], depth_of(row, i) + row->n_gen / 2.0);
    row->bytes_per_token = bytes / row->parallel;
    if (rate > 0) row->share = row->bytes_per_token * row->median / rate;
}

/* Returns the read rate of the backend's memory; 0 if unknown. */
static double read_rate(const bench *b) {
    double rate = 0;
    if (b->ops || b->launches) return 0; /* rows of operations and launches do not show it */
    if (b->bandwidth) return bandwidth_measure(b->bandwidth);
    return ag_backend_read_rate(b->engine.backend, &rate) == AG_OK ? rate : 0;
}

static ag_status measure_once(run *r, bench_row *row) {
    const bench_options *o = r->b->o;
    char label[64];
    double s, joules, all_joules = 0, all_tokens = 0;
    bench_test_name(row, label, sizeof label);
    progress_begin(label);
    row->n_samples = 0;
    row->wall = 0;
    row->read_before = read_rate(r->b);
    uint32_t warm_up = row->n_gen < WARM_UP_TOKENS ? row->n_gen : WARM_UP_TOKENS;
    ag_status status = time_once(r, row->n_prompt, warm_up, &s, &joules);
    if (r->b->ops) bench_ops_clear(r->b->ops);
    if (r->b->launches) bench_launches_clear(r->b->launches);
    for (uint32_t i = 0; i < o->repetitions && status == AG_OK; i++) {
        status = time_once(r, row->n_prompt, row->n_gen, &s, &joules);
        double n = (double)(row->n_prompt + row->n_gen) * row->parallel;
        row->samples[row->n_samples++] = s > 0 ? n / s : 0;
        row->wall += s;
        all_joules = all_joules < 0 || joules < 0 ? -1 : all_joules + joules;
        all_tokens += n;
    }
    if (status == AG_OK) {
        row->read_after = read_rate(r->b);
        row->joules = all_joules / all_tokens;
        summarise(row);
        set_share(r, row);
    }
    progress_end();
    if (status == AG_OK && interrupted()) status = r->err.status = AG_CANCELLED;
    return status;
}

static double disagreement(const bench_row *row) {
    double a = row->read_before, b = row->read_after;
    return a > 0 && b > 0 ? fabs(a - b) / (a > b ? a : b) : 0;
}

/* Returns whether the weights fit in the processor's caches. Then memory is not the limit and the
 * share may exceed 1. */
static bool fits_caches(const bench *b) {
    long cache = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE
    cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
#endif
    return ag_model_bytes_per_token(b->engine.model) < (cache > 0 ? (uint64_t)cache : usual_cache);
}

static bool is_steady(const bench *b, const bench_row *row) {
    if (!row->n_gen || fits_caches(b)) return true;
    return disagreement(row) <= steady && row->share <= 1;
}

static ag_status measure(run *r, bench_row *row) {
    bench_row best = *row;
    for (int attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
        bench_row one = *row;
        ag_status status = measure_once(r, &one);
        if (status != AG_OK) return status;
        const bool steady_one = is_steady(r->b, &one);
        if (steady_one || attempt == 0 || disagreement(&one) < disagreement(&best)) best = one;
        if (steady_one) break;
    }
    *row = best;
    return AG_OK;
}

static ag_status make_sampler(run *r) {
    ag_sampler_params greedy = ag_sampler_defaults();
    greedy.temperature = 0;
    greedy.repetition_penalty = 1;
    return ag_sampler_create(&greedy, (int32_t)ag_model_get_info(r->b->engine.model)->n_vocab,
                             &r->greedy, &r->err);
}

static ag_status open_sessions(run *r) {
    const bench_row *row = r->row;
    const model_options *m = &r->b->o->model;
    ag_status status = AG_OK;
    for (uint32_t i = 0; i < row->parallel && status == AG_OK; i++) {
        ag_session_params params = session_params(m, depth_of(row, i) + row->n_prompt + row->n_gen);
        status = ag_session_create(r->b->engine.model, &params, &r->sessions[i], &r->err);
        interrupt_register(r->sessions[i]);
    }
    return status;
}

int bench_measure(bench *b, bench_row *row) {
    run r = {.b = b, .row = row};
    size_t n_ids = row->n_prompt > row->parallel ? row->n_prompt : row->parallel;
    r.sessions = calloc(row->parallel, sizeof(ag_session *));
    r.items = calloc(row->parallel, sizeof *r.items);
    r.ids = malloc(n_ids * sizeof *r.ids);
    int code = EXIT_DONE;
    if (!r.sessions || !r.items || !r.ids) {
        code = complain_no_memory();
    } else {
        fill_ids(r.ids, n_ids, b->engine.info.n_vocab);
        ag_status status = make_sampler(&r);
        if (status == AG_OK) status = open_sessions(&r);
        if (status == AG_OK) status = measure(&r, row);
        if (status != AG_OK) code = complain_error(&r.err);
    }
    for (uint32_t i = 0; r.sessions && i < row->parallel; i++) {
        interrupt_unregister(r.sessions[i]);
        ag_session_destroy(r.sessions[i]);
    }
    ag_sampler_destroy(r.greedy);
    free(r.sessions);
    free(r.items);
    free(r.ids);
    return code;
}
