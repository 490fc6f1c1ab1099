/* SPDX-License-Identifier: Apache-2.0 */
/* From a configuration to the description of a model. Keys, defaults and their precedence are those
 * of Hugging Face transformers, in the spelling of version 4 and of version 5. */
#ifndef AG_MODELS_CONFIG_H
#define AG_MODELS_CONFIG_H

#include "formats/weight_source.h"
#include "models/spec.h"

typedef struct ag_config_text {
    const char *text;
    size_t n;
    const char *name; /* begins the messages */
} ag_config_text;

/* generation may be NULL. AG_FORMAT names file and key; AG_UNSUPPORTED for an architecture, rope
 * type, activation or weight quantisation this library does not have, with those it has. Ids
 * outside the vocabulary can never occur and are left out. *out is written only on success. */
ag_status ag_spec_parse(const ag_config_text *config, const ag_config_text *generation,
                        ag_model_spec *out, ag_error *err);

/* What the source says of its model. */
ag_status ag_spec_read(const ag_weight_source *source, ag_model_spec *out, ag_error *err);

#endif
