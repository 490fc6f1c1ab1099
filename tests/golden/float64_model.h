/* SPDX-License-Identifier: Apache-2.0 */
/* A forward pass in double precision, as plain as it can be written: every tensor from the file by
 * its name, every position kept, and the caller says which of them a query sees. Weights of experts
 * are the softmax of the chosen logits. */
#ifndef AG_TESTS_GOLDEN_FLOAT64_MODEL_H
#define AG_TESTS_GOLDEN_FLOAT64_MODEL_H

#include "models/spec.h"

#include <antigravity/model.h>

enum { FLOAT64_MAX_POSITIONS = 128, FLOAT64_MAX_SINKS = 4 };

typedef struct float64_model float64_model;

/* NULL, with a message on stderr, if the directory cannot be read. */
float64_model *float64_model_load(const char *dir);
void float64_model_destroy(float64_model *m);
const ag_model_spec *float64_model_spec(const float64_model *m);
/* Sets whether the model rotates by the frequencies for long texts; a new model does not. */
void float64_model_set_long(float64_model *m, bool is_long);

/* Keys of the first n positions, at most FLOAT64_MAX_SINKS, rotate as if they stood `by` later. */
void float64_model_move_sinks(float64_model *m, uint32_t n, uint32_t by);

/* Returns whether the query at position `query` sees `position`, at most `query`, in that layer. */
typedef bool (*float64_sees_fn)(void *user, uint32_t layer, uint32_t query, uint32_t position);

/* The next token at its position, from 0 on: logits [vocab_size] of what follows it. */
void float64_model_token(float64_model *m, uint32_t position, int32_t id, float64_sees_fn sees,
                         void *user, double *logits);

#endif
