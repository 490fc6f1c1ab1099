/* SPDX-License-Identifier: Apache-2.0 */
/* A file that says how the heads of a model's layers share what these keep, as 'calibrate' writes
 * it. */
#ifndef ANTIGRAVITY_HEAD_FILE_H
#define ANTIGRAVITY_HEAD_FILE_H

#include <antigravity/eviction.h>
#include <antigravity/model.h>
#include <jansson.h>

/* Layers that keep keys and values, in order, and the KV heads of each. */
enum { HEAD_FILE_LAYERS = 1024 };
typedef struct head_table {
    uint32_t n_layers;
    uint32_t n_heads[HEAD_FILE_LAYERS];
} head_table;

/* Makes p share by the file. It holds for the whole process: a second file takes its place. False:
 * the file, the place in it and what is wrong there are in why[MESSAGE_SIZE]. */
bool head_file_read(ag_eviction_params *p, const char *path, char *message);

/* Says which file does not fit the model, and returns an exit code. */
int head_file_fits(const ag_eviction_params *p, const ag_model_info *info);

/* What the file holds: shares [of all heads], those of a layer 1 together. */
json_t *head_file_of(const head_table *t, const float *shares, size_t n_tokens);

#endif
