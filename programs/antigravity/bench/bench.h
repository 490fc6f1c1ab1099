/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity bench: options, measurements and result rows. */
#ifndef ANTIGRAVITY_BENCH_H
#define ANTIGRAVITY_BENCH_H

#include "../model/engine.h"
#include "../support/table.h"
#include "bandwidth.h"

enum { MAX_REPETITIONS = 100, MAX_RECORDINGS = 16 };

/* A generation recorded by generate --json. */
typedef struct bench_recording {
    const char *path; /* borrowed */
    ag_ids prompt, ids;
} bench_recording;

typedef struct bench_options {
    model_options model;
    const char *shape; /* NULL: a model directory */
    uint32_t layers;   /* number for the shape; 0: all */
    number_list n_prompt, n_gen, depth, threads;
    uint32_t repetitions, parallel, draft_max;
    uint32_t first_depth; /* depth of the first of several sequences; 0: as the others */
    table_format format;
    bench_recording recordings[MAX_RECORDINGS]; /* decoded instead of random prompts and tokens */
    size_t n_recordings;
    bool ops;      /* time operations, not tokens */
    bool launches; /* time launches of kernels */
} bench_options;

/* Operations of a model with their times. */
typedef struct bench_ops bench_ops;

/* Launches of kernels with their times. */
typedef struct bench_launches bench_launches;

/* One measurement. Reads a prompt if n_prompt > 0; decodes tokens if n_gen > 0. */
typedef struct bench_row {
    uint32_t n_prompt, n_gen, depth, parallel, threads;
    uint32_t first_depth;            /* tokens in the cache of the first sequence */
    double samples[MAX_REPETITIONS]; /* tokens/s of all sequences together */
    size_t n_samples;
    double wall; /* seconds of all samples */
    double median, lowest, highest, deviation;
    double read_before, read_after; /* bytes per second; 0: unknown */
    double bytes_per_token;         /* read per token: a share of the weights, and the KV cache */
    double joules;                  /* energy of the processor for a token; below 0: unknown */
    double share; /* bytes_per_token * median / read rate; 0: not a decoding row */
} bench_row;

typedef struct bench {
    const bench_options *o;
    const char *name; /* shape or directory */
    char shape[80];   /* with its number of layers */
    engine engine;
    bandwidth *bandwidth;
    bench_ops *ops;           /* NULL: operations are not timed */
    bench_launches *launches; /* NULL: launches are not timed */
} bench;

/* ---- run.c ---- */

/* Returns false after a signal. For ag_generate_params.on_token; the arguments are unused. */
bool bench_keep_going(void *user, int32_t id, const char *text, size_t len);
/* Measures the row and fills its results. Reports a failure and returns an exit code. */
int bench_measure(bench *b, bench_row *row);

/* ---- replay.c ---- */

/* Reads a recording. Reports a failure and returns an exit code; *out needs bench_recording_free()
 * also then. */
int bench_recording_read(const char *path, bench_recording *out);
void bench_recording_free(bench_recording *r);
result_table bench_replay_table(table_format format);
int bench_replay(bench *b, bench_recording *text, result_table *table);

/* ---- ops.c: operation times, summed by operation code and by layer ---- */

/* Returns NULL if out of memory. */
bench_ops *bench_ops_create(const ag_model *m);
void bench_ops_destroy(bench_ops *o);
void bench_ops_clear(bench_ops *o);
double *bench_ops_seconds(bench_ops *o); /* for ag_model_time_ops() */
result_table bench_ops_table(table_format format);
/* Adds the rows of one measurement. Returns an exit code. */
int bench_ops_print(const bench_ops *o, const bench_row *row, result_table *t);

/* ---- launches.c: times of launches on a device, summed by kernel and grid ---- */

/* Returns NULL if out of memory. */
bench_launches *bench_launches_create(void);
void bench_launches_destroy(bench_launches *l);
void bench_launches_clear(bench_launches *l);
/* Adds the backend's times since the last call. l NULL: discards them. */
ag_status bench_launches_add(bench_launches *l, ag_backend *be, ag_error *err);
result_table bench_launches_table(table_format format);
/* Sorts the launches by time and adds the rows of one measurement. Returns an exit code. */
int bench_launches_print(bench_launches *l, const bench_row *row, result_table *t);

/* ---- depth.c ---- */

/* Makes the session's cache hold `depth` tokens. Truncates what the cache holds, or writes random
 * keys and values. Layers with a state read tokens instead. */
ag_status bench_set_depth(ag_backend *be, ag_session *s, uint32_t depth, ag_error *err);
/* Returns the bytes of keys and values that attention reads for one token when the cache holds
 * n_tokens. */
double bench_cache_bytes(ag_session *s, double n_tokens);

/* ---- print.c: prints row by row; JSON only at the end ---- */

typedef struct bench_table bench_table;
bench_table *bench_table_create(const bench_options *o);
bool bench_table_add(bench_table *t, const bench *b, const bench_row *row);
/* Prints what remains, or nothing if the run failed before its first row. Frees the table. Returns
 * an exit code. */
int bench_table_finish(bench_table *t, int code);
/* Writes a test name such as "pp512" or "tg128 @ d4096" to buf and returns buf. */
const char *bench_test_name(const bench_row *row, char *buf, size_t cap);

#endif
