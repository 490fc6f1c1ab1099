/* SPDX-License-Identifier: Apache-2.0 */
#include "answer_memory.h"

#include "../../support/user_files.h"
#include "../system.h"
#include "../threads/account.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ANSWERS = 4096 };

/* Maximum memory in a chat for a byte of a stored answer: an id of two characters takes four
 * bytes. */
enum { RESTORED_COST = 4 };

typedef struct stored_answer stored_answer;
struct stored_answer {
    uint64_t key;
    char *model, *scope, *text;
    size_t len;
    stored_answer *next;          /* next in the bucket, or in the free list */
    stored_answer *older, *newer; /* neighbours in the order of their last use */
};

struct answer_memory {
    pthread_mutex_t lock;
    stored_answer all[MAX_ANSWERS];
    stored_answer *buckets[MAX_ANSWERS]; /* by key */
    stored_answer *unused;
    stored_answer *oldest, *newest; /* in the order of their last use */
    size_t n, bytes, max_bytes;
};

/* ---- keys ---- */

static uint64_t add_bytes(uint64_t key, const json_t *string) {
    const char *s = json_string_value(string);
    const size_t n = json_string_length(string);
    for (size_t i = 0; i < n; i++) key = (key ^ (unsigned char)s[i]) * UINT64_C(0x100000001b3);
    return key;
}

static uint64_t add_length(uint64_t key, size_t n) {
    return (key ^ n) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t add_string(uint64_t key, const json_t *value) {
    return add_length(add_bytes(key, value), json_string_length(value));
}

/* A content is a string or a list of parts. Both give the same key. */
static uint64_t add_content(uint64_t key, const json_t *content) {
    size_t n = 0;
    if (!json_is_array(content)) return add_string(key, content);
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        const json_t *text = json_is_string(part) ? part : json_object_get(part, "text");
        key = add_bytes(key, text);
        n += json_string_length(text);
    }
    return add_length(key, n);
}

/* Returns the hash of a message. ag_chat_restore_answer() compares the messages themselves. */
static uint64_t message_key(const json_t *message) {
    const json_t *calls = json_object_get(message, "tool_calls");
    uint64_t key = add_content(UINT64_C(0xcbf29ce484222325), json_object_get(message, "content"));
    for (size_t i = 0; i < json_array_size(calls); i++)
        key = add_string(key, json_object_get(json_array_get(calls, i), "id"));
    return key;
}

/* ---- entries ---- */

static size_t stored_bytes(const stored_answer *a) {
    return a->len + strlen(a->model) + strlen(a->scope) + 3;
}

static stored_answer **bucket_of(answer_memory *m, uint64_t key) {
    return &m->buckets[(key ^ key >> 32) % MAX_ANSWERS];
}

static void unlink_by_use(answer_memory *m, stored_answer *a) {
    if (a->older) a->older->newer = a->newer;
    else m->oldest = a->newer;
    if (a->newer) a->newer->older = a->older;
    else m->newest = a->older;
}

static void append_newest(answer_memory *m, stored_answer *a) {
    a->older = m->newest;
    a->newer = NULL;
    if (m->newest) m->newest->newer = a;
    else m->oldest = a;
    m->newest = a;
}

static void free_strings(stored_answer *a) {
    account_free(a->model);
    account_free(a->scope);
    account_free(a->text);
}

static void remove_answer(answer_memory *m, stored_answer *a) {
    stored_answer **at = bucket_of(m, a->key);
    while (*at != a) at = &(*at)->next;
    *at = a->next;
    unlink_by_use(m, a);
    m->bytes -= stored_bytes(a);
    m->n--;
    free_strings(a);
    *a = (stored_answer){.next = m->unused};
    m->unused = a;
}

static bool belongs_to(const stored_answer *a, uint64_t key, const char *model, const char *scope) {
    return a->key == key && !strcmp(a->model, model) && !strcmp(a->scope, scope);
}

answer_memory *answer_memory_create(size_t max_bytes) {
    answer_memory *m = account_calloc(1, sizeof *m);
    if (!m) return NULL;
    pthread_mutex_init(&m->lock, NULL);
    m->max_bytes = max_bytes;
    for (size_t i = MAX_ANSWERS; i-- > 0; m->unused = &m->all[i]) m->all[i].next = m->unused;
    return m;
}

