/* SPDX-License-Identifier: Apache-2.0 */
/* Pull plan: the files of a model, from a URL or a hub's list. */
#ifndef ANTIGRAVITY_PULL_PLAN_H
#define ANTIGRAVITY_PULL_PLAN_H

#include "../support/sha256.h"
#include "http.h"

#include <limits.h>

typedef struct pull_file {
    char *url;               /* owned */
    char *name;              /* owned; name in the model's directory */
    int64_t size;            /* -1: unknown */
    char sha256[SHA256_HEX]; /* lower case, or "" */
    /* Identifies this version of the file, such as an ETag; "": unknown. */
    char version[200];
    /* Validator for resuming; "": the hash decides afterwards. */
    char validator[200];
} pull_file;

typedef struct pull_plan {
    char name[NAME_MAX + 1]; /* in the store, without ".gguf" */
    bool is_directory;       /* false: one file, NAME.gguf */
    pull_file *files;        /* [n] owned */
    size_t n;
} pull_plan;

/* Adds a file; copies the texts. Returns NULL after reporting that memory is short. */
pull_file *pull_plan_add(pull_plan *p, const char *url, const char *name, int64_t size);
void pull_plan_free(pull_plan *p);

/* Reads a SHA-256 in hexadecimal digits, optionally quoted. Returns false if the text is not
 * one. */
bool pull_read_hash(const char *text, char hex[SHA256_HEX]);

/* Maximum accepted size: 256 TiB. */
#define PULL_MAX_BYTES ((int64_t)1 << 48)
/* Returns a size in decimal digits; -1 if the text is not one, or above PULL_MAX_BYTES. */
int64_t pull_read_size(const char *text);

/* Returns the header that identifies a version: a strong ETag, else the date; "" if absent. A weak
 * ETag does not guarantee the same bytes: RFC 9110, 13.1.5. */
const char *pull_validator(const http_answer *a);

/* Makes a store name: replaces invalid characters by '-'. */
void pull_make_name(char name[NAME_MAX + 1], const char *from, size_t n);

/* Source of models. */
typedef struct hub {
    http *client;
    const char *endpoint; /* "https://huggingface.co", without a trailing slash */
} hub;

/* Plans one file; asks the server for its size and version. Returns an exit code. */
int pull_plan_url(const hub *h, const char *url, pull_plan *out);

/* Returns whether `source` is "org/name", "org/name:Q4_K_M", "org/name:file.gguf",
 * "org/name@revision", or a URL of these on the endpoint. */
bool hub_is_source(const char *endpoint, const char *source);
/* Plans the files of such a repository. Returns an exit code. */
int pull_plan_hub(const hub *h, const char *source, pull_plan *out);

#endif
