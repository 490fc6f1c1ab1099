/* SPDX-License-Identifier: Apache-2.0 */
/* Conversion of a description and its config.json to the metadata of a GGUF file: the reverse of
 * gguf_config.h, by the same tables. */
#ifndef AG_MODELS_GGUF_METADATA_H
#define AG_MODELS_GGUF_METADATA_H

#include "formats/gguf_writer.h"
#include "models/spec.h"

/* Puts general.architecture and the keys of the architecture. Fails with AG_UNSUPPORTED for a
 * family without GGUF form. */
ag_status ag_gguf_put_model(ag_gguf_writer *w, const ag_weight_source *source,
                            const ag_model_spec *s, ag_error *err);

/* Returns the factor by which the weights of queries must grow, because readers of the file use
 * another scale of scores. */
float ag_gguf_query_factor(const ag_model_spec *s);

#endif
