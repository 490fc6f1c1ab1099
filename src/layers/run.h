/* SPDX-License-Identifier: Apache-2.0 */
/* Executes a program for the rows of a pass. */
#ifndef AG_LAYERS_RUN_H
#define AG_LAYERS_RUN_H

#include "layers/pass.h"

/* Runs the operations before `head`. Values that the host writes are there. Afterwards `hidden` has
 * the rows of the pass; n_rows and seqs are those that have gone on, perhaps none.
 * AG_CANCELLED if a sequence's `cancel`, asked before every layer, says so. */
ag_status ag_run_program(ag_pass *pass, ag_error *err);

/* Runs the operations from `head` on. hidden: rows of that value; logits: as many, written. Of the
 * pass backend, program, weights and hook are used. */
ag_status ag_run_head(const ag_pass *pass, const ag_tensor *hidden, ag_tensor *logits,
                      ag_error *err);

#endif
