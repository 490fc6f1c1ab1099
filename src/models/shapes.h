/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of published models, for synthetic ones. */
#ifndef AG_MODELS_SHAPES_H
#define AG_MODELS_SHAPES_H

#include "models/spec.h"

/* By name, without case; "1b" is enough for "llama-3.2-1b". AG_NOT_FOUND lists the known ones. */
ag_status ag_shape_spec(const char *name, ag_model_spec *out, ag_error *err);

#endif
