/* SPDX-License-Identifier: Apache-2.0 */
/* Output rows: the rows whose results are needed. Operations from the program's `cut` on store
 * nothing of a row, so they run on output rows only. */
#ifndef AG_LAYERS_OUTPUT_ROWS_H
#define AG_LAYERS_OUTPUT_ROWS_H

#include "layers/pass.h"

/* Moves the output rows of every live value to its start and limits the rest of the pass to
 * them. Keeps all rows if a policy sums attention weights or if products are observed. */
ag_status ag_select_output_rows(ag_pass *pass, ag_error *err);

#endif
