/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches a model into the store. Files grow in the directory NAME.part, locked by one process; an
 * interrupted fetch resumes there. The model gets its final name after sizes and hashes were
 * checked. */
#ifndef ANTIGRAVITY_FETCH_H
#define ANTIGRAVITY_FETCH_H

#include "plan.h"

typedef struct fetch_settings {
    const char *store;    /* path of the store */
    uint64_t store_limit; /* maximum bytes of the store with the model; 0: no limit */
    bool quiet;
} fetch_settings;

/* Fetches the model; one that exists is checked, not fetched. path[PATH_MAX] receives its path.
 * Returns an exit code. */
int fetch_model(http *client, const pull_plan *plan, const fetch_settings *o, char *path);

#endif
