/* SPDX-License-Identifier: Apache-2.0 */
/* NAME.part: locked directory where a model's files grow. A note records the version of each
 * file. */
#ifndef ANTIGRAVITY_PART_DIRECTORY_H
#define ANTIGRAVITY_PART_DIRECTORY_H

#include "plan.h"

#include <jansson.h>

typedef struct part_directory {
    char path[PATH_MAX];
    int fd;             /* -1: not open */
    json_t *versions;   /* owned: version texts by file name */
    uint64_t max_bytes; /* maximum bytes of the directory; UINT64_MAX: no limit */
} part_directory;

/* Creates and locks the directory; waits while another process holds the lock. Returns an exit
 * code. */
int part_open(part_directory *p, const char *store, const char *name, bool quiet);
/* Unlocks the directory. Removes it if it has no file content, or if `useless`. */
void part_close(part_directory *p, bool useless);

/* Returns whether this version of the file is complete in the directory. */
bool part_has_file(const part_directory *p, const pull_file *f);
/* Returns whether the bytes of an interrupted fetch can be matched to a version. */
bool part_can_resume(const pull_file *f);
/* Records that the file's bytes are not the plan's version, so a later process does not append to
 * them. On false the reason is in message[HTTP_MESSAGE]. */
bool part_forget_version(part_directory *p, const pull_file *f, char *message);
/* Opens the partial file for appending; truncated if it is of another version. Returns -1 with the
 * reason in message[HTTP_MESSAGE]. */
int part_open_file(part_directory *p, const pull_file *f, char *message);
/* Gives a complete file its final name. Like part_commit(), returns an exit code with the reason in
 * message[HTTP_MESSAGE]. */
int part_finish_file(part_directory *p, const pull_file *f, char *message);
/* Gives the complete model its final name. */
int part_commit(part_directory *p, const pull_plan *plan, const char *path, char *message);
/* Limits the directory so that the store has at most `limit` bytes with it; 0: no limit. */
void part_limit_store(part_directory *p, const char *store, uint64_t limit);
/* Returns whether the store's limit allows `needed` bytes more, and the file system has them free
 * or does not report it. On false the reason is in message[HTTP_MESSAGE]. */
bool part_has_space(const part_directory *p, uint64_t needed, char *message);
/* Returns the bytes fetched so far of the plan's files, in their planned versions. */
uint64_t part_bytes(const part_directory *p, const pull_plan *plan);

#endif
