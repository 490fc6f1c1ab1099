/* SPDX-License-Identifier: Apache-2.0 */
/* What every tensor of a file becomes. */
#ifndef AG_CONVERT_TYPES_H
#define AG_CONVERT_TYPES_H

#include "convert/out_model.h"

/* The number that general.file_type has for a type of files; AG_INVALID lists the types. */
ag_status ag_file_type_number(const char *type, uint32_t *number, ag_error *err);

/* Sets the types of all tensors as `params` want. *n_fallback: tensors whose rows do not fit the
 * blocks of the type they should have; params->log hears of each. As ag_tensor_types_check, and
 * AG_DTYPE for what would be rounded twice. */
ag_status ag_choose_types(ag_out_model *m, const ag_quantize_params *params, size_t *n_fallback,
                          ag_error *err);

#endif
