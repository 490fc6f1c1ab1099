/* SPDX-License-Identifier: Apache-2.0 */
/* Times of kernel launches on a device, by kernel and grid. */
#include "bench.h"

#include "../command.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_LAUNCHES = 512 };

struct bench_launches {
    ag_launch_info list[MAX_LAUNCHES]; /* [n] */
    size_t n;
};

bench_launches *bench_launches_create(void) { return calloc(1, sizeof(bench_launches)); }

void bench_launches_destroy(bench_launches *l) { free(l); }

void bench_launches_clear(bench_launches *l) { l->n = 0; }

static void add_kind(bench_launches *l, const ag_launch_info *kind) {
    size_t i = 0;
    while (i < l->n && strcmp(l->list[i].name, kind->name) != 0) i++;
    if (i == MAX_LAUNCHES) i--;
    if (i == l->n) l->list[l->n++] = (ag_launch_info){0};
    memcpy(l->list[i].name, kind->name, sizeof kind->name);
    l->list[i].n += kind->n;
    l->list[i].seconds += kind->seconds;
}

ag_status bench_launches_add(bench_launches *l, ag_backend *be, ag_error *err) {
    static ag_launch_info added[MAX_LAUNCHES];
    size_t n;
    const ag_status status = ag_backend_launches(be, added, MAX_LAUNCHES, &n);
    if (status != AG_OK) *err = *ag_backend_error(be);
    for (size_t i = 0; l && status == AG_OK && i < n && i < MAX_LAUNCHES; i++)
        add_kind(l, &added[i]);
    return status;
}

/* ---- the table ---- */

static const table_column columns[] = {
    {"test", "test", TABLE_TEXT, 0, 0, 14},
    {"kernel", "kernel, groups of items", TABLE_TEXT, 0, 0, 32},
    {"launches", "launches", TABLE_NUMBER, 0, 0, 8},
    {"seconds", "seconds", TABLE_NUMBER, 6, 0, 10},
    {"us_each", "us each", TABLE_NUMBER, 1, 0, 8},
    {"share", "share", TABLE_SHARE, 1, 0, 7},
};

result_table bench_launches_table(table_format format) {
    return (result_table){
        .format = format, .columns = columns, .n = sizeof columns / sizeof columns[0]};
}

static int print_kind(result_table *t, const bench_row *row, const ag_launch_info *kind) {
    char test[64];
    const json_field fields[] = {
        {"test", json_string(bench_test_name(row, test, sizeof test))},
        {"kernel", json_string(kind->name)},
        {"launches", kind->n ? json_integer((json_int_t)kind->n) : json_null()},
        {"seconds", json_real(kind->seconds)},
        {"us_each", kind->n ? json_real(kind->seconds * 1e6 / (double)kind->n) : json_null()},
        {"share", json_real(row->wall > 0 ? kind->seconds / row->wall : 0)},
    };
    return table_add(t, JSON_FIELDS(fields));
}

static int by_seconds(const void *a, const void *b) {
    const double x = ((const ag_launch_info *)a)->seconds, y = ((const ag_launch_info *)b)->seconds;
    return x < y ? 1 : x > y ? -1 : 0;
}

int bench_launches_print(bench_launches *l, const bench_row *row, result_table *t) {
    ag_launch_info all = {.name = "all launches"}, test = {.name = "test", .seconds = row->wall};
    int code = EXIT_DONE;
    qsort(l->list, l->n, sizeof l->list[0], by_seconds);
    for (size_t i = 0; i < l->n && code == EXIT_DONE; i++) {
        code = print_kind(t, row, &l->list[i]);
        all.n += l->list[i].n;
        all.seconds += l->list[i].seconds;
    }
    if (code == EXIT_DONE) code = print_kind(t, row, &all);
    return code == EXIT_DONE ? print_kind(t, row, &test) : code;
}
