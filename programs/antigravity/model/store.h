/* SPDX-License-Identifier: Apache-2.0 */
/* Model store: a directory that holds each model as a directory or a .gguf file. Models are found
 * by short names. */
#ifndef ANTIGRAVITY_STORE_H
#define ANTIGRAVITY_STORE_H

#include "../support/sha256.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* "NAME.part": directory of a model that is being fetched. */
#define STORE_PART ".part"

typedef struct store_entry {
    char file[NAME_MAX + 1]; /* name in the store: "SmolLM2-135M", "x.gguf", "SmolLM2-135M.part" */
    char name[NAME_MAX + 1]; /* without ".gguf" and ".part" */
    bool is_directory;       /* follows links */
    bool is_part;
} store_entry;

typedef struct model_store {
    char path[PATH_MAX];
    store_entry *entries; /* [n] sorted by name */
    size_t n;
} model_store;

/* Writes $ANTIGRAVITY_MODELS, $XDG_DATA_HOME/antigravity/models or
 * ~/.local/share/antigravity/models. Returns false if the environment names none. */
bool store_locate(char path[PATH_MAX]);

/* Lists the store; a missing directory is an empty store. Returns an exit code. */
int store_open(model_store *s);
/* Lists another directory of models. */
int store_open_at(model_store *s, const char *path);
void store_close(model_store *s);

/* Returns how well a given name matches a model's name: 0 not, 1 as a prefix ignoring case, 2
 * ignoring case, 3 exactly. A tag is a part of the name after '-': "qwen3:0.6b" is a prefix of
 * "Qwen3-0.6B-Q8_0". The tag "latest" is ignored. */
int store_name_match(const char *name, const char *given);

/* Finds the models that match `name` best. From best to worst: file name, name, name ignoring
 * case, and (if `prefixes`) prefix ignoring case: see store_name_match(). A partial model matches
 * by its file name, or if nothing else has its name. Writes at most cap indices into `entries` to
 * found[] and returns their number. */
size_t store_match(const model_store *s, const char *name, bool prefixes, size_t *found,
                   size_t cap);

/* Writes "a, b, c" for found[n]. */
void store_list_names(const model_store *s, const size_t *found, size_t n, char *text, size_t cap);

/* Writes the path that -m accepts. Returns false if it is too long. */
bool store_model_path(const model_store *s, const store_entry *e, char path[PATH_MAX]);

/* Returns the total size of its files. */
uint64_t store_bytes(const model_store *s, const store_entry *e);

/* Returns when the model was last chosen by name; 0: never. */
time_t store_used(const model_store *s, const store_entry *e);
void store_mark_used(const model_store *s, const store_entry *e);

/* Records the SHA-256 of a model that is a single file. A read-only store does not record it. */
void store_record_hash(const char *model_path, const char hash[SHA256_HEX]);
/* Writes the recorded SHA-256. Returns false if there is none, or if the file has another size or
 * time of change than when it was recorded. */
bool store_find_hash(const char *model_path, char hash[SHA256_HEX]);

/* Returns whether the name has only letters, digits and "._-", does not begin with '.' or '-', and
 * does not end in ".part". */
bool store_name_is_valid(const char *name);

/* Removes the entry; links are removed, not followed. Returns 0 or errno; EBUSY while it is
 * fetched. */
int store_remove(const model_store *s, const store_entry *e);

#endif
