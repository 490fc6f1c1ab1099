/* SPDX-License-Identifier: Apache-2.0 */
/* micro_bench: one operation at a time, beside what the machine can do. */
#ifndef MICRO_BENCH_H
#define MICRO_BENCH_H

#include "bandwidth.h"
#include "oracle/oracle.h"

enum { MAX_NAMES = 16, MAX_RUNS = 1000 };

typedef enum report_format { REPORT_TABLE, REPORT_CSV, REPORT_JSON } report_format;

/* Names to choose by; none: all. */
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
    unsigned sets; /* case_set */
    double min_s;
    size_t min_runs, max_runs;
    report_format format;
    bool cold, limits;
} options;

/* What a machine can do with one instruction set and number of threads; 0: unknown. */
typedef struct limits {
    double read, floats, bytes; /* bytes per second; operations per second */
} limits;

/* What an operation has to do at least. */
typedef struct work {
    double bytes;      /* read and written, each once */
    double operations; /* multiplications and additions of products; 0: none are counted */
    bool of_bytes;     /* the products are of whole numbers */
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

/* Sorts the times. */
void row_set_times(row *r, double *seconds, size_t n);

/* ---- effort.c ---- */

work work_of(const oracle_case *c, const char *isa);

/* ---- shapes.c: cases of a model of 1B parameters ---- */

bool shape_at(size_t i, oracle_case *out);

/* ---- kernels.c: quantize_row_q8_0 and vec_dot_q4_0_q8_0, through the table of kernels ---- */

/* Kernel number i with the instruction set isa; false past the end. The row's times are per row of
 * k values. */
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
