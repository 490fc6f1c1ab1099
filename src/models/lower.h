/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering: turns a model's description into a program. */
#ifndef AG_MODELS_LOWER_H
#define AG_MODELS_LOWER_H

#include "core/program.h"
#include "models/spec.h"

/* Makes the program of a model. Needs no weights. Values have columns in the workspace. The caller
 * owns *out (ag_program_destroy()); NULL after a failure. Fails with AG_NOMEM; with AG_LIMIT if the
 * program has too many operations, values or weights for 16-bit numbers. */
ag_status ag_lower(const ag_model_spec *s, ag_program **out, ag_error *err);

/* liveness.c. Assigns columns of the workspace to the values of a program; values that are live at
 * different times share columns. Sets ag_value.offset of all values but the logits, ag_program.cols
 * and ag_program.live. Fails with AG_NOMEM. */
ag_status ag_assign_offsets(ag_program *p, ag_error *err);

/* describe.c. Fills in *info. Members about files and weights stay 0. Fails as ag_lower(). */
ag_status ag_spec_describe(const ag_model_spec *s, ag_model_info *info, ag_error *err);

#endif
