/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the rows of bench as a Markdown table, CSV, or a JSON list. */
#include "bench.h"

#include "../command.h"
#include "../support/json_out.h"
#include "../terminal/output.h"
#include "energy.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench_table {
    table_format format;
    bool begun, lists_parts; /* operations or launches */
    result_table md;         /* for all formats if `lists_parts` */
    json_t *rows;            /* JSON only */
};

/* Columns that are equal in every row have high ranks: a narrow terminal omits them first. The last
 * column is left out if energy cannot be read. */
static const table_column md_columns[] = {
    {"model", "model", TABLE_TEXT, 0, 4, 12},     {"params", "params", TABLE_RIGHT, 0, 5, 9},
    {"weights", "weights", TABLE_TEXT, 0, 3, 7},  {"size", "size", TABLE_RIGHT, 0, 5, 10},
    {"cache", "cache", TABLE_TEXT, 0, 5, 9},      {"backend", "backend", TABLE_TEXT, 0, 4, 7},
    {"threads", "threads", TABLE_RIGHT, 0, 1, 7}, {"test", "test", TABLE_TEXT, 0, 0, 14},
    {"median", "tokens/s", TABLE_RIGHT, 0, 0, 8}, {"lowest", "lowest", TABLE_RIGHT, 0, 0, 8},
    {"highest", "highest", TABLE_RIGHT, 0, 0, 8}, {"read", "read GB/s", TABLE_RIGHT, 0, 2, 12},
    {"share", "share", TABLE_RIGHT, 0, 0, 7},     {"joules", "J/token", TABLE_RIGHT, 0, 2, 7},
};

bench_table *bench_table_create(const bench_options *o) {
    const table_format format = o->format;
    bench_table *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->format = format;
    t->lists_parts = o->ops || o->launches;
    if (t->lists_parts) {
        t->md = o->ops ? bench_ops_table(format) : bench_launches_table(format);
        return t;
    }
    const size_t n_columns = sizeof md_columns / sizeof md_columns[0];
    t->md = (result_table){.columns = md_columns, .n = n_columns - !energy_read().n};
    t->rows = format == TABLE_JSON ? json_array() : NULL;
    if (format != TABLE_JSON || t->rows) return t;
    free(t);
    return NULL;
}

const char *bench_test_name(const bench_row *row, char *buf, size_t cap) {
    char depth[24] = "";
    if (row->depth) snprintf(depth, sizeof depth, " @ d%" PRIu32, row->depth);
    snprintf(buf, cap, "%s%" PRIu32 "%s", row->n_gen ? "tg" : "pp",
             row->n_gen ? row->n_gen : row->n_prompt, depth);
    return buf;
}

static json_t *json_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static json_t *json_printf(const char *fmt, ...) {
    char text[96];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return json_string(text);
}

static bool print_md(bench_table *t, const bench *b, const bench_row *row) {
    const model_options *m = &b->o->model;
    char test[64], parallel[48] = "", size[32], read[48] = "-";
    const char *k = ag_dtype_name(m->k_type), *v = ag_dtype_name(m->v_type);
    if (row->parallel > 1) snprintf(parallel, sizeof parallel, " x%" PRIu32, row->parallel);
    if (row->first_depth != row->depth)
        snprintf(parallel, sizeof parallel, " x%" PRIu32 ", first d%" PRIu32, row->parallel,
                 row->first_depth);
    if (row->read_before > 0)
        snprintf(read, sizeof read, "%.1f, %.1f", row->read_before / 1e9, row->read_after / 1e9);
    format_bytes((double)ag_model_memory_bytes(b->engine.model), size, sizeof size);
    const json_field fields[] = {
        {"model", json_text(b->name, strlen(b->name))},
        {"params", json_printf("%.2f M", (double)b->engine.info.n_parameters / 1e6)},
        {"weights", json_string(weights_name(m->weights, &b->engine.info))},
        {"size", json_string(size)},
        {"cache", strcmp(k, v) ? json_printf("%s,%s", k, v) : json_string(k)},
        {"backend", json_string(ag_backend_name(b->engine.backend))},
        {"threads", json_printf("%" PRIu32, row->threads)},
        {"test", json_printf("%s%s", bench_test_name(row, test, sizeof test), parallel)},
        {"median", json_printf("%.2f", row->median)},
        {"lowest", json_printf("%.2f", row->lowest)},
        {"highest", json_printf("%.2f", row->highest)},
        {"read", json_string(read)},
        {"share", row->share > 0 ? json_printf("%.1f %%", row->share * 100) : json_string("")},
        {"joules", row->joules >= 0 ? json_printf("%.3f", row->joules) : json_string("-")},
    };
    json_t *line = JSON_FIELDS(fields);
    if (!line) return false;
    table_add(&t->md, line); /* A write error is reported when the command ends. */
    return true;
}

