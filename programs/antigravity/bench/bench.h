/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity bench: what is measured, the measuring, and the rows. */
#ifndef ANTIGRAVITY_BENCH_H
#define ANTIGRAVITY_BENCH_H

#include "../model/engine.h"
#include "../support/table.h"
#include "bandwidth.h"

enum { MAX_REPETITIONS = 100, MAX_RECORDINGS = 16 };

/* A generation that was recorded by generate --json. */
typedef struct bench_recording {
    const char *path; /* borrowed */
    ag_ids prompt, ids;
} bench_recording;

typedef struct bench_options {
    model_options model;
    const char *shape; /* NULL: a model directory */
    number_list n_prompt, n_gen, depth, threads;
    uint32_t repetitions, parallel, draft_max;
    table_format format;
    bench_recording recordings[MAX_RECORDINGS]; /* instead of prompts and tokens of no meaning */
    size_t n_recordings;
    bool ops; /* times of operations instead of speeds */
} bench_options;

/* Operations of a model and their times. */
typedef struct bench_ops bench_ops;

/* One measurement: a prompt is read (n_prompt > 0) or tokens are decoded (n_gen > 0). */
typedef struct bench_row {
    uint32_t n_prompt, n_gen, depth, parallel, threads;
    double samples[MAX_REPETITIONS]; /* tokens per second, of all sequences together */
    size_t n_samples;
    double wall; /* seconds of all samples together */
    double median, lowest, highest, deviation;
    double read_before, read_after; /* bytes per second; 0: unknown */
    double bytes_per_token;         /* read for one token: a share of the weights, and the cache */
    double share;                   /* of the read rate that these use; 0: not a decoding row */
} bench_row;

typedef struct bench {
    const bench_options *o;
    const char *name; /* of the shape or the directory */
    engine engine;
    bandwidth *bandwidth;
    bench_ops *ops; /* NULL: operations are not timed */
} bench;

/* bench_run.c: goes on unless a signal came; for ag_generate_params.on_token. */
bool bench_keep_going(void *user, int32_t id, const char *text, size_t len);
/* Fills the row's results. Says what is wrong and returns an exit code. */
int bench_measure(bench *b, bench_row *row);

/* bench_replay.c: recordings decoded with drafts and without, a row each. Returns an exit code. */
int bench_recording_read(const char *path, bench_recording *out);
void bench_recording_free(bench_recording *r);
result_table bench_replay_table(table_format format);
int bench_replay(bench *b, bench_recording *text, result_table *table);

/* bench_ops.c: times of operations, summed by code and by layer. NULL: no memory. */
bench_ops *bench_ops_create(const ag_model *m);
void bench_ops_destroy(bench_ops *o);
void bench_ops_clear(bench_ops *o);
double *bench_ops_seconds(bench_ops *o); /* for ag_model_time_ops() */
result_table bench_ops_table(table_format format);
/* Adds the rows of one measurement. Returns an exit code. */
int bench_ops_print(const bench_ops *o, const bench_row *row, result_table *t);

/* bench_depth.c: makes the session's cache hold `depth` random tokens, written straight into it or
 * left from the last run. */
ag_status bench_set_depth(ag_backend *be, ag_session *s, uint32_t depth, ag_error *err);
/* Bytes of keys and values that attention reads for the token after so many. */
double bench_cache_bytes(ag_session *s, double n_tokens);

/* bench_print.c: the table row by row; JSON appears at the end. */
typedef struct bench_table bench_table;
bench_table *bench_table_create(const bench_options *o);
bool bench_table_add(bench_table *t, const bench *b, const bench_row *row);
/* Prints what is left, or nothing if the run failed, and frees the table. Returns an exit code. */
int bench_table_finish(bench_table *t, int code);
/* "pp512", "tg128 @ d4096" into buf; returns buf. */
const char *bench_test_name(const bench_row *row, char *buf, size_t cap);

#endif
