/* SPDX-License-Identifier: Apache-2.0 */
/* Reads keys of a JSON object and checks their types and ranges. */
#ifndef AG_MODELS_CONFIG_READER_H
#define AG_MODELS_CONFIG_READER_H

#include "models/spec.h"

#include <jansson.h>

/* The first failure sticks, so that a list of reads needs one check. A key that is absent or null
 * leaves *out as it was. */
typedef struct ag_config_reader {
    const json_t *object;
    const char *where; /* begins the messages */
    ag_error *err;
    ag_status status;
} ag_config_reader;

/* NULL for an absent key and for null. */
const json_t *ag_config_value(const ag_config_reader *r, const char *key);
/* Of [low, high]; false if nothing was read. */
bool ag_config_real(ag_config_reader *r, const char *key, double low, double high, double *out);
/* A whole number of [1, max]; 2048.0 is one too. */
bool ag_config_size(ag_config_reader *r, const char *key, uint32_t max, uint32_t *out);
void ag_config_bool(ag_config_reader *r, const char *key, bool *out);
/* Numbers of [low, high], exactly n of them; AG_FORMAT also if there is no such list. */
ag_status ag_config_reals(const ag_config_reader *r, const char *key, double low, double high,
                          size_t n, float *out);
/* *out: an object that says something, else NULL: {} says as little as no key at all. */
ag_status ag_config_object(const ag_config_reader *r, const char *key, const json_t **out);

/* ---- what several families have ---- */

/* The newest positions that layers with a window see; *out stays for null as for no key. */
bool ag_config_window(ag_config_reader *r, const char *key, uint32_t *out);
/* Which of the names, NULL behind the last, `layer_types` gives layer number `layer`; `otherwise`
 * without such a list. */
size_t ag_config_layer_type(ag_config_reader *r, uint32_t layer, const char *const known[],
                            size_t otherwise);
/* Whether `layer_types` gives layer number `layer` a window; `otherwise` without such a list. */
bool ag_config_has_window(ag_config_reader *r, uint32_t layer, bool otherwise);
/* The rotary table of layers of that type ("sliding_attention"; NULL: of all), where the
 * configuration has one for each; theta and scaling of the configuration's top level are those of
 * `rope` already. Its heads have head_dim values. *found: there is such an entry. */
ag_status ag_config_rope_of(ag_config_reader *r, const char *layer_type, uint32_t max_positions,
                            uint32_t head_dim, ag_rope_spec *rope, bool *found);

/* Term of our own: partial_rotary_factor counts in any family. */
#define AG_CONFIG_PARTIAL_ROTARY "rotates_part_of_heads"

#endif
