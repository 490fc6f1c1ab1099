/* SPDX-License-Identifier: Apache-2.0 */
/* Which model directory is meant, and what it says about itself beside its weights. */
#ifndef ANTIGRAVITY_MODEL_DIR_H
#define ANTIGRAVITY_MODEL_DIR_H

#include <stdbool.h>

/* The path given, else the store's model of that name; without one (NULL) the bundled model's,
 * which is said unless quiet. *out is the caller's to free(). Returns an exit code. */
int model_dir_find(const char *given, bool quiet, char **out);

/* Whether the directory holds a chat template: the model expects its turns to be marked up. */
bool model_dir_is_chat(const char *dir, bool quiet);

#endif
