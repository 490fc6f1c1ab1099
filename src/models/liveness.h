/* SPDX-License-Identifier: Apache-2.0 */
/* Places a program's values in the workspace: values that are needed at different times share
 * places. */
#ifndef AG_MODELS_LIVENESS_H
#define AG_MODELS_LIVENESS_H

#include "core/program.h"

/* Sets ag_value.offset of every value but logits, ag_program.cols and .live. AG_NOMEM. */
ag_status ag_assign_offsets(ag_program *p, ag_error *err);

#endif
