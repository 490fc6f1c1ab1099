/* SPDX-License-Identifier: Apache-2.0 */
#include "micro_bench.h"

#include <stdio.h>
#include <stdlib.h>

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void row_set_times(row *r, double *seconds, size_t n) {
    qsort(seconds, n, sizeof *seconds, by_size);
    r->n_runs = n;
    if (!n) return;
    r->min_s = seconds[0];
    r->median_s = n % 2 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
}

typedef struct row_rates {
    double gb, gop, limit_gop; /* per second; 0: unknown */
    double share;              /* percent of the binding limit; 0: unknown */
} row_rates;

/* Memory limits a run only with swept caches. */
static row_rates rates_of(const options *o, const row *r) {
    const work *e = &r->work;
    const double limit = e->of_bytes ? r->limits.bytes : r->limits.floats;
    row_rates f = {.limit_gop = e->operations > 0 ? limit * 1e-9 : 0};
    if (!(r->median_s > 0)) return f;
    f.gb = e->bytes / r->median_s * 1e-9;
    f.gop = e->operations / r->median_s * 1e-9;
    const double read_s = o->cold && r->limits.read > 0 ? e->bytes / r->limits.read : 0;
    const double compute_s = limit > 0 ? e->operations / limit : 0;
    f.share = 100 * (read_s > compute_s ? read_s : compute_s) / r->median_s;
    return f;
}

static const char csv_head[] = "op,type,m,n,k,isa,threads,runs,median_us,min_us,gb_per_s,"
                               "limit_gb_per_s,gop_per_s,limit_gop_per_s,share_percent,nmse,"
                               "verdict";
static size_t n_rows; /* printed so far, for JSON commas */

void report_begin(const options *o, const char *machine) {
    n_rows = 0;
    if (o->format == REPORT_CSV) printf("%s\n", csv_head);
    else if (o->format == REPORT_JSON) printf("{\n  \"machine\": \"%s\",\n  \"rows\": [", machine);
    else {
        printf("%s; caches %s between runs\n", machine, o->cold ? "swept" : "left");
        printf("%-18s %-5s %5s %5s %5s %-12s %3s %5s %11s %11s %8s %8s %6s  %s\n", "op", "type",
               "m", "n", "k", "isa", "thr", "runs", "median us", "min us", "GB/s", "GOP/s", "limit",
               "");
    }
}

void report_limits(const options *o, const char *isa, uint32_t threads, const limits *l) {
    if (o->format != REPORT_TABLE || !o->limits) return;
    printf("%s on %u thread%s: reads %.1f GB/s, multiplies and adds %.1f GOP/s of floats", isa,
           threads, threads == 1 ? "" : "s", l->read * 1e-9, l->floats * 1e-9);
    if (l->bytes > 0) printf(", %.1f of bytes", l->bytes * 1e-9);
    printf("\n");
}

static void print_table_row(const row *r, const row_rates *f) {
    printf("%-18s %-5s %5zu %5zu %5zu %-12s %3u %5zu %11.3f %11.3f %8.2f ", r->op,
           ag_dtype_name(r->type), r->m, r->n, r->k, r->isa, r->threads, r->n_runs,
           r->median_s * 1e6, r->min_s * 1e6, f->gb);
    if (r->work.operations > 0) printf("%8.1f ", f->gop);
    else printf("%8s ", "-");
    if (f->share > 0) printf("%5.0f%%  %s\n", f->share, r->verdict);
    else printf("%6s  %s\n", "-", r->verdict);
}

static void print_csv_row(const row *r, const row_rates *f) {
    printf("%s,%s,%zu,%zu,%zu,%s,%u,%zu,%.3f,%.3f,%.3f,%.3f,%.3f,%.3f,%.1f,%.3e,%s\n", r->op,
           ag_dtype_name(r->type), r->m, r->n, r->k, r->isa, r->threads, r->n_runs,
           r->median_s * 1e6, r->min_s * 1e6, f->gb, r->limits.read * 1e-9, f->gop, f->limit_gop,
           f->share, r->nmse, r->verdict);
}

/* Prints safe names and finite numbers only. A non-finite NMSE is a failure and is omitted. */
static void print_json_row(const row *r, const row_rates *f) {
    printf(
        "%s\n    {\"op\": \"%s\", \"type\": \"%s\", \"m\": %zu, \"n\": %zu, \"k\": %zu, "
        "\"isa\": \"%s\", \"threads\": %u, \"runs\": %zu, \"median_us\": %.3f, \"min_us\": %.3f, "
        "\"gb_per_s\": %.3f, \"limit_gb_per_s\": %.3f, \"gop_per_s\": %.3f, "
        "\"limit_gop_per_s\": %.3f, \"share_percent\": %.1f, ",
        n_rows ? "," : "", r->op, ag_dtype_name(r->type), r->m, r->n, r->k, r->isa, r->threads,
        r->n_runs, r->median_s * 1e6, r->min_s * 1e6, f->gb, r->limits.read * 1e-9, f->gop,
        f->limit_gop, f->share);
    if (r->nmse <= 1e300) printf("\"nmse\": %.3e, ", r->nmse);
    printf("\"verdict\": \"%s\"}", r->verdict);
}

void report_row(const options *o, const row *r) {
    const row_rates f = rates_of(o, r);
    if (o->format == REPORT_CSV) print_csv_row(r, &f);
    else if (o->format == REPORT_JSON) print_json_row(r, &f);
    else print_table_row(r, &f);
    n_rows++;
    fflush(stdout);
}

void report_end(const options *o) {
    if (o->format == REPORT_JSON) printf("\n  ]\n}\n");
}
