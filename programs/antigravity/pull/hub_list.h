/* SPDX-License-Identifier: Apache-2.0 */
/* File list of a hub repository, validated. An invalid field is an error that names the file, the
 * field and the reason. https://huggingface.co/docs/hub/api */
#ifndef ANTIGRAVITY_HUB_LIST_H
#define ANTIGRAVITY_HUB_LIST_H

#include "plan.h"

#include <jansson.h>

enum { HUB_REPO_SIZE = 200, HUB_REVISION_SIZE = 200, HUB_URL_SIZE = 2048 };

/* A file of the repository; texts are borrowed from the response. */
typedef struct hub_file {
    const char *path;          /* relative, without "..", printable, unique in the list */
    int64_t size;              /* -1: unknown */
    const char *sha256, *blob; /* 64 hexadecimal digits; version id; NULL if absent */
} hub_file;

typedef struct hub_list {
    json_t *answer;  /* owned */
    hub_file *files; /* [n] owned, in the hub's order */
    size_t n;
    char commit[HUB_REVISION_SIZE]; /* commit that the revision names now */
} hub_list;

/* Fetches the list of repo ("org/name") at a revision. Returns an exit code; hub_list_free() also
 * after a failure. */
int hub_list_get(const hub *h, const char *repo, const char *revision, hub_list *out);
void hub_list_free(hub_list *l);

/* Fetches the JSON at the URL, of at most 64 MiB and two million values. Returns an exit code. */
int hub_get_json(const hub *h, const char *url, json_t **out);
/* Returns "an array", "a number", ...; "missing" for NULL. */
const char *hub_type_name(const json_t *value);

/* Percent-encodes all characters except unreserved ones and those in `also`. */
void hub_encode(char *to, size_t cap, const char *from, const char *also);

#endif
