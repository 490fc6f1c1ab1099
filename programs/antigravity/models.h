/* SPDX-License-Identifier: Apache-2.0 */
/* Models of the store, as `models` and `doctor` print them. */
#ifndef ANTIGRAVITY_MODELS_H
#define ANTIGRAVITY_MODELS_H

#include "model/store.h"
#include "support/json_out.h"

/* Returns an object with the entry's name, kind, size and last use. `full`: also its path, and null
 * where a table has words. */
json_t *models_row(const model_store *s, const store_entry *e, bool full);

#endif
