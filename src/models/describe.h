/* SPDX-License-Identifier: Apache-2.0 */
/* A model's description as callers of the library see it. */
#ifndef AG_MODELS_DESCRIBE_H
#define AG_MODELS_DESCRIBE_H

#include "models/spec.h"

/* Fills in the public description; facts of files and weights are left 0. AG_NOMEM and AG_LIMIT
 * have the meanings that they have for ag_lower(). */
ag_status ag_spec_describe(const ag_model_spec *s, ag_model_info *info, ag_error *err);

#endif
