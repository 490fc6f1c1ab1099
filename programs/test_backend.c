/* SPDX-License-Identifier: Apache-2.0 */
/* test_backend [-b BACKEND,...] [-t THREADS] [-s SEED] [-f OPERATION,...] [-w TYPE,...] [-m MAX]
 * [-v]: compares every operation of the backends with double arithmetic. Prints a line per
 * operation and type. Exits with 1 if a case fails, 77 if none failed but a backend has no device.
 * --backends is -b. -w selects types; -m skips cases of more than MAX values, m * n * k. */
#include "oracle/oracle.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    ag_backend_params backend;
    char *backends; /* comma-separated names */
    uint64_t seed;
    const char *only;  /* NULL: all operations */
    const char *types; /* NULL: all types */
    size_t max_values; /* values of a case */
    bool verbose;      /* a line for each case */
} options;

typedef struct op_stats {
    const char *op;
    ag_dtype type;
    size_t n_cases, n_failed;
    double worst, tolerance;
} op_stats;

static const char *const data_names[] = {"plain", "extreme", "nonfinite"};

static void print_op_stats(const op_stats *t) {
    if (!t->op) return;
    printf("%-24s %-5s %4zu cases  worst nmse %8.2e of %8.2e  %s\n", t->op, ag_dtype_name(t->type),
           t->n_cases, t->worst, t->tolerance, t->n_failed ? "FAILED" : "ok");
}

static void print_case(const oracle_case *c, const oracle_run *run, const oracle_score *score,
                       bool passed) {
    printf("  %s %s m=%zu n=%zu k=%zu %s: ", c->op, ag_dtype_name(c->type), c->m, c->n, c->k,
           data_names[c->data]);
    if (run->out_of_memory) printf("no memory for the case");
    else if (run->status != AG_OK) printf("%s", ag_backend_error(run->be)->msg);
    else {
        printf("nmse %.3e (at most %.3e), %zu values NaN or infinite on one side, %zu bytes "
               "written outside",
               score->nmse, oracle_tolerance(c, run->be), score->n_unlike, run->guard_faults);
    }
    printf("%s\n", passed ? "" : "  FAILED");
}

/* Runs a case. The comparison of NMSE is written so that NaN fails. */
static bool check(const oracle_case *c, const options *o, ag_backend *be, uint64_t seed,
                  op_stats *t) {
    oracle_run run;
    oracle_case_run(c, be, seed, &run);
    const oracle_score score = oracle_compare(&run);
    const bool passed = run.status == AG_OK && !run.out_of_memory && !run.guard_faults &&
                        !score.n_unlike && score.nmse <= oracle_tolerance(c, be);
    if (!passed || o->verbose) print_case(c, &run, &score, passed);
    t->n_cases++;
    t->n_failed += !passed;
    if (!(score.nmse <= t->worst)) t->worst = score.nmse;
    oracle_run_free(&run);
    return passed;
}

/* Returns whether `list`, comma-separated, has the name. */
static bool is_listed(const char *list, const char *name) {
    const size_t len = strlen(name);
    for (const char *p = strstr(list, name); p; p = strstr(p + 1, name)) {
        if ((p == list || p[-1] == ',') && (!p[len] || p[len] == ',')) return true;
    }
    return false;
}

static size_t values_of(const oracle_case *c) { return c->m * c->n * (c->k ? c->k : 1); }

static size_t check_all(const options *o, ag_backend *be) {
    oracle_case c;
    op_stats t = {0};
    size_t n_failed = 0, n_cases = 0;
    for (size_t i = 0; oracle_case_at(i, &c); i++) {
        if (o->only && !is_listed(o->only, c.op)) continue;
        if (o->types && !is_listed(o->types, ag_dtype_name(c.type))) continue;
        if (values_of(&c) > o->max_values) continue;
        if (!t.op || strcmp(t.op, c.op) != 0 || t.type != c.type) {
            print_op_stats(&t);
            t = (op_stats){.op = c.op, .type = c.type, .tolerance = oracle_tolerance(&c, be)};
        }
        n_failed += !check(&c, o, be, o->seed + i, &t);
        n_cases++;
    }
    print_op_stats(&t);
    printf("%zu cases, %zu failed; seed %" PRIu64 "\n", n_cases, n_failed, o->seed);
    return n_failed + !n_cases;
}

static bool parse(int argc, char **argv, options *o) {
    static char cpu[] = "cpu";
    static const struct option words[] = {{"backends", required_argument, NULL, 'b'},
                                          {NULL, 0, NULL, 0}};
    *o = (options){.backends = cpu, .seed = 1, .max_values = SIZE_MAX};
    for (int opt; (opt = getopt_long(argc, argv, "b:s:t:f:w:m:v", words, NULL)) != -1;) {
        switch (opt) {
        case 'b':
            o->backends = optarg;
            break;
        case 's':
            o->seed = strtoull(optarg, NULL, 10);
            break;
        case 't':
            o->backend.n_threads = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'f':
            o->only = optarg;
            break;
        case 'w':
            o->types = optarg;
            break;
        case 'm':
            o->max_values = (size_t)strtoull(optarg, NULL, 10);
            break;
        case 'v':
            o->verbose = true;
            break;
        default:
            return false;
        }
    }
    return optind == argc;
}

enum { EXIT_SKIPPED = 77 };

/* Checks one backend and returns the exit status. */
static int check_backend(const options *o) {
    ag_error err;
    ag_backend *be;
    ag_status st = ag_backend_create(&o->backend, &be, &err);
    if (st != AG_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return st == AG_NOT_FOUND ? EXIT_SKIPPED : EXIT_FAILURE;
    }
    printf("%s\n", ag_backend_describe(be));
    size_t n_failed = check_all(o, be);
    ag_backend_destroy(be);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv) {
    options o;
    if (!parse(argc, argv, &o)) {
        fprintf(stderr,
                "usage: %s [-b BACKEND,...] [-t THREADS] [-s SEED] [-f OPERATION,...] "
                "[-w TYPE,...] [-m MOST] [-v]\n",
                argv[0]);
        return 2;
    }
    int status = EXIT_SUCCESS;
    char *state = NULL;
    for (char *name = strtok_r(o.backends, ",", &state); name; name = strtok_r(NULL, ",", &state)) {
        o.backend.name = name;
        const int backend_status = check_backend(&o);
        if (status != EXIT_FAILURE && backend_status != EXIT_SUCCESS) status = backend_status;
    }
    return status;
}
