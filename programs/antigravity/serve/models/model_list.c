/* SPDX-License-Identifier: Apache-2.0 */
#include "model_list.h"

#include "../../model/store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 1024, REASON_SIZE = 256 };

/* Entries are added at the end and stay, so readers of the names need no lock. */
struct model_list {
    pthread_mutex_t changing; /* held to add an entry, and to read or change a digest */
    model_entry *_Atomic first;
};

void model_entry_digest(model_entry *e, const char base[SHA256_HEX]) {
    const char *const texts[] = {base, e->name, e->system, e->parameters};
    sha256 sum;
    if (e->kind != MODEL_DERIVED) { /* the same model */
        memmove(e->digest, base, SHA256_HEX);
        return;
    }
    sha256_begin(&sum);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i]) sha256_add(&sum, texts[i], strlen(texts[i]) + 1);
    sha256_hex(&sum, e->digest);
}

model_list *model_list_create(void) {
    model_list *l = calloc(1, sizeof *l);
    if (l) pthread_mutex_init(&l->changing, NULL);
    return l;
}

static void free_entry(model_entry *e) {
    free((void *)(uintptr_t)e->name);
    free((void *)(uintptr_t)e->file);
    free((void *)(uintptr_t)e->system);
    free((void *)(uintptr_t)e->parameters);
    free(e);
}

void model_list_destroy(model_list *l) {
    if (!l) return;
    for (model_entry *e = l->first, *next; e; e = next) {
        next = e->next;
        free_entry(e);
    }
    pthread_mutex_destroy(&l->changing);
    free(l);
}

/* ---- search ---- */

const model_entry *model_list_next(const model_list *l, const model_entry *e) {
    const model_entry *next = e ? e->next : l->first;
    while (next && next->is_removed) next = next->next;
    return next;
}

const model_entry *model_list_next_shown(const model_list *l, const model_entry *e) {
    do e = model_list_next(l, e);
    while (e && (e->kind == MODEL_ALIAS || ag_served_model_is_broken(e->model)));
    return e;
}

const model_entry *model_list_exact(const model_list *l, const char *name) {
    const model_entry *e = NULL;
    while ((e = model_list_next(l, e)))
        if (!strcmp(e->name, name)) break;
    return e;
}

/* Returns the entry that matches best. NULL: none, or several match equally well. */
static const model_entry *find_similar(const model_list *l, const char *name) {
    const model_entry *found = NULL;
    int best = 0;
    bool is_unique = false;
    for (const model_entry *e = NULL; (e = model_list_next(l, e));) {
        const int match = store_name_match(e->name, name);
        if (match < best || !match) continue;
        /* Names of one model may match equally, but a derived one means more than its model. */
        is_unique = match > best || (is_unique && found->model == e->model &&
                                     found->kind != MODEL_DERIVED && e->kind != MODEL_DERIVED);
        best = match;
        found = e;
    }
    return is_unique ? found : NULL;
}

const model_entry *model_list_find(const model_list *l, const char *name) {
    const model_entry *e = name ? model_list_exact(l, name) : NULL;
    if (e) return e;
    if (name) return find_similar(l, name);
    do e = model_list_next(l, e);
    while (e && e->kind != MODEL_FILE);
    return e;
}

const model_entry *model_list_of(const model_list *l, const ag_served_model *m) {
    const model_entry *e = NULL;
    while ((e = model_list_next(l, e)))
        if (e->kind == MODEL_FILE && e->model == m) break;
    return e;
}

/* ---- changes ---- */

static bool copy_text(const char **to, const char *from) {
    *to = from ? strdup(from) : NULL;
    return *to || !from;
}

static model_entry *copy_entry(const model_entry *e) {
    model_entry *copy = calloc(1, sizeof *copy);
    if (!copy) return NULL;
    copy->kind = e->kind;
    copy->model = e->model;
    copy->changed_at = e->changed_at;
    copy->is_saved = e->is_saved;
    memcpy(copy->digest, e->digest, sizeof copy->digest);
    if (copy_text(&copy->name, e->name) && copy_text(&copy->file, e->file) &&
        copy_text(&copy->system, e->system) && copy_text(&copy->parameters, e->parameters))
        return copy;
    free_entry(copy);
    return NULL;
}

/* Returns the number of entries that are not removed. */
static size_t count_entries(const model_list *l) {
    size_t n = 0;
    for (const model_entry *e = NULL; (e = model_list_next(l, e));) n++;
    return n;
}

static bool is_same_text(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

/* Returns a removed entry that equals `e` but for digest and time; NULL if there is none. */
static model_entry *find_removed(model_list *l, const model_entry *e) {
    model_entry *at = l->first;
    while (at && !(at->is_removed && at->kind == e->kind && at->model == e->model &&
                   at->is_saved == e->is_saved && is_same_text(at->name, e->name) &&
                   is_same_text(at->file, e->file) && is_same_text(at->system, e->system) &&
                   is_same_text(at->parameters, e->parameters)))
        at = at->next;
    return at;
}

/* Adds a copy of the entry, or an equal entry that was removed. NULL: out of memory. */
static model_entry *put_entry(model_list *l, const model_entry *e) {
    model_entry *put = find_removed(l, e), *_Atomic *end = &l->first;
    if (put) {
        memcpy(put->digest, e->digest, sizeof put->digest);
        put->changed_at = e->changed_at;
        put->is_removed = false;
    } else if ((put = copy_entry(e))) {
        while (*end) end = &(*end)->next;
        *end = put;
    }
    return put;
}

bool model_list_add(model_list *l, const model_entry *e, const model_entry **out, char *reason) {
    const model_entry *added = NULL;
    pthread_mutex_lock(&l->changing);
    if (model_list_exact(l, e->name)) {
        snprintf(reason, REASON_SIZE, "%.100s: another model has this name", e->name);
    } else if (count_entries(l) == MAX_ENTRIES) {
        snprintf(reason, REASON_SIZE, "%.100s: %d models is the maximum; delete one first", e->name,
                 MAX_ENTRIES);
    } else if (!(added = put_entry(l, e))) {
        snprintf(reason, REASON_SIZE, "out of memory");
    }
    pthread_mutex_unlock(&l->changing);
    if (added && out) *out = added;
    return added != NULL;
}

void model_list_restore(model_list *l, const model_entry *e) {
    for (model_entry *at = l->first; at; at = at->next)
        if (at == e) at->is_removed = false;
}

void model_list_remove(model_list *l, const model_entry *e) {
    for (model_entry *other = l->first; other; other = other->next) {
        const bool is_alias_of =
            e->kind == MODEL_FILE && other->kind == MODEL_ALIAS && other->model == e->model;
        if (other == e || is_alias_of) other->is_removed = true;
    }
}

/* ---- digests ---- */

void model_list_digest(model_list *l, const model_entry *e, char digest[SHA256_HEX]) {
    pthread_mutex_lock(&l->changing);
    memcpy(digest, e->digest, SHA256_HEX);
    pthread_mutex_unlock(&l->changing);
}

void model_list_set_version(model_list *l, const model_entry *file, const char digest[SHA256_HEX],
                            double changed_at) {
    pthread_mutex_lock(&l->changing);
    for (model_entry *e = l->first; e; e = e->next) {
        if (e->model != file->model) continue;
        model_entry_digest(e, digest);
        if (e->kind != MODEL_DERIVED) e->changed_at = changed_at;
    }
    pthread_mutex_unlock(&l->changing);
}
