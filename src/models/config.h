/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration parser: turns a config.json into the description of a model. Keys, defaults and
 * their precedence are those of Hugging Face transformers 4 and 5. */
#ifndef AG_MODELS_CONFIG_H
#define AG_MODELS_CONFIG_H

#include "formats/weight_source.h"
#include "models/spec.h"

typedef struct ag_config_text {
    const char *text;
    size_t n;
    const char *name; /* starts messages */
} ag_config_text;

/* Parses config.json and generation_config.json; `generation` may be NULL. Fails with AG_FORMAT,
 * naming file and key; with AG_UNSUPPORTED for an unsupported architecture, rope type, activation
 * or quantised weights, with a list of the supported ones. Ids outside the vocabulary are left out.
 * *out is written only on success. */
ag_status ag_spec_parse(const ag_config_text *config, const ag_config_text *generation,
                        ag_model_spec *out, ag_error *err);

/* Reads the description of a source's model. Fails as ag_spec_parse() and ag_source_read_text(). */
ag_status ag_spec_read(const ag_weight_source *source, ag_model_spec *out, ag_error *err);

#endif
