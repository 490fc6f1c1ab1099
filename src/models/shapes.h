/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes of published models, for synthetic models. */
#ifndef AG_MODELS_SHAPES_H
#define AG_MODELS_SHAPES_H

#include "models/spec.h"

/* Finds a shape by name, ignoring case. "1b" is enough for "llama-3.2-1b". Fails with AG_NOT_FOUND
 * and a list of the known names. */
ag_status ag_shape_spec(const char *name, ag_model_spec *out, ag_error *err);

#endif
