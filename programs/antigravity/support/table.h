/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of results on standard output as a Markdown table, as CSV, or as one JSON object at the end.
 */
#ifndef ANTIGRAVITY_TABLE_H
#define ANTIGRAVITY_TABLE_H

#include "../options/options.h"
#include "json_out.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum table_format { TABLE_MD, TABLE_CSV, TABLE_JSON } table_format;

option_group table_group(table_format *o); /* -o, --json */

/* How Markdown shows a value; CSV and JSON have it as it is. */
typedef enum table_kind {
    TABLE_TEXT,
    TABLE_RIGHT,  /* text that stands at the right */
    TABLE_NUMBER, /* with so many digits behind the point */
    TABLE_SHARE,  /* 0.25 as "25.0 %" */
    TABLE_BYTES,
} table_kind;

typedef struct table_column {
    char key[32]; /* of the rows' objects */
    char title[32];
    table_kind kind;
    int digits;
    /* On a terminal that is too narrow for all columns those of the highest ranks are left out, all
     * of a rank together. */
    unsigned rank;
    unsigned width; /* of its values; 0: as wide as the title */
} table_column;

typedef struct result_table {
    table_format format;
    const table_column *columns; /* [n] borrowed */
    size_t n;
    bool begun;
    unsigned n_ranks; /* that are shown */
    json_t *rows;     /* owned; JSON only */
} result_table;

/* Prints the row, an object, or keeps it, and releases it. A key that it lacks, and null, is an
 * empty field. Returns an exit code. */
int table_add(result_table *t, json_t *row);
/* JSON: prints `head`, an object, with the list "rows" added, unless the run failed (`code`) before
 * there was a row. Releases both; returns an exit code. */
int table_finish(result_table *t, json_t *head, int code);

/* "a ""quoted"" text" on standard output. */
void csv_print_text(const char *text);

#endif
