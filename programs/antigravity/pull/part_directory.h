/* SPDX-License-Identifier: Apache-2.0 */
/* NAME.part: the directory in which a model's files grow, locked by who fetches them, with a note
 * of which version each of them is. */
#ifndef ANTIGRAVITY_PART_DIRECTORY_H
#define ANTIGRAVITY_PART_DIRECTORY_H

#include "plan.h"

#include <jansson.h>

typedef struct part_directory {
    char path[PATH_MAX];
    int fd;           /* -1: not open */
    json_t *versions; /* owned: by file name */
} part_directory;

/* Makes the folder, or waits until no other process has it. Returns an exit code. */
int part_open(part_directory *p, const char *store, const char *name, bool quiet);
/* Removes the folder if nothing of a file is in it, or if all of it is of no use any more. */
void part_close(part_directory *p, bool useless);

/* Whether this version of the file is there as a whole. */
bool part_has_file(const part_directory *p, const pull_file *f);
/* Returns whether the bytes of an interrupted fetch can be told from those of another version. */
bool part_can_resume(const pull_file *f);
/* Notes that the file's bytes are of another version than the plan's, so that a later process does
 * not add to them. Returns false with the reason in why[HTTP_MESSAGE]. */
bool part_forget_version(part_directory *p, const pull_file *f, char *message);
/* The file to be added to, empty unless it is the beginning of this version. -1: why[HTTP_MESSAGE].
 */
int part_open_file(part_directory *p, const pull_file *f, char *message);
/* The file is complete. These two return an exit code and leave the reason in why[HTTP_MESSAGE]. */
int part_finish_file(part_directory *p, const pull_file *f, char *message);
/* All are: the model gets its name. */
int part_commit(part_directory *p, const pull_plan *plan, const char *path, char *message);
/* Whether its file system has room for `needed` more bytes, also where the file system does not
 * report it. False: why[HTTP_MESSAGE]. */
bool part_has_space(const part_directory *p, uint64_t needed, char *message);
/* Bytes of the plan's files that are there and of its versions. */
uint64_t part_bytes(const part_directory *p, const pull_plan *plan);

#endif