void answer_memory_destroy(answer_memory *m) {
    if (!m) return;
    while (m->n) remove_answer(m, m->oldest);
    pthread_mutex_destroy(&m->lock);
    account_free(m);
}

size_t answer_memory_bytes(answer_memory *m) {
    pthread_mutex_lock(&m->lock);
    const size_t bytes = m->bytes;
    pthread_mutex_unlock(&m->lock);
    return bytes;
}

static stored_answer *find_stored(answer_memory *m, uint64_t key, const char *model,
                                  const char *scope) {
    stored_answer *a = *bucket_of(m, key);
    while (a && !belongs_to(a, key, model, scope)) a = a->next;
    return a;
}

/* There must be a free entry. */
static void insert(answer_memory *m, const stored_answer *a) {
    stored_answer *entry = m->unused, **bucket = bucket_of(m, a->key);
    m->unused = entry->next;
    *entry = *a;
    entry->next = *bucket;
    *bucket = entry;
    append_newest(m, entry);
    m->n++;
    m->bytes += stored_bytes(entry);
}

/* Replaces an answer with the same message: the newest sample counts. Takes ownership of the
 * strings. */
static void add(answer_memory *m, stored_answer *a) {
    const size_t cost = stored_bytes(a);
    pthread_mutex_lock(&m->lock);
    stored_answer *same = find_stored(m, a->key, a->model, a->scope);
    if (same) remove_answer(m, same);
    while (m->n && (m->n == MAX_ANSWERS || m->bytes + cost > m->max_bytes))
        remove_answer(m, m->oldest);
    const bool fits = m->bytes + cost <= m->max_bytes;
    if (fits) insert(m, a);
    pthread_mutex_unlock(&m->lock);
    if (!fits) free_strings(a);
}

static void store(answer_memory *m, const char *model, const char *scope, const json_t *answer,
                  const char *text, size_t len) {
    stored_answer a = {.key = message_key(json_object_get(answer, "message")),
                       .model = account_strdup(model),
                       .scope = account_strdup(scope),
                       .text = account_malloc(len + 1),
                       .len = len};
    if (!a.model || !a.scope || !a.text) {
        free_strings(&a);
        return;
    }
    memcpy(a.text, text, len);
    a.text[len] = '\0';
    add(m, &a);
}

void answer_memory_store(answer_memory *m, const char *model, const char *scope,
                         const ag_text *answer) {
    json_t *value = json_loadb(answer->data, answer->len, 0, NULL);
    if (value) store(m, model, scope, value, answer->data, answer->len);
    json_decref(value);
}

/* ---- restoring ---- */

/* Returns a copy, so that the lock is not held while a chat parses it. NULL: not found, or no
 * memory. */
static char *copy_stored(answer_memory *m, uint64_t key, const char *model, const char *scope,
                         size_t *len) {
    char *copy = NULL;
    pthread_mutex_lock(&m->lock);
    stored_answer *a = find_stored(m, key, model, scope);
    if (a) {
        unlink_by_use(m, a);
        append_newest(m, a);
        *len = a->len;
        copy = account_malloc(a->len + 1);
        if (copy) memcpy(copy, a->text, a->len + 1);
    }
    pthread_mutex_unlock(&m->lock);
    return copy;
}

static int by_key(const void *pa, const void *pb) {
    const uint64_t a = *(const uint64_t *)pa, b = *(const uint64_t *)pb;
    return a < b ? -1 : a > b;
}

/* Sorted keys of the answers of a model and a scope. */
typedef struct known_keys {
    uint64_t all[MAX_ANSWERS];
    bool is_restored[MAX_ANSWERS];
    size_t n;
} known_keys;

static known_keys *keys_of(answer_memory *m, const char *model, const char *scope) {
    known_keys *k = account_calloc(1, sizeof *k);
    if (!k) return NULL;
    pthread_mutex_lock(&m->lock);
    for (const stored_answer *a = m->oldest; a; a = a->newer)
        if (belongs_to(a, a->key, model, scope)) k->all[k->n++] = a->key;
    pthread_mutex_unlock(&m->lock);
    qsort(k->all, k->n, sizeof *k->all, by_key);
    return k;
}

