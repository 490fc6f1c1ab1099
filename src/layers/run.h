/* SPDX-License-Identifier: Apache-2.0 */
/* Executes a program for the rows of a pass. */
#ifndef AG_LAYERS_RUN_H
#define AG_LAYERS_RUN_H

#include "layers/pass.h"

/* Runs the operations before `head`. The caller must have written the values that the host
 * provides. Afterwards the value `hidden` holds the rows of the pass; n_rows and seqs describe
 * its output rows, which may be none. Fails with AG_CANCELLED if `cancel` of a sequence is true
 * before a layer. */
ag_status ag_run_program(ag_pass *pass, ag_error *err);

/* Runs the operations from `head` on. hidden: rows of that value; logits: one row for each,
 * overwritten. Uses backend, program, weights and hook of the pass. */
ag_status ag_run_head(const ag_pass *pass, const ag_tensor *hidden, ag_tensor *logits,
                      ag_error *err);

#endif
