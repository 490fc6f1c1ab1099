/* SPDX-License-Identifier: Apache-2.0 */
#include "model_list.h"

#include "../../model/store.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ENTRIES = 1024, REASON_SIZE = 256 };

/* Entries are only added, so readers need no lock: they see the first n. */
struct model_list {
    pthread_mutex_t adding;
    atomic_size_t n;
    model_entry *at[MAX_ENTRIES];
};

void model_entry_digest(model_entry *e, const model_entry *base) {
    const char *const texts[] = {base->digest, e->name, e->system, e->parameters};
    sha256 sum;
    if (e->kind == MODEL_ALIAS) return; /* the same model */
    sha256_begin(&sum);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i]) sha256_add(&sum, texts[i], strlen(texts[i]) + 1);
    sha256_hex(&sum, e->digest);
}

model_list *model_list_create(void) {
    model_list *l = calloc(1, sizeof *l);
    if (l) pthread_mutex_init(&l->adding, NULL);
    return l;
}

static void free_entry(model_entry *e) {
    if (!e) return;
    free((void *)(uintptr_t)e->name);
    free((void *)(uintptr_t)e->file);
    free((void *)(uintptr_t)e->system);
    free((void *)(uintptr_t)e->parameters);
    free(e);
}

void model_list_destroy(model_list *l) {
    if (!l) return;
    for (size_t i = 0; i < l->n; i++) free_entry(l->at[i]);
    pthread_mutex_destroy(&l->adding);
    free(l);
}

/* ---- search ---- */

const model_entry *model_list_next(const model_list *l, const model_entry *e) {
    bool is_after = !e;
    const size_t n = atomic_load(&l->n);
    for (size_t i = 0; i < n; i++) {
        if (is_after && !atomic_load(&l->at[i]->is_removed)) return l->at[i];
        is_after = is_after || l->at[i] == e;
    }
    return NULL;
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

bool model_list_add(model_list *l, const model_entry *e, const model_entry **out, char *reason) {
    bool ok = false;
    model_entry *copy = copy_entry(e);
    pthread_mutex_lock(&l->adding);
    const size_t n = atomic_load(&l->n);
    if (!copy) {
        snprintf(reason, REASON_SIZE, "out of memory");
    } else if (model_list_exact(l, e->name)) {
        snprintf(reason, REASON_SIZE, "%.100s: another model has this name", e->name);
    } else if (n == MAX_ENTRIES) {
        snprintf(reason, REASON_SIZE, "%.100s: too many models were added; restart the server",
                 e->name);
    } else {
        l->at[n] = copy;
        atomic_store(&l->n, n + 1);
        ok = true;
    }
    pthread_mutex_unlock(&l->adding);
    if (!ok) free_entry(copy);
    else if (out) *out = copy;
    return ok;
}

void model_list_restore(model_list *l, const model_entry *e) {
    for (size_t i = 0; i < atomic_load(&l->n); i++)
        if (l->at[i] == e) atomic_store(&l->at[i]->is_removed, false);
}

void model_list_remove(model_list *l, const model_entry *e) {
    const size_t n = atomic_load(&l->n);
    for (size_t i = 0; i < n; i++) {
        model_entry *other = l->at[i];
        const bool is_alias_of =
            e->kind == MODEL_FILE && other->kind == MODEL_ALIAS && other->model == e->model;
        if (other == e || is_alias_of) atomic_store(&other->is_removed, true);
    }
}
