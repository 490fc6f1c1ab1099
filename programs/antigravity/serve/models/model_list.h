/* SPDX-License-Identifier: Apache-2.0 */
/* Models of the server by name. Any thread may call the functions. An entry exists until the list
 * is destroyed. When it is removed, its name becomes free, and no search finds it. An equal entry
 * that is added later uses it again. */
#ifndef ANTIGRAVITY_SERVE_MODELS_MODEL_LIST_H
#define ANTIGRAVITY_SERVE_MODELS_MODEL_LIST_H

#include "../../support/sha256.h"

#include <antigravity/serving.h>
#include <stdatomic.h>

typedef enum model_kind {
    MODEL_FILE,    /* a model with files of its own */
    MODEL_ALIAS,   /* another name of a model; lists omit it */
    MODEL_DERIVED, /* a model of another one's files, perhaps with other defaults */
} model_kind;

typedef struct model_entry {
    model_kind kind;
    const char *name;
    ag_served_model *model;
    char digest[SHA256_HEX];   /* identifies the version; entries of a list: model_list_digest() */
    _Atomic double changed_at; /* seconds since 1970 */
    const char *file;          /* FILE: its name in the store; NULL: it is not there */
    const char *system;        /* DERIVED: the system prompt; NULL: none */
    const char *parameters;    /* DERIVED: options of ollama's API as a JSON object; NULL: none */
    bool is_saved;             /* a client gave this name; it is in the store's file of names */
    atomic_bool is_removed;
    struct model_entry *_Atomic next; /* the list's own */
} model_entry;

typedef struct model_list model_list;

/* Sets the digest of a name of the model with the digest `base`: that of a DERIVED entry also
 * identifies name, system prompt and parameters. */
void model_entry_digest(model_entry *e, const char base[SHA256_HEX]);

/* Creates a list without entries. NULL: out of memory. */
model_list *model_list_create(void);
void model_list_destroy(model_list *l);

/* Adds a copy of the entry and sets *out, which may be NULL. Fails with reason[256] if the name is
 * in use or the list has 1,024 entries. */
bool model_list_add(model_list *l, const model_entry *e, const model_entry **out, char *reason);
/* Copies the digest of an entry of the list. */
void model_list_digest(model_list *l, const model_entry *e, char digest[SHA256_HEX]);
/* Replaces the digest and the time of change of a FILE and of its aliases, and the digests of
 * DERIVED entries of its model. */
void model_list_set_version(model_list *l, const model_entry *file, const char digest[SHA256_HEX],
                            double changed_at);
/* Removes the entry, and with a FILE the aliases of its model. The caller removes the model. */
void model_list_remove(model_list *l, const model_entry *e);
/* Undoes the removal of an ALIAS or DERIVED entry whose name is free. */
void model_list_restore(model_list *l, const model_entry *e);

/* Returns the entry of a name. Without an equal name: the one whose name equals it without the tag
 * ":latest", then ignoring case and with "-" for ":", then the only one that begins so. name NULL:
 * the first FILE. Returns NULL if there is none. */
const model_entry *model_list_find(const model_list *l, const char *name);
/* Returns the entry with exactly this name, or NULL. */
const model_entry *model_list_exact(const model_list *l, const char *name);
/* Returns the entry after `e` that is not removed, NULL at the end. e NULL: the first one. */
const model_entry *model_list_next(const model_list *l, const model_entry *e);
/* Does the same for entries that clients see: no aliases, and no models whose files are broken. */
const model_entry *model_list_next_shown(const model_list *l, const model_entry *e);
/* Returns the FILE entry of the model. */
const model_entry *model_list_of(const model_list *l, const ag_served_model *m);

#endif
