/* SPDX-License-Identifier: Apache-2.0 */
/* micro_bench: times the cases of test_backend, those of a 1B model, and two kernels, per
 * instruction set. Prints options with --help. Exits with 1 if a result is wrong. */
#include "micro_bench/micro_bench.h"

#include "arithmetic.h"
#include "backend/cpu/features.h"
#include "bandwidth.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Multiply-adds above which computing the expected result takes more than 0.1 s. */
static const double max_checked = 1 << 27;

typedef struct bench {
    const options *o;
    const char *isa;
    uint32_t threads;
    ag_backend *be;
    bandwidth *memory;
    limits limits;
    size_t n_rows, n_failed;
} bench;

static bool chosen(const name_list *list, const char *name) {
    for (size_t i = 0; i < list->n; i++) {
        if (!strcmp(list->v[i], name)) return true;
    }
    return !list->n;
}

static bool wanted(const options *o, const char *op, ag_dtype type) {
    return chosen(&o->ops, op) && chosen(&o->types, ag_dtype_name(type));
}

/* ---- rows ---- */

static void emit(bench *b, row *r) {
    r->limits = b->limits;
    if (r->threads == 1 && b->threads > 1) r->limits = (limits){0}; /* limits are of all threads */
    report_row(b->o, r);
    b->n_rows++;
    b->n_failed += !strcmp(r->verdict, "FAILED");
}

static void sweep(void *user) { bandwidth_sweep(user); }

static void time_case(bench *b, const oracle_case *c) {
    static double seconds[MAX_RUNS];
    const options *o = b->o;
    oracle_timing timing = {.least_s = o->min_s,
                            .least_runs = o->min_runs,
                            .most_runs = o->max_runs,
                            .before = o->cold ? sweep : NULL,
                            .user = b->memory,
                            .seconds = seconds};
    row r = {c->op, b->isa, c->type, c->m, c->n, c->k, b->threads, .verdict = "ok"};
    r.work = work_of(c, b->isa);
    timing.unchecked = r.work.operations > 2 * max_checked;
    oracle_run run;
    oracle_case_time(c, b->be, 1, &timing, &run);
    const oracle_score score = oracle_compare(&run);
    r.nmse = score.nmse;
    if (run.status != AG_OK || run.out_of_memory || run.guard_faults || score.n_unlike ||
        !(score.nmse <= c->nmse)) {
        r.verdict = "FAILED";
    } else if (timing.unchecked) {
        r.verdict = "unchecked";
    }
    oracle_run_free(&run);
    row_set_times(&r, seconds, timing.n_runs);
    emit(b, &r);
}

static void time_cases(bench *b, bool (*case_at)(size_t i, oracle_case *out)) {
    oracle_case c;
    for (size_t i = 0; case_at(i, &c); i++) {
        if (c.data == DATA_PLAIN && wanted(b->o, c.op, c.type)) time_case(b, &c);
    }
}

static void time_kernels(bench *b) {
    const char *op;
    ag_dtype type;
    for (size_t i = 0; kernel_name_at(i, &op, &type); i++) {
        row r;
        if (!wanted(b->o, op, type)) continue;
        if (kernel_time(i, b->isa, b->o, &r)) emit(b, &r);
        else b->n_failed++;
    }
}

static void time_evictions(bench *b) {
    const char *op;
    ag_dtype type;
    for (size_t i = 0; eviction_name_at(i, &op, &type); i++) {
        row r;
        if (!wanted(b->o, op, type)) continue;
        if (!eviction_time(i, b->be, b->o, b->memory, &r)) {
            b->n_failed++;
            continue;
        }
        r.isa = b->isa;
        r.threads = b->threads;
        emit(b, &r);
    }
}

/* ---- instruction sets and threads ---- */

