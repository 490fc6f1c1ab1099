/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a GGUF file that describe its model, and what a config.json calls the same. */
#ifndef AG_MODELS_GGUF_KEYS_H
#define AG_MODELS_GGUF_KEYS_H

#include "formats/weight_source.h"

#include <jansson.h>

typedef struct ag_gguf_reader {
    const ag_weight_source *source;
    const json_t *metadata;   /* as the source's configuration has it */
    const char *architecture; /* general.architecture: keys of the model begin with it */
    const char *where;        /* begins the messages */
    ag_error *err;
} ag_gguf_reader;

/* What the same thing is called behind "ARCHITECTURE." and in a config.json. */
typedef struct ag_gguf_key {
    const char *gguf, *config;
    bool is_real; /* written as f32; else as a whole number */
} ag_gguf_key;

/* Keys of every architecture, and those of a scaling of rotary positions; both end with NULL. Of
 * numbers for each layer the largest is read; a family that needs the others asks for them. */
extern const ag_gguf_key ag_gguf_keys[], ag_gguf_scaling_keys[];

/* What "ARCHITECTURE.key" says; NULL: nothing. */
const json_t *ag_gguf_value(const ag_gguf_reader *r, const char *key);
/* What it says as a number of layer `layer`: some keys hold one number for all layers or a list.
 * NULL: there is none. */
const json_t *ag_gguf_of_layer(const ag_gguf_reader *r, const char *key, size_t layer);

/* Whether the file has a tensor of that name. */
bool ag_gguf_has(const ag_gguf_reader *r, const char *tensor);

#endif
