/* SPDX-License-Identifier: Apache-2.0 */
/* A model's description becomes a program. */
#ifndef AG_MODELS_LOWER_H
#define AG_MODELS_LOWER_H

#include "core/program.h"
#include "models/spec.h"

/* Needs no weights: which tensors there are follows from the description. Values have places in the
 * workspace. *out is the caller's, for ag_program_destroy(). AG_NOMEM; AG_LIMIT if the operations
 * need more values or weights than numbers reach. */
ag_status ag_lower(const ag_model_spec *s, ag_program **out, ag_error *err);

#endif
