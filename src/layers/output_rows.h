/* SPDX-License-Identifier: Apache-2.0 */
/* Operations from a program's `cut` on keep nothing of a row: unwanted rows end there. */
#ifndef AG_LAYERS_OUTPUT_ROWS_H
#define AG_LAYERS_OUTPUT_ROWS_H

#include "layers/pass.h"

/* Moves the wanted rows of every live value to its beginning; the rest of the pass has these rows
 * alone. Keeps all rows if a policy adds up attention weights, or products are observed. */
ag_status ag_select_output_rows(ag_pass *pass, ag_error *err);

#endif
