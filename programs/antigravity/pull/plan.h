/* SPDX-License-Identifier: Apache-2.0 */
/* What is to be fetched: the files of a model, found out from a URL or a hub's list. */
#ifndef ANTIGRAVITY_PULL_PLAN_H
#define ANTIGRAVITY_PULL_PLAN_H

#include "../support/sha256.h"
#include "http.h"

#include <limits.h>

typedef struct pull_file {
    char *url;               /* owned */
    char *name;              /* owned; in the model's directory */
    int64_t size;            /* -1: not known */
    char sha256[SHA256_HEX]; /* in lower case, or "" */
    /* What tells this version of the file from others, such as an ETag; "": nothing does. */
    char version[200];
    /* What the server is asked to compare before it sends the rest of a part; "": the hash tells
     * afterwards. */
    char validator[200];
} pull_file;

typedef struct pull_plan {
    char name[NAME_MAX + 1]; /* in the store, without ".gguf" */
    bool is_directory;       /* else one file, NAME.gguf */
    pull_file *files;        /* [n] owned */
    size_t n;
} pull_plan;

/* Copies the texts. NULL without memory, which it says. */
pull_file *pull_plan_add(pull_plan *p, const char *url, const char *name, int64_t size);
void pull_plan_free(pull_plan *p);

/* A SHA-256 in hexadecimal digits, perhaps in quotes: false if the text is none. */
bool pull_read_hash(const char *text, char hex[SHA256_HEX]);

/* Largest size that is believed: 256 TiB. */
#define PULL_MAX_BYTES ((int64_t)1 << 48)
/* Returns a size in decimal digits; -1 if the text is not one, or above PULL_MAX_BYTES. */
int64_t pull_read_size(const char *text);

/* Returns the header that tells versions of a file apart: a strong ETag, else the date; "" if the
 * answer has none. A weak ETag does not promise the same bytes: RFC 9110, 13.1.5. */
const char *pull_validator(const http_answer *a);

/* Characters that no store name has become '-'. */
void pull_make_name(char name[NAME_MAX + 1], const char *from, size_t n);

/* Where models come from, and as who. */
typedef struct hub {
    http *client;
    const char *endpoint; /* "https://huggingface.co", without a slash at its end */
} hub;

/* One file; asks the server for its size and version. Returns an exit code. */
int pull_plan_url(const hub *h, const char *url, pull_plan *out);

/* "org/name", "org/name:Q4_K_M", "org/name:file.gguf", "org/name@revision", or a URL of these on
 * the endpoint; false: it is something else. */
bool hub_is_source(const char *endpoint, const char *source);
/* The files of such a repository. Returns an exit code. */
int pull_plan_hub(const hub *h, const char *source, pull_plan *out);

#endif
