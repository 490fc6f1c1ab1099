/* SPDX-License-Identifier: Apache-2.0 */
/* Liveness analysis: assigns columns of the workspace to the values of a program. Values that are
 * live at different times share columns. */
#ifndef AG_MODELS_LIVENESS_H
#define AG_MODELS_LIVENESS_H

#include "core/program.h"

/* Sets ag_value.offset of all values but the logits, ag_program.cols and ag_program.live. Fails
 * with AG_NOMEM. */
ag_status ag_assign_offsets(ag_program *p, ag_error *err);

#endif
