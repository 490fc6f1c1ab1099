/* SPDX-License-Identifier: Apache-2.0 */
/* The model store: a directory in which each model is a directory or a .gguf file, and the short
 * names by which they are found. */
#ifndef ANTIGRAVITY_STORE_H
#define ANTIGRAVITY_STORE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* "NAME.part": the directory in which a model is fetched. */
#define STORE_PART ".part"

typedef struct store_entry {
    char file[NAME_MAX + 1]; /* in the store: "SmolLM2-135M", "x.gguf", "SmolLM2-135M.part" */
    char name[NAME_MAX + 1]; /* without ".gguf" and ".part" */
    bool is_directory;       /* also by a link */
    bool is_part;
} store_entry;

typedef struct model_store {
    char path[PATH_MAX];
    store_entry *entries; /* [n] sorted by name */
    size_t n;
} model_store;

/* $ANTIGRAVITY_MODELS, $XDG_DATA_HOME/antigravity/models or ~/.local/share/antigravity/models.
 * False: the environment names none. */
bool store_locate(char path[PATH_MAX]);

/* Lists the store; one that does not exist is empty. Returns an exit code. */
int store_open(model_store *s);
void store_close(model_store *s);

/* The models that `name` may mean: that file, else that name, else that name in other case, else
 * (if `prefixes`) what begins with it in any case. Parts only if it is exactly their file's name,
 * or if there is nothing else of that name. Their places among the entries are in found[n]. */
size_t store_match(const model_store *s, const char *name, bool prefixes, size_t *found,
                   size_t cap);

/* "a, b, c" of found[n]. */
void store_list_names(const model_store *s, const size_t *found, size_t n, char *text, size_t cap);

/* What -m takes for it. False: too long. */
bool store_model_path(const model_store *s, const store_entry *e, char path[PATH_MAX]);

/* Bytes of its files. */
uint64_t store_bytes(const model_store *s, const store_entry *e);

/* When the model was last chosen by its name; 0: never. */
time_t store_used(const model_store *s, const store_entry *e);
void store_mark_used(const model_store *s, const store_entry *e);

/* Letters, digits and "._-"; not hidden, no option, no ".part". */
bool store_name_is_valid(const char *name);

/* Removes the entry, and nothing that links lead to. 0, or errno: EBUSY while it is fetched. */
int store_remove(const model_store *s, const store_entry *e);

#endif