/* Prints a row of RFC 4180. */
static void print_csv(const bench_table *t, const bench *b, const bench_row *row) {
    const model_options *m = &b->o->model;
    char test[64];
    if (!t->begun)
        printf("model,parameters,weights,weight_bytes,k_type,v_type,backend,threads,parallel,"
               "n_prompt,n_gen,depth,first_depth,test,tok_per_s,tok_per_s_min,tok_per_s_max,"
               "tok_per_s_stddev,repetitions,read_bytes_per_s_before,read_bytes_per_s_after,bytes_"
               "per_token,"
               "bandwidth_share,joules_per_token\n");
    csv_print_text(b->name);
    printf(",%" PRIu64 ",%s,%zu,%s,%s,%s,%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32
           ",%" PRIu32 ",%s,%.4f,%.4f,%.4f,%.4f,%zu,%.0f,%.0f,%.0f,%.4f,",
           b->engine.info.n_parameters, weights_name(m->weights, &b->engine.info),
           ag_model_memory_bytes(b->engine.model), ag_dtype_name(m->k_type),
           ag_dtype_name(m->v_type), ag_backend_name(b->engine.backend), row->threads,
           row->parallel, row->n_prompt, row->n_gen, row->depth, row->first_depth,
           bench_test_name(row, test, sizeof test), row->median, row->lowest, row->highest,
           row->deviation, row->n_samples, row->read_before, row->read_after, row->bytes_per_token,
           row->share);
    if (row->joules >= 0) printf("%.6f", row->joules);
    printf("\n");
}

static json_t *list_samples(const bench_row *row) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < row->n_samples; i++)
        json_append(&list, json_real(row->samples[i]));
    return list;
}

static json_t *row_json(const bench *b, const bench_row *row) {
    const model_options *m = &b->o->model;
    char test[64];
    const json_field fields[] = {
        {"model", json_text(b->name, strlen(b->name))},
        {"parameters", json_integer((json_int_t)b->engine.info.n_parameters)},
        {"weights", json_string(weights_name(m->weights, &b->engine.info))},
        {"weight_bytes", json_integer((json_int_t)ag_model_memory_bytes(b->engine.model))},
        {"k_type", json_string(ag_dtype_name(m->k_type))},
        {"v_type", json_string(ag_dtype_name(m->v_type))},
        {"k_rotated", json_boolean(keys_rotated(m->k_rotation, m->k_type))},
        {"backend", json_string(ag_backend_name(b->engine.backend))},
        {"threads", json_integer((json_int_t)row->threads)},
        {"parallel", json_integer((json_int_t)row->parallel)},
        {"n_prompt", json_integer((json_int_t)row->n_prompt)},
        {"n_gen", json_integer((json_int_t)row->n_gen)},
        {"depth", json_integer((json_int_t)row->depth)},
        {"first_depth", json_integer((json_int_t)row->first_depth)},
        {"test", json_string(bench_test_name(row, test, sizeof test))},
        {"tok_per_s", json_real(row->median)},
        {"tok_per_s_min", json_real(row->lowest)},
        {"tok_per_s_max", json_real(row->highest)},
        {"tok_per_s_stddev", json_real(row->deviation)},
        {"samples", list_samples(row)},
        {"read_bytes_per_s_before", json_real(row->read_before)},
        {"read_bytes_per_s_after", json_real(row->read_after)},
        {"bytes_per_token", row->n_gen ? json_real(row->bytes_per_token) : json_null()},
        {"bandwidth_share", row->n_gen ? json_real(row->share) : json_null()},
        {"joules_per_token", row->joules >= 0 ? json_real(row->joules) : json_null()},
    };
    return JSON_FIELDS(fields);
}

bool bench_table_add(bench_table *t, const bench *b, const bench_row *row) {
    bool ok = true;
    if (b->ops) return bench_ops_print(b->ops, row, &t->md) == EXIT_DONE;
    if (b->launches) return bench_launches_print(b->launches, row, &t->md) == EXIT_DONE;
    switch (t->format) {
    case TABLE_MD:
        ok = print_md(t, b, row);
        break;
    case TABLE_CSV:
        print_csv(t, b, row);
        break;
    case TABLE_JSON:
        ok = json_array_append_new(t->rows, row_json(b, row)) == 0;
        break;
    }
    t->begun = true;
    output_flush();
    return ok;
}

int bench_table_finish(bench_table *t, int code) {
    json_t *rows = t->rows;
    if (t->lists_parts) {
        code = table_finish(&t->md, json_object(), code);
        free(t);
        return code;
    }
    if (t->format == TABLE_MD) table_finish(&t->md, NULL, code);
    free(t);
    if (!rows) return code;
    if (code == EXIT_DONE || json_array_size(rows)) {
        int printed = json_print(rows);
        return code == EXIT_DONE ? printed : code;
    }
    json_decref(rows);
    return code;
}
