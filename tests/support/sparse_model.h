/* SPDX-License-Identifier: Apache-2.0 */
/* A model directory of any size whose weights are all zero and take no room on the disk. */
#ifndef AG_TESTS_SUPPORT_SPARSE_MODEL_H
#define AG_TESTS_SUPPORT_SPARSE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All weights are BF16, and the embedding is also the head. Heads have 32 values; there are half as
 * many KV heads as query heads. */
typedef struct sparse_model {
    uint32_t n_layers, hidden_size, intermediate_size, vocab_size; /* hidden_size % 64 = 0 */
} sparse_model;

/* dir[0..cap) receives the path; tiny_model_remove(dir) afterwards. False, with a message on
 * stderr, if it cannot be written. */
bool sparse_model_write(const sparse_model *m, char *dir, size_t cap);

#endif