/* Marks a key as restored. Returns false if it is unknown or marked already: equal messages share
 * one answer. */
static bool mark_restored(known_keys *k, uint64_t key) {
    const uint64_t *found = bsearch(&key, k->all, k->n, sizeof *k->all, by_key);
    if (!found || k->is_restored[found - k->all]) return false;
    k->is_restored[found - k->all] = true;
    return true;
}

static ag_status restore_one(answer_memory *m, uint64_t key, const char *model, const char *scope,
                             ag_chat *chat, size_t *n_bytes, ag_error *err) {
    size_t len = 0;
    char *answer = copy_stored(m, key, model, scope, &len);
    if (!answer) return AG_OK;
    const ag_status st = ag_chat_restore_answer(chat, answer, len, err);
    account_free(answer);
    if (st == AG_OK) *n_bytes += len * RESTORED_COST;
    /* An answer of a damaged file, or of another model with the same name, is ignored. */
    return st == AG_FORMAT || st == AG_INVALID || st == AG_UNSUPPORTED ? AG_OK : st;
}

ag_status answer_memory_restore(answer_memory *m, const char *model, const char *scope,
                                const json_t *messages, ag_chat *chat, size_t *n_bytes,
                                ag_error *err) {
    known_keys *known = keys_of(m, model, scope);
    ag_status st = AG_OK;
    for (size_t i = 0; known && st == AG_OK && i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role || strcmp(role, "assistant") != 0) continue;
        const uint64_t key = message_key(message);
        if (mark_restored(known, key)) st = restore_one(m, key, model, scope, chat, n_bytes, err);
    }
    account_free(known); /* NULL without memory: nothing was restored */
    return st;
}

/* ---- the file ---- */

static bool report_errno(char reason[ANSWER_REASON_SIZE], const char *path) {
    snprintf(reason, ANSWER_REASON_SIZE, "%.400s: %s", path, strerror(errno));
    return false;
}

/* Writes {"model": ..., "scope": ..., "answer": {...}} and a newline. */
static bool write_answer(new_file *f, const stored_answer *a) {
    json_t *answer = json_loadb(a->text, a->len, 0, NULL);
    json_t *line =
        json_pack("{s:s, s:s, s:o}", "model", a->model, "scope", a->scope, "answer", answer);
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    json_decref(line);
    if (!text) {
        errno = ENOMEM;
        return false;
    }
    const bool ok = new_file_write(f, text, strlen(text)) && new_file_write(f, "\n", 1);
    account_free(text);
    return ok;
}

bool answer_memory_save(answer_memory *m, const char *path, char reason[ANSWER_REASON_SIZE]) {
    new_file f;
    bool ok = true;
    if (!new_file_open(&f, path)) return report_errno(reason, path);
    pthread_mutex_lock(&m->lock);
    for (const stored_answer *a = m->oldest; ok && a; a = a->newer) ok = write_answer(&f, a);
    pthread_mutex_unlock(&m->lock);
    return new_file_close(&f, ok) || report_errno(reason, path);
}

static void load_line(answer_memory *m, const char *text, size_t len) {
    json_t *line = json_loadb(text, len, 0, NULL);
    const char *model = json_string_value(json_object_get(line, "model"));
    const char *scope = json_string_value(json_object_get(line, "scope"));
    const json_t *answer = json_object_get(line, "answer");
    char *entry = json_is_object(answer) ? json_dumps(answer, JSON_COMPACT) : NULL;
    if (model && scope && entry) store(m, model, scope, answer, entry, strlen(entry));
    account_free(entry);
    json_decref(line);
}

bool answer_memory_load(answer_memory *m, const char *path, char reason[ANSWER_REASON_SIZE]) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    FILE *f = system_open_own_file(path);
    if (!f) return errno == ENOENT || report_errno(reason, path);
    while ((n = getline(&line, &cap, f)) > 0) load_line(m, line, (size_t)n);
    const bool failed = ferror(f);
    free(line);
    fclose(f);
    return !failed || report_errno(reason, path);
}
