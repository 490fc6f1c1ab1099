/* SPDX-License-Identifier: Apache-2.0 */
/* Result rows of a RULER task: the full cache, then each policy with each share removed. */
#ifndef ANTIGRAVITY_RULER_RESULTS_TABLE_H
#define ANTIGRAVITY_RULER_RESULTS_TABLE_H

#include "../../support/table.h"
#include "run.h"

/* Results of one task, or of several tasks together. */
typedef struct ruler_block {
    const char *task;
    uint32_t length;
    const ruler_settings *settings;
    const ruler_result *results; /* [n_prompts][1 + n_methods * n_ratios] */
    size_t n_prompts;
    uint64_t first_prompt;
    bool of_tasks; /* results of all solved tasks: rows omit the scores of single prompts */
} ruler_block;

size_t ruler_n_rows(const ruler_settings *s); /* 1 + n_methods * n_ratios */

/* Returns whether the full cache's mean score is at least 80 %. Otherwise a policy's loss cannot be
 * seen. */
bool ruler_is_solved(const ruler_block *b);

void ruler_table_open(result_table *t, table_format format);
int ruler_table_add(result_table *t, const ruler_block *b); /* returns an exit code */

#endif
