/* SPDX-License-Identifier: Apache-2.0 */
/* Operation times of a forward pass, summed by operation code and by layer. */
#include "bench.h"

#include "../command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bench_op {
    const char *code; /* static */
    int32_t layer;
} bench_op;

struct bench_ops {
    bench_op *list; /* [cap], n used */
    double *seconds;
    size_t n, cap;
};

static void count_op(void *user, const ag_op_info *op) {
    (void)op;
    ++*(size_t *)user;
}

static void add_op(void *user, const ag_op_info *op) {
    bench_ops *o = user;
    o->list[o->n++] = (bench_op){op->code, op->layer};
}

bench_ops *bench_ops_create(const ag_model *m) {
    bench_ops *o = calloc(1, sizeof *o);
    if (!o) return NULL;
    ag_model_list_ops(m, count_op, &o->cap);
    o->list = calloc(o->cap, sizeof *o->list);
    o->seconds = calloc(o->cap, sizeof *o->seconds);
    if (!o->list || !o->seconds) {
        bench_ops_destroy(o);
        return NULL;
    }
    ag_model_list_ops(m, add_op, o);
    return o;
}

void bench_ops_destroy(bench_ops *o) {
    if (!o) return;
    free(o->list);
    free(o->seconds);
    free(o);
}

void bench_ops_clear(bench_ops *o) { memset(o->seconds, 0, o->n * sizeof *o->seconds); }

double *bench_ops_seconds(bench_ops *o) { return o->seconds; }

/* ---- the table ---- */

static const table_column columns[] = {
    {"threads", "threads", TABLE_NUMBER, 0, 1, 7},
    {"test", "test", TABLE_TEXT, 0, 0, 14},
    {"by", "by", TABLE_TEXT, 0, 0, 5},
    {"name", "name", TABLE_TEXT, 0, 0, 10},
    {"ops", "operations", TABLE_NUMBER, 0, 0, 10},
    {"seconds", "seconds", TABLE_NUMBER, 6, 0, 10},
    {"share", "share", TABLE_SHARE, 1, 0, 7},
};

result_table bench_ops_table(table_format format) {
    return (result_table){
        .format = format, .columns = columns, .n = sizeof columns / sizeof columns[0]};
}

typedef struct sum {
    size_t n; /* number of operations; 0: not about operations */
    double seconds;
} sum;

static int print_sum(result_table *t, const bench_row *row, const char *by, const char *name,
                     sum s) {
    char test[64];
    const json_field fields[] = {
        {"threads", json_integer((json_int_t)row->threads)},
        {"test", json_string(bench_test_name(row, test, sizeof test))},
        {"by", json_string(by)},
        {"name", json_string(name)},
        {"ops", s.n ? json_integer((json_int_t)s.n) : json_null()},
        {"seconds", json_real(s.seconds)},
        {"share", json_real(row->wall > 0 ? s.seconds / row->wall : 0)},
    };
    return table_add(t, JSON_FIELDS(fields));
}

/* Sums operation i and all with the same code or layer. Returns n = 0 if an earlier one has counted
 * them. */
static sum sum_like(const bench_ops *o, size_t i, bool by_code) {
    sum s = {0};
    for (size_t k = 0; k < o->n; k++) {
        const bool is_same = by_code ? !strcmp(o->list[k].code, o->list[i].code)
                                     : o->list[k].layer == o->list[i].layer;
        if (!is_same) continue;
        if (k < i) return (sum){0};
        s.n++;
        s.seconds += o->seconds[k];
    }
    return s;
}

int bench_ops_print(const bench_ops *o, const bench_row *row, result_table *t) {
    sum all = {.n = o->n};
    int code = EXIT_DONE;
    for (int by_code = 1; by_code >= 0; by_code--) {
        for (size_t i = 0; i < o->n && code == EXIT_DONE; i++) {
            char layer[16] = "-";
            const sum s = sum_like(o, i, by_code);
            if (o->list[i].layer >= 0) snprintf(layer, sizeof layer, "%d", (int)o->list[i].layer);
            if (!s.n) continue;
            code =
                print_sum(t, row, by_code ? "code" : "layer", by_code ? o->list[i].code : layer, s);
        }
    }
    for (size_t i = 0; i < o->n; i++) all.seconds += o->seconds[i];
    if (code == EXIT_DONE) code = print_sum(t, row, "all", "operations", all);
    if (code == EXIT_DONE) code = print_sum(t, row, "all", "test", (sum){0, row->wall});
    return code;
}
