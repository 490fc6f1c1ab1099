/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the type of each tensor of a file. */
#ifndef AG_CONVERT_TYPES_H
#define AG_CONVERT_TYPES_H

#include "convert/out_model.h"

/* Finds the number of general.file_type. Returns AG_INVALID with a list of the types if `type` is
 * unknown. */
ag_status ag_file_type_number(const char *type, uint32_t *number, ag_error *err);

/* Sets the types of all tensors. *n_fallback counts tensors whose rows do not fit the blocks of the
 * desired type; params->log reports each. Returns the errors of ag_tensor_types_check, and AG_DTYPE
 * for a tensor that would be rounded twice. */
ag_status ag_choose_types(ag_out_model *m, const ag_quantize_params *params, size_t *n_fallback,
                          ag_error *err);

#endif
