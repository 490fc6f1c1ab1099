/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration reader: reads keys of a JSON object and checks their types and ranges. */
#ifndef AG_MODELS_CONFIG_READER_H
#define AG_MODELS_CONFIG_READER_H

#include "models/spec.h"

#include <jansson.h>

/* The first failure is stored in `status`, so that a list of reads needs one check. A key that is
 * absent or null does not change *out. */
typedef struct ag_config_reader {
    const json_t *object;
    const char *where; /* starts messages */
    ag_error *err;
    ag_status status;
} ag_config_reader;

/* Returns NULL for an absent key and for null. */
const json_t *ag_config_value(const ag_config_reader *r, const char *key);
/* Reads a number within [low, high]. Returns whether *out was set. */
bool ag_config_real(ag_config_reader *r, const char *key, double low, double high, double *out);
/* Reads an integer within [1, max]. 2048.0 is one too. Returns whether *out was set. */
bool ag_config_size(ag_config_reader *r, const char *key, uint32_t max, uint32_t *out);
void ag_config_bool(ag_config_reader *r, const char *key, bool *out);
/* Finds an object. *out is NULL if it is absent or {}. */
ag_status ag_config_object(const ag_config_reader *r, const char *key, const json_t **out);

/* ---- keys of several families ---- */

/* Reads the window of attention, in positions. Returns whether *out was set. */
bool ag_config_window(ag_config_reader *r, const char *key, uint32_t *out);
/* Returns the index in known[], which ends with NULL, of the type that `layer_types` gives the
 * layer. Returns `otherwise` without such a list and after a failure. */
size_t ag_config_layer_type(ag_config_reader *r, uint32_t layer, const char *const known[],
                            size_t otherwise);
/* Returns whether `layer_types` gives the layer a window; `otherwise` without such a list. */
bool ag_config_has_window(ag_config_reader *r, uint32_t layer, bool otherwise);
/* Reads the rotary table of layers of one type ("sliding_attention"; NULL: all layers) into *rope,
 * which holds the values of the top level. *found: the configuration has an entry for it. */
ag_status ag_config_rope_of(ag_config_reader *r, const char *layer_type, uint32_t max_positions,
                            uint32_t head_dim, ag_rope_spec *rope, bool *found);

/* Key that no config.json has: partial_rotary_factor applies, whatever the family. */
#define AG_CONFIG_PARTIAL_ROTARY "rotates_part_of_heads"

#endif
