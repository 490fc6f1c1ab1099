/* SPDX-License-Identifier: Apache-2.0 */
/* micro_bench: times single operations and compares them with the limits of the machine. */
#ifndef MICRO_BENCH_H
#define MICRO_BENCH_H

#include "bandwidth.h"
#include "oracle/oracle.h"

enum { MAX_NAMES = 16, MAX_RUNS = 1000 };

typedef enum report_format { REPORT_TABLE, REPORT_CSV, REPORT_JSON } report_format;

/* Names to select; empty: all. */
typedef struct name_list {
    const char *v[MAX_NAMES];
    size_t n;
} name_list;

typedef enum case_set {
    CASES_ORACLE = 1,
    CASES_SHAPES = 2,
    CASES_KERNELS = 4,
    CASES_EVICTION = 8,
} case_set;

typedef struct options {
    name_list isas, ops, types, threads;
    unsigned sets; /* flags of case_set */
    double min_s;
    size_t min_runs, max_runs;
    report_format format;
    bool cold, limits;
} options;

/* Limits of the machine for an instruction set and a number of threads; 0: unknown. */
typedef struct limits {
    double read, floats, bytes; /* bytes/s; operations/s of floats and of bytes */
} limits;

/* Minimum work of an operation. */
typedef struct work {
    double bytes;      /* read and written, each once */
    double operations; /* a multiply-add counts as two; 0: not counted */
    bool of_bytes;     /* integer products */
} work;

typedef struct row {
    const char *op, *isa;
    ag_dtype type;
    size_t m, n, k;
    uint32_t threads;
    size_t n_runs;
    double median_s, min_s;
    work work;
    limits limits;
    const char *verdict; /* "ok", "unchecked", or "FAILED" */
    double nmse;
} row;

/* Sets the row's times; sorts `seconds`. */
void row_set_times(row *r, double *seconds, size_t n);

/* ---- effort.c ---- */

work work_of(const oracle_case *c, const char *isa);

/* ---- shapes.c: cases of a model of 1B parameters ---- */

bool shape_at(size_t i, oracle_case *out);

/* ---- kernels.c: quantize_row_q8_0 and vec_dot_q4_0_q8_0, through the table of kernels ---- */

/* Name and measure kernel i. Return false after the last kernel, or if memory is short. Times are
 * per row of k values. */
bool kernel_name_at(size_t i, const char **op, ag_dtype *type);
bool kernel_time(size_t i, const char *isa, const options *o, row *r);

/* ---- eviction.c: from 4096 tokens to 1024, by each policy ---- */

bool eviction_name_at(size_t i, const char **op, ag_dtype *type);
bool eviction_time(size_t i, ag_backend *be, const options *o, bandwidth *memory, row *r);

/* ---- report.c ---- */

void report_begin(const options *o, const char *machine);
void report_limits(const options *o, const char *isa, uint32_t threads, const limits *l);
void report_row(const options *o, const row *r);
void report_end(const options *o);

#endif
