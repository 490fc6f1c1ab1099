/* SPDX-License-Identifier: Apache-2.0 */
/* Names that clients gave to models of the store: aliases and derived models, in a file of the
 * store. */
#ifndef ANTIGRAVITY_SERVE_MODELS_MODEL_NAMES_H
#define ANTIGRAVITY_SERVE_MODELS_MODEL_NAMES_H

#include "served_models.h"

/* Returns whether the name is of the form NAME or NAME:TAG: letters, digits and "._-", in NAME also
 * '/', without "..", and not beginning with '.', '-' or '/'. */
bool model_name_is_valid(const char *name);

/* Adds the names of the store's file to the list, except those of models that are not served. */
void model_names_load(served_models *s);
/* Writes all names that clients gave; names of models that are not served stay in the file. Returns
 * false with reason[256]. */
bool model_names_save(const served_models *s, char *reason);

#endif