static bool open_bench(bench *b) {
    ag_error err;
    const ag_backend_params params = {.name = "cpu", .n_threads = b->threads};
    setenv("AG_CPU_ISA", b->isa, 1);
    if (ag_backend_create(&params, &b->be, &err) != AG_OK) {
        fprintf(stderr, "micro_bench: %s\n", err.msg);
        return false;
    }
    b->threads = ag_backend_threads(b->be);
    if (b->o->limits || b->o->cold) b->memory = bandwidth_create(b->threads);
    if (b->o->limits) {
        b->limits.read = bandwidth_measure(b->memory);
        b->limits.floats = arithmetic_measure(b->isa, ARITHMETIC_FLOATS, b->threads);
        b->limits.bytes = arithmetic_measure(b->isa, ARITHMETIC_BYTES, b->threads);
    }
    report_limits(b->o, b->isa, b->threads, &b->limits);
    return true;
}

static void close_bench(bench *b) {
    bandwidth_destroy(b->memory);
    ag_backend_destroy(b->be);
}

/* Returns the number of rows; adds to *n_failed. */
static size_t run_one(const options *o, const char *isa, uint32_t threads, size_t *n_failed) {
    bench b = {.o = o, .isa = isa, .threads = threads};
    if (open_bench(&b)) {
        if (o->sets & CASES_KERNELS) time_kernels(&b);
        if (o->sets & CASES_SHAPES) time_cases(&b, shape_at);
        if (o->sets & CASES_ORACLE) time_cases(&b, oracle_case_at);
        if (o->sets & CASES_EVICTION) time_evictions(&b);
    } else {
        b.n_failed++;
    }
    close_bench(&b);
    *n_failed += b.n_failed;
    return b.n_rows;
}

/* Lists the requested instruction sets that this machine supports; by default the highest. */
static size_t list_isas(const options *o, const char *isas[AG_CPU_ISA_COUNT]) {
    const uint32_t features = ag_cpu_features();
    size_t n = 0;
    for (unsigned i = 0; i < AG_CPU_ISA_COUNT; i++) {
        const char *name = ag_cpu_isa_name((ag_cpu_isa)i);
        if (!(features >> i & 1)) continue;
        if (!o->isas.n) isas[0] = name, n = 1;
        else if (chosen(&o->isas, name) || chosen(&o->isas, "all")) isas[n++] = name;
    }
    return n;
}

static int run_all(const options *o) {
    const char *isas[AG_CPU_ISA_COUNT];
    const size_t n_isas = list_isas(o, isas);
    char machine[96];
    size_t n_rows = 0, n_failed = 0;
    report_begin(o, ag_cpu_features_format(ag_cpu_features(), machine, sizeof machine));
    for (size_t i = 0; i < n_isas; i++) {
        for (size_t t = 0; t < (o->threads.n ? o->threads.n : 1); t++) {
            const uint32_t threads =
                o->threads.n ? (uint32_t)strtoul(o->threads.v[t], NULL, 10) : 0;
            n_rows += run_one(o, isas[i], threads, &n_failed);
        }
    }
    report_end(o);
    if (!n_rows) fprintf(stderr, "micro_bench: nothing on this machine is of that name\n");
    return n_failed || !n_rows;
}

/* ---- the command line ---- */

static void print_usage(FILE *out) {
    char types[AG_DTYPE_LIST];
    fprintf(
        out,
        "usage: micro_bench [OPTION]...\n"
        "  --op NAME,...        operations, as test_backend prints them, quantize_row_q8_0 and\n"
        "                       vec_dot_q4_0_q8_0 (all)\n"
        "  --type NAME,...      of weights: %s (all)\n"
        "  --isa NAME,...|all   instruction sets (the highest of this machine)\n"
        "  --threads N,...      (the number that the backend chooses)\n"
        "  --cases NAME,...     oracle: what test_backend checks; shapes: a model of 1B "
        "parameters;\n"
        "                       kernels: two loops alone; eviction: 4096 tokens to 1024 in the\n"
        "                       cache of such a model, by each policy, an operation each (all)\n"
        "  --ms MS              minimum time of a row, which has at least 5 runs (50)\n"
        "  --runs N             exact number of runs of a row\n"
        "  --cold               sweep the caches before each run: shares of the read rate need it\n"
        "  --no-limits          do not measure the machine's limits\n"
        "  --format NAME        table, csv or json (table)\n",
        ag_dtype_list(AG_DTYPE_WEIGHT, types, sizeof types));
}

