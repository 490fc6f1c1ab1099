/* SPDX-License-Identifier: Apache-2.0 */
#include "response_store.h"

#include "../threads/account.h"

#include <pthread.h>
#include <string.h>

typedef struct entry {
    struct entry *older, *newer; /* neighbours in the order of their last use */
    char *id, *client;
    stored_response texts;
    size_t n_bytes;
} entry;

struct response_store {
    pthread_mutex_t lock;
    entry *oldest, *newest;
    size_t n, n_bytes, max_bytes;
};

void stored_response_free(stored_response *r) {
    account_free(r->items);
    account_free(r->response);
    *r = (stored_response){.items = NULL};
}

static void free_entry(entry *k) {
    account_free(k->id);
    account_free(k->client);
    stored_response_free(&k->texts);
    account_free(k);
}

static void unlink_entry(response_store *s, entry *k) {
    if (k->older) k->older->newer = k->newer;
    else s->oldest = k->newer;
    if (k->newer) k->newer->older = k->older;
    else s->newest = k->older;
}

static void append_newest(response_store *s, entry *k) {
    k->older = s->newest;
    k->newer = NULL;
    if (s->newest) s->newest->newer = k;
    else s->oldest = k;
    s->newest = k;
}

static void drop(response_store *s, entry *k) {
    unlink_entry(s, k);
    s->n--;
    s->n_bytes -= k->n_bytes;
    free_entry(k);
}

/* Another client's response is not found, as if it did not exist. */
static entry *find(const response_store *s, const char *id, const char *client) {
    entry *k = s->newest;
    while (k && (strcmp(k->id, id) != 0 || strcmp(k->client, client) != 0)) k = k->older;
    return k;
}

response_store *response_store_create(size_t max_bytes) {
    response_store *s = account_calloc(1, sizeof *s);
    if (!s) return NULL;
    pthread_mutex_init(&s->lock, NULL);
    s->max_bytes = max_bytes;
    return s;
}

void response_store_destroy(response_store *s) {
    if (!s) return;
    while (s->oldest) drop(s, s->oldest);
    pthread_mutex_destroy(&s->lock);
    account_free(s);
}

size_t response_store_max_bytes(const response_store *s) { return s->max_bytes / 4; }

size_t response_store_bytes(response_store *s) {
    pthread_mutex_lock(&s->lock);
    const size_t n = s->n_bytes;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static entry *make_entry(const char *id, const char *client, const stored_response *r,
                         size_t n_bytes) {
    entry *k = account_calloc(1, sizeof *k);
    if (!k) return NULL;
    k->n_bytes = n_bytes;
    k->id = account_strdup(id);
    k->client = account_strdup(client);
    k->texts.items = account_strdup(r->items);
    k->texts.response = account_strdup(r->response);
    if (k->id && k->client && k->texts.items && k->texts.response) return k;
    free_entry(k);
    return NULL;
}

bool response_store_add(response_store *s, const char *id, const char *client,
                        const stored_response *r) {
    const size_t n_bytes =
        sizeof(entry) + strlen(id) + strlen(client) + strlen(r->items) + strlen(r->response) + 4;
    if (n_bytes > response_store_max_bytes(s)) return false;
    account *previous = account_enter(NULL);
    pthread_mutex_lock(&s->lock);
    /* First makes space, so that the limit holds at every time. */
    while (s->n && (s->n == RESPONSE_STORE_MAX || s->n_bytes + n_bytes > s->max_bytes))
        drop(s, s->oldest);
    entry *k = make_entry(id, client, r, n_bytes);
    if (k) {
        append_newest(s, k);
        s->n++;
        s->n_bytes += n_bytes;
    }
    pthread_mutex_unlock(&s->lock);
    account_enter(previous);
    return k != NULL;
}

bool response_store_get(response_store *s, const char *id, const char *client,
                        stored_response *out) {
    *out = (stored_response){.items = NULL};
    pthread_mutex_lock(&s->lock);
    entry *k = find(s, id, client);
    if (k) {
        unlink_entry(s, k);
        append_newest(s, k);
        out->items = account_strdup(k->texts.items);
        out->response = account_strdup(k->texts.response);
    }
    pthread_mutex_unlock(&s->lock);
    if (k && (!out->items || !out->response)) stored_response_free(out);
    return k != NULL;
}

bool response_store_remove(response_store *s, const char *id, const char *client) {
    pthread_mutex_lock(&s->lock);
    entry *k = find(s, id, client);
    if (k) drop(s, k);
    pthread_mutex_unlock(&s->lock);
    return k != NULL;
}
