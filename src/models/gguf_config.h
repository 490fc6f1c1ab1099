/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of a GGUF file's metadata to the keys of a config.json, which families read. */
#ifndef AG_MODELS_GGUF_CONFIG_H
#define AG_MODELS_GGUF_CONFIG_H

#include "formats/gguf_writer.h"
#include "formats/weight_source.h"
#include "models/spec.h"

#include <jansson.h>

/* Returns whether a configuration is the metadata of a GGUF file. */
bool ag_gguf_is_config(const json_t *config);
/* Converts metadata to a config.json in *out, which the caller owns. Fails with AG_FORMAT or
 * AG_UNSUPPORTED, naming file and key. `where` starts the messages. */
ag_status ag_gguf_config(const ag_weight_source *source, const json_t *metadata, const char *where,
                         json_t **out, ag_error *err);

/* ---- the reverse, by the same tables: gguf_metadata.c ---- */

/* Puts general.architecture and the keys of the architecture. Fails with AG_UNSUPPORTED for a
 * family without GGUF form. */
ag_status ag_gguf_put_model(ag_gguf_writer *w, const ag_weight_source *source,
                            const ag_model_spec *s, ag_error *err);

/* Returns the factor by which the weights of queries must grow, because readers of the file use
 * another scale of scores. */
float ag_gguf_query_factor(const ag_model_spec *s);

#endif
