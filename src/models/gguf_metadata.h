/* SPDX-License-Identifier: Apache-2.0 */
/* From a description, and the config.json that it is of, to the metadata of a GGUF file: the other
 * way round than gguf_config.h, by the same tables. */
#ifndef AG_MODELS_GGUF_METADATA_H
#define AG_MODELS_GGUF_METADATA_H

#include "formats/gguf_writer.h"
#include "models/spec.h"

/* Puts general.architecture and the keys of the architecture. AG_UNSUPPORTED for a family, and for
 * a scaling of rotary positions, that GGUF files do not know. */
ag_status ag_gguf_put_model(ag_gguf_writer *w, const ag_weight_source *source,
                            const ag_model_spec *s, ag_error *err);

/* How many times larger the scale of scores is than readers of such a file take it: what their
 * queries have to be multiplied with. */
float ag_gguf_query_factor(const ag_model_spec *s);

#endif
