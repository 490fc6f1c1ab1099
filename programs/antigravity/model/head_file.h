/* SPDX-License-Identifier: Apache-2.0 */
/* Head budget file: how the KV heads of each layer share the layer's budget. 'calibrate' writes
 * it. */
#ifndef ANTIGRAVITY_HEAD_FILE_H
#define ANTIGRAVITY_HEAD_FILE_H

#include <antigravity/eviction.h>
#include <antigravity/model.h>
#include <jansson.h>

/* Layers with a KV cache, in order, and their numbers of KV heads. */
enum { HEAD_FILE_LAYERS = 1024 };
typedef struct head_table {
    uint32_t n_layers;
    uint32_t n_heads[HEAD_FILE_LAYERS];
} head_table;

/* Reads the file and sets p to its shares, which are static: a second file replaces the first. On
 * false the reason, with the location in the file, is in message[MESSAGE_SIZE]. */
bool head_file_read(ag_eviction_params *p, const char *path, char *message);

/* Checks the file against the model. Reports a difference and returns an exit code. */
int head_file_fits(const ag_eviction_params *p, const ag_model_info *info);

/* Returns the file's content: shares [of all heads]; those of a layer add up to 1. */
json_t *head_file_of(const head_table *t, const float *shares, size_t n_tokens);

#endif
