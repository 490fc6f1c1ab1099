/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the model directory of -m, and whether it has a chat template. */
#ifndef ANTIGRAVITY_MODEL_DIR_H
#define ANTIGRAVITY_MODEL_DIR_H

#include <stdbool.h>

/* Finds a model: the given path, else the store's model of that name. NULL: the bundled model,
 * which is reported unless quiet. The caller frees *out. Returns an exit code. */
int model_dir_find(const char *given, bool quiet, char **out);

/* Returns whether the word names a model: a directory, a name that ends in ".gguf", or the full
 * name of a model in the store. */
bool model_dir_is_model(const char *word);

/* Returns whether the directory has a chat template. */
bool model_dir_is_chat(const char *dir, bool quiet);

#endif
