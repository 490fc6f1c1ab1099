/* SPDX-License-Identifier: Apache-2.0 */
/* Operations from a program's `cut` on keep nothing of a row: rows that nobody wants end there. */
#ifndef AG_LAYERS_WANTED_H
#define AG_LAYERS_WANTED_H

#include "layers/run.h"

/* The pass goes on with its wanted rows, which come to stand at the beginning of every live value,
 * or with all of them where a policy adds up attention weights. */
ag_status ag_narrow_pass_to_wanted(ag_pass *pass, ag_error *err);

#endif
