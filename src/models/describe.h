/* SPDX-License-Identifier: Apache-2.0 */
/* Public description of a model: fills in ag_model_info. */
#ifndef AG_MODELS_DESCRIBE_H
#define AG_MODELS_DESCRIBE_H

#include "models/spec.h"

/* Fills in *info. Members about files and weights stay 0. Fails as ag_lower(). */
ag_status ag_spec_describe(const ag_model_spec *s, ag_model_info *info, ag_error *err);

#endif
