/* SPDX-License-Identifier: Apache-2.0 */
/* Fetches one file of a plan into the directory NAME.part. */
#ifndef ANTIGRAVITY_FETCH_FILE_H
#define ANTIGRAVITY_FETCH_FILE_H

#include "part_directory.h"

/* State shared by the files of a model. */
typedef struct fetch {
    http *client;
    const pull_plan *plan;
    const char *path; /* path of the complete model */
    part_directory part;
    uint64_t done;      /* bytes of finished files */
    uint64_t total;     /* bytes of all files; 0: unknown */
    uint64_t min_total; /* sum of the known sizes */
    uint64_t received;
    bool quiet;
} fetch;

/* Returns an exit code; the reason is in message[HTTP_MESSAGE]. */
int fetch_file(fetch *k, const pull_file *f, char *message);

/* Adds the first n bytes of a file to the hash. Returns false after an interruption, or with *error
 * set to an errno. */
bool fetch_hash(int fd, sha256 *sum, uint64_t n, int *error);

#endif
