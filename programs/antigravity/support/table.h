/* SPDX-License-Identifier: Apache-2.0 */
/* Result table on standard output: Markdown, CSV, or one JSON object at the end. */
#ifndef ANTIGRAVITY_TABLE_H
#define ANTIGRAVITY_TABLE_H

#include "../options/options.h"
#include "json_out.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum table_format { TABLE_MD, TABLE_CSV, TABLE_JSON } table_format;

option_group table_group(table_format *o); /* -o, --json */

/* Markdown format of a value. CSV and JSON have it unformatted. */
typedef enum table_kind {
    TABLE_TEXT,
    TABLE_RIGHT,  /* right-aligned text */
    TABLE_NUMBER, /* with `digits` decimals */
    TABLE_SHARE,  /* 0.25 as "25.0 %" */
    TABLE_BYTES,
} table_kind;

typedef struct table_column {
    char key[32]; /* in the row objects */
    char title[32];
    table_kind kind;
    int digits;
    /* Columns of the highest ranks are omitted, rank by rank, on a terminal that is too narrow. */
    unsigned rank;
    unsigned width; /* width of values in characters; 0: that of the title */
} table_column;

typedef struct result_table {
    table_format format;
    const table_column *columns; /* [n] borrowed */
    size_t n;
    bool begun;
    unsigned n_ranks; /* number of ranks shown */
    json_t *rows;     /* owned; JSON only */
} result_table;

/* Prints the row, an object, or stores it for JSON, and releases it. A missing key or null is an
 * empty field. Returns an exit code. */
int table_add(result_table *t, json_t *row);
/* JSON: prints `head`, an object, with the list "rows" added; not if the run failed (`code`)
 * without rows. Releases both. Returns an exit code. */
int table_finish(result_table *t, json_t *head, int code);

/* Prints a quoted CSV field to standard output. */
void csv_print_text(const char *text);

#endif
