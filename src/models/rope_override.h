/* SPDX-License-Identifier: Apache-2.0 */
/* Changes the rotary position embedding of a model that is loaded. */
#ifndef AG_MODELS_ROPE_OVERRIDE_H
#define AG_MODELS_ROPE_OVERRIDE_H

#include "formats/weight_source.h"
#include "models/spec.h"

/* Applies the override to the first table of the model at `source`. Fails with AG_INVALID for a
 * value outside of its range, or one without effect; with AG_UNSUPPORTED for a scaling that would
 * replace llama3, longrope or proportional scaling. */
ag_status ag_rope_override_apply(const ag_rope_override *o, const ag_weight_source *source,
                                 ag_model_spec *s, ag_error *err);

#endif
