/* SPDX-License-Identifier: Apache-2.0 */
/* Results of a task as rows: the full cache, then every policy and share removed. */
#ifndef ANTIGRAVITY_RULER_RESULTS_TABLE_H
#define ANTIGRAVITY_RULER_RESULTS_TABLE_H

#include "../../support/table.h"
#include "run.h"

/* Of a task, or of several together. */
typedef struct ruler_block {
    const char *task;
    uint32_t length;
    const ruler_settings *settings;
    const ruler_result *results; /* [n_prompts][1 + n_methods * n_ratios] */
    size_t n_prompts;
    uint64_t first_prompt;
    bool of_tasks; /* all that the full cache solves: without the prompts' own scores */
} ruler_block;

size_t ruler_n_rows(const ruler_settings *s); /* 1 + n_methods * n_ratios */

/* The full cache's mean score is at least 80 %: what a policy loses can be seen. */
bool ruler_is_solved(const ruler_block *b);

void ruler_table_open(result_table *t, table_format format);
int ruler_table_add(result_table *t, const ruler_block *b); /* returns an exit code */

#endif
