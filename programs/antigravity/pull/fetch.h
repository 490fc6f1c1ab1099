/* SPDX-License-Identifier: Apache-2.0 */
/* Brings the files of a plan into the store. They grow in the directory NAME.part, which one
 * process at a time has locked and in which an interrupted fetch goes on; the model appears under
 * its own name as a whole, after its sizes and hashes were checked. */
#ifndef ANTIGRAVITY_FETCH_H
#define ANTIGRAVITY_FETCH_H

#include "plan.h"

/* path[PATH_MAX] becomes where the model is; a model that is there already is checked, not fetched.
 * Returns an exit code. */
int fetch_model(http *client, const pull_plan *plan, const char *store, bool quiet, char *path);

#endif
