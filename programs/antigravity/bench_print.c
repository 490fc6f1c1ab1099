/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of bench as a Markdown table, as CSV, or as a JSON list. */
#include "bench.h"

#include "command.h"
#include "json_out.h"
#include "output.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct bench_table {
    table_format format;
    bool begun;
    json_t *rows; /* JSON only */
};

bench_table *bench_table_create(table_format format) {
    bench_table *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->format = format;
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

static void print_md(const bench_table *t, const bench *b, const bench_row *row) {
    const model_options *m = &b->o->model;
    char test[64], parallel[24] = "", size[32], cache[32], read[48] = "-", share[16] = "";
    if (!t->begun)
        printf("| model | params | weights | size | cache | backend | threads | test | tokens/s | "
               "lowest | highest | read GB/s | share |\n"
               "|---|---:|---|---:|---|---|---:|---|---:|---:|---:|---:|---:|\n");
    if (row->parallel > 1) snprintf(parallel, sizeof parallel, " x%" PRIu32, row->parallel);
    snprintf(cache, sizeof cache, "%s,%s", ag_dtype_name(m->k_type), ag_dtype_name(m->v_type));
    if (row->read_before > 0)
        snprintf(read, sizeof read, "%.1f, %.1f", row->read_before / 1e9, row->read_after / 1e9);
    if (row->share > 0) snprintf(share, sizeof share, "%.1f %%", row->share * 100);
    printf(
        "| %s | %.2f M | %s | %s | %s | %s | %" PRIu32 " | %s%s | %.2f | %.2f | %.2f | %s | %s |\n",
        b->name, (double)b->engine.info.n_parameters / 1e6, ag_dtype_name(m->weights),
        format_bytes((double)ag_model_memory_bytes(b->engine.model), size, sizeof size),
        strcmp(ag_dtype_name(m->k_type), ag_dtype_name(m->v_type)) ? cache
                                                                   : ag_dtype_name(m->k_type),
        ag_backend_name(b->engine.backend), row->threads, bench_test_name(row, test, sizeof test),
        parallel, row->median, row->lowest, row->highest, read, share);
}

/* A field of RFC 4180: in quotes, quotes doubled. */
static void print_csv(const bench_table *t, const bench *b, const bench_row *row) {
    const model_options *m = &b->o->model;
    char test[64];
    if (!t->begun)
        printf("model,parameters,weights,weight_bytes,k_type,v_type,backend,threads,parallel,"
               "n_prompt,n_gen,depth,test,tok_per_s,tok_per_s_min,tok_per_s_max,tok_per_s_stddev,"
               "repetitions,read_bytes_per_s_before,read_bytes_per_s_after,bytes_per_token,"
               "bandwidth_share\n");
    csv_print_text(b->name);
    printf(",%" PRIu64 ",%s,%zu,%s,%s,%s,%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32
           ",%s,%.4f,%.4f,%.4f,%.4f,%zu,%.0f,%.0f,%.0f,%.4f\n",
           b->engine.info.n_parameters, ag_dtype_name(m->weights),
           ag_model_memory_bytes(b->engine.model), ag_dtype_name(m->k_type),
           ag_dtype_name(m->v_type), ag_backend_name(b->engine.backend), row->threads,
           row->parallel, row->n_prompt, row->n_gen, row->depth,
           bench_test_name(row, test, sizeof test), row->median, row->lowest, row->highest,
           row->deviation, row->n_samples, row->read_before, row->read_after, row->bytes_per_token,
           row->share);
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
        {"weights", json_string(ag_dtype_name(m->weights))},
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
    };
    return json_object_of(fields, sizeof fields / sizeof fields[0]);
}

bool bench_table_add(bench_table *t, const bench *b, const bench_row *row) {
    bool ok = true;
    switch (t->format) {
    case TABLE_MD:
        print_md(t, b, row);
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
    free(t);
    if (!rows) return code;
    if (code == EXIT_DONE || json_array_size(rows)) {
        int printed = json_print(rows);
        return code == EXIT_DONE ? printed : code;
    }
    json_decref(rows);
    return code;
}