/* Splits `text` at its commas; overwrites it. */
static bool split(name_list *list, char *text) {
    for (char *name = strtok(text, ","); name; name = strtok(NULL, ",")) {
        if (list->n == MAX_NAMES) return false;
        list->v[list->n++] = name;
    }
    return list->n > 0;
}

static bool set_cases(options *o, char *text) {
    name_list names = {0};
    o->sets = 0;
    if (!split(&names, text)) return false;
    for (size_t i = 0; i < names.n; i++) {
        if (!strcmp(names.v[i], "oracle")) o->sets |= CASES_ORACLE;
        else if (!strcmp(names.v[i], "shapes")) o->sets |= CASES_SHAPES;
        else if (!strcmp(names.v[i], "kernels")) o->sets |= CASES_KERNELS;
        else if (!strcmp(names.v[i], "eviction")) o->sets |= CASES_EVICTION;
        else return false;
    }
    return true;
}

static bool set_format(options *o, const char *name) {
    static const char *const formats[] = {"table", "csv", "json"};
    for (unsigned i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (strcmp(formats[i], name) != 0) continue;
        o->format = (report_format)i;
        return true;
    }
    return false;
}

static bool set_runs(options *o, const char *text) {
    o->min_runs = o->max_runs = strtoul(text, NULL, 10);
    o->min_s = 1e9;
    return o->max_runs >= 1 && o->max_runs <= MAX_RUNS;
}

static bool set_ms(options *o, const char *text) {
    char *end;
    o->min_s = strtod(text, &end) * 1e-3;
    return end != text && !*end && o->min_s >= 0;
}

static bool check_threads(const name_list *list) {
    for (size_t i = 0; i < list->n; i++) {
        const unsigned long n = strtoul(list->v[i], NULL, 10);
        if (n < 1 || n > 1024) return false;
    }
    return true;
}

enum { OP = 1, TYPE, ISA, THREADS, CASES, MS, RUNS, COLD, NO_LIMITS, FORMAT, HELP };

static bool set_option(options *o, int option, char *value) {
    switch (option) {
    case OP:
        return split(&o->ops, value);
    case TYPE:
        return split(&o->types, value);
    case ISA:
        return split(&o->isas, value);
    case THREADS:
        return split(&o->threads, value) && check_threads(&o->threads);
    case CASES:
        return set_cases(o, value);
    case MS:
        return set_ms(o, value);
    case RUNS:
        return set_runs(o, value);
    case FORMAT:
        return set_format(o, value);
    case COLD:
        o->cold = true;
        return true;
    case NO_LIMITS:
        o->limits = false;
        return true;
    default:
        return false;
    }
}

int main(int argc, char **argv) {
    static const struct option names[] = {
        {"op", required_argument, NULL, OP},         {"type", required_argument, NULL, TYPE},
        {"isa", required_argument, NULL, ISA},       {"threads", required_argument, NULL, THREADS},
        {"cases", required_argument, NULL, CASES},   {"ms", required_argument, NULL, MS},
        {"runs", required_argument, NULL, RUNS},     {"cold", no_argument, NULL, COLD},
        {"no-limits", no_argument, NULL, NO_LIMITS}, {"format", required_argument, NULL, FORMAT},
        {"help", no_argument, NULL, HELP},           {0}};
    options o = {.sets = CASES_ORACLE | CASES_SHAPES | CASES_KERNELS | CASES_EVICTION,
                 .min_s = 0.05,
                 .min_runs = 5,
                 .max_runs = MAX_RUNS,
                 .limits = true};
    for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (option == HELP) {
            print_usage(stdout);
            return 0;
        }
        if (set_option(&o, option, optarg)) continue;
        if (option != '?' && optarg) fprintf(stderr, "micro_bench: '%s' does not fit\n", optarg);
        print_usage(stderr);
        return 2;
    }
    return run_all(&o);
}
