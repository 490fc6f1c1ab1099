/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a GGUF file that describe its model, with the corresponding keys of a config.json. */
#ifndef AG_MODELS_GGUF_KEYS_H
#define AG_MODELS_GGUF_KEYS_H

#include "formats/weight_source.h"

#include <jansson.h>

typedef struct ag_gguf_reader {
    const ag_weight_source *source;
    const json_t *metadata;   /* the source's configuration */
    const char *architecture; /* general.architecture, the prefix of keys */
    const char *where;        /* starts messages */
    ag_error *err;
} ag_gguf_reader;

/* A key after "ARCHITECTURE.", and its name in a config.json. */
typedef struct ag_gguf_key {
    const char *gguf, *config;
    bool is_real; /* written as f32; else as an integer */
} ag_gguf_key;

/* Keys of all architectures, and keys of rope scaling. Both lists end with NULL. In a list with a
 * number for each layer, the largest is used; families that need the others call
 * ag_gguf_of_layer(). */
extern const ag_gguf_key ag_gguf_keys[], ag_gguf_scaling_keys[];

/* Returns the value of "ARCHITECTURE.key", or NULL. */
const json_t *ag_gguf_value(const ag_gguf_reader *r, const char *key);
/* Returns its value for a layer, or NULL. The value is one number for all layers or a list. */
const json_t *ag_gguf_of_layer(const ag_gguf_reader *r, const char *key, size_t layer);

/* Returns whether the source has a tensor of that name. */
bool ag_gguf_has(const ag_gguf_reader *r, const char *tensor);

#endif
