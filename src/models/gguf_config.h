/* SPDX-License-Identifier: Apache-2.0 */
/* From the metadata of a GGUF file to the terms of a config.json, which families read. */
#ifndef AG_MODELS_GGUF_CONFIG_H
#define AG_MODELS_GGUF_CONFIG_H

#include "formats/weight_source.h"

#include <jansson.h>

/* Whether a configuration is the metadata of a GGUF file. */
bool ag_gguf_is_config(const json_t *config);
/* *out: the same as a config.json would say it, owned. AG_FORMAT and AG_UNSUPPORTED name file and
 * key. */
ag_status ag_gguf_config(const ag_weight_source *source, const json_t *metadata, const char *where,
                         json_t **out, ag_error *err);

#endif
