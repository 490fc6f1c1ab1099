/* SPDX-License-Identifier: Apache-2.0 */
#include "answer_memory.h"

#include "serve/work/account.h"
#include "user_files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_ANSWERS = 4096 };

/* Bytes that a byte of a kept answer may cost in a chat: an id of two characters takes four. */
enum { RECALLED_COST = 4 };

typedef struct kept_answer kept_answer;
struct kept_answer {
    uint64_t key;
    char *model, *scope, *text;
    size_t len;
    kept_answer *next;          /* next answer of the same bucket, or next unused one */
    kept_answer *older, *newer; /* by their last use */
};

struct answer_memory {
    pthread_mutex_t lock;
    kept_answer all[MOST_ANSWERS];
    kept_answer *buckets[MOST_ANSWERS]; /* by key */
    kept_answer *unused;
    kept_answer *oldest, *newest; /* by their last use */
    size_t n, bytes, most_bytes;
};

/* ---- what tells answers apart ---- */

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

/* A content may come as one text or in parts. */
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

/* Messages of one key are compared by ag_chat_restore_answer()'s rules later: this is where to
 * look. */
static uint64_t key_of(const json_t *message) {
    const json_t *calls = json_object_get(message, "tool_calls");
    uint64_t key = add_content(UINT64_C(0xcbf29ce484222325), json_object_get(message, "content"));
    for (size_t i = 0; i < json_array_size(calls); i++)
        key = add_string(key, json_object_get(json_array_get(calls, i), "id"));
    return key;
}

/* ---- the list ---- */

static size_t cost_of(const kept_answer *a) {
    return a->len + strlen(a->model) + strlen(a->scope) + 3;
}

static kept_answer **bucket_of(answer_memory *m, uint64_t key) {
    return &m->buckets[(key ^ key >> 32) % MOST_ANSWERS];
}

static void leave_order(answer_memory *m, kept_answer *a) {
    if (a->older) a->older->newer = a->newer;
    else m->oldest = a->newer;
    if (a->newer) a->newer->older = a->older;
    else m->newest = a->older;
}

static void become_newest(answer_memory *m, kept_answer *a) {
    a->older = m->newest;
    a->newer = NULL;
    if (m->newest) m->newest->newer = a;
    else m->oldest = a;
    m->newest = a;
}

static void free_strings(kept_answer *a) {
    account_free(a->model);
    account_free(a->scope);
    account_free(a->text);
}

static void forget(answer_memory *m, kept_answer *a) {
    kept_answer **at = bucket_of(m, a->key);
    while (*at != a) at = &(*at)->next;
    *at = a->next;
    leave_order(m, a);
    m->bytes -= cost_of(a);
    m->n--;
    free_strings(a);
    *a = (kept_answer){.next = m->unused};
    m->unused = a;
}

static bool is_of(const kept_answer *a, uint64_t key, const char *model, const char *scope) {
    return a->key == key && !strcmp(a->model, model) && !strcmp(a->scope, scope);
}

answer_memory *answer_memory_create(size_t most_bytes) {
    answer_memory *m = account_calloc(1, sizeof *m);
    if (!m) return NULL;
    pthread_mutex_init(&m->lock, NULL);
    m->most_bytes = most_bytes;
    for (size_t i = MOST_ANSWERS; i-- > 0; m->unused = &m->all[i]) m->all[i].next = m->unused;
    return m;
}

void answer_memory_destroy(answer_memory *m) {
    if (!m) return;
    while (m->n) forget(m, m->oldest);
    pthread_mutex_destroy(&m->lock);
    account_free(m);
}

size_t answer_memory_bytes(answer_memory *m) {
    pthread_mutex_lock(&m->lock);
    const size_t bytes = m->bytes;
    pthread_mutex_unlock(&m->lock);
    return bytes;
}

static kept_answer *find_kept(answer_memory *m, uint64_t key, const char *model,
                              const char *scope) {
    kept_answer *a = *bucket_of(m, key);
    while (a && !is_of(a, key, model, scope)) a = a->next;
    return a;
}

/* There is room for one more. */
static void insert(answer_memory *m, const kept_answer *a) {
    kept_answer *own = m->unused, **bucket = bucket_of(m, a->key);
    m->unused = own->next;
    *own = *a;
    own->next = *bucket;
    *bucket = own;
    become_newest(m, own);
    m->n++;
    m->bytes += cost_of(own);
}

/* The same message sampled again takes the place of the older one. */
static void add(answer_memory *m, kept_answer *a) {
    const size_t cost = cost_of(a);
    pthread_mutex_lock(&m->lock);
    kept_answer *same = find_kept(m, a->key, a->model, a->scope);
    if (same) forget(m, same);
    while (m->n && (m->n == MOST_ANSWERS || m->bytes + cost > m->most_bytes)) forget(m, m->oldest);
    const bool fits = m->bytes + cost <= m->most_bytes;
    if (fits) insert(m, a);
    pthread_mutex_unlock(&m->lock);
    if (!fits) free_strings(a);
}

static void keep(answer_memory *m, const char *model, const char *scope, const json_t *answer,
                 const char *text, size_t len) {
    kept_answer a = {.key = key_of(json_object_get(answer, "message")),
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

void answer_memory_keep(answer_memory *m, const char *model, const char *scope,
                        const ag_text *answer) {
    json_t *value = json_loadb(answer->data, answer->len, 0, NULL);
    if (value) keep(m, model, scope, value, answer->data, answer->len);
    json_decref(value);
}

/* ---- recalling ---- */

/* A copy, so that nobody waits while a chat reads it. */
static char *find(answer_memory *m, uint64_t key, const char *model, const char *scope,
                  size_t *len) {
    char *copy = NULL;
    pthread_mutex_lock(&m->lock);
    kept_answer *a = find_kept(m, key, model, scope);
    if (a) {
        leave_order(m, a);
        become_newest(m, a);
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

/* What a chat may ask for: the keys of what there is of a model and a scope, in order. */
typedef struct known_keys {
    uint64_t all[MOST_ANSWERS];
    bool recalled[MOST_ANSWERS];
    size_t n;
} known_keys;

static known_keys *keys_of(answer_memory *m, const char *model, const char *scope) {
    known_keys *k = account_calloc(1, sizeof *k);
    if (!k) return NULL;
    pthread_mutex_lock(&m->lock);
    for (const kept_answer *a = m->oldest; a; a = a->newer)
        if (is_of(a, a->key, model, scope)) k->all[k->n++] = a->key;
    pthread_mutex_unlock(&m->lock);
    qsort(k->all, k->n, sizeof *k->all, by_key);
    return k;
}

/* False for what is not there, or was asked for before: equal messages find what one of them did.
 */
static bool is_new(known_keys *k, uint64_t key) {
    const uint64_t *found = bsearch(&key, k->all, k->n, sizeof *k->all, by_key);
    if (!found || k->recalled[found - k->all]) return false;
    k->recalled[found - k->all] = true;
    return true;
}

static ag_status recall_one(answer_memory *m, uint64_t key, const char *model, const char *scope,
                            ag_chat *chat, size_t *n_bytes, ag_error *err) {
    size_t len = 0;
    char *answer = find(m, key, model, scope, &len);
    if (!answer) return AG_OK;
    const ag_status st = ag_chat_restore_answer(chat, answer, len, err);
    account_free(answer);
    if (st == AG_OK) *n_bytes += len * RECALLED_COST;
    /* One from a damaged file, or of a model that has changed under its name, is no answer. */
    return st == AG_FORMAT || st == AG_INVALID || st == AG_UNSUPPORTED ? AG_OK : st;
}

ag_status answer_memory_recall(answer_memory *m, const char *model, const char *scope,
                               const json_t *messages, ag_chat *chat, size_t *n_bytes,
                               ag_error *err) {
    known_keys *known = keys_of(m, model, scope);
    ag_status st = AG_OK;
    for (size_t i = 0; known && st == AG_OK && i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role || strcmp(role, "assistant") != 0) continue;
        const uint64_t key = key_of(message);
        if (is_new(known, key)) st = recall_one(m, key, model, scope, chat, n_bytes, err);
    }
    account_free(known); /* NULL: nothing is recalled, as without memory for an answer */
    return st;
}

/* ---- the file ---- */

static bool explain(char why[ANSWER_WHY_SIZE], const char *path) {
    snprintf(why, ANSWER_WHY_SIZE, "%.400s: %s", path, strerror(errno));
    return false;
}

/* {"model": ..., "scope": ..., "answer": {...}} and a line break. */
static bool write_answer(new_file *f, const kept_answer *a) {
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

bool answer_memory_save(answer_memory *m, const char *path, char why[ANSWER_WHY_SIZE]) {
    new_file f;
    bool ok = true;
    if (!new_file_open(&f, path)) return explain(why, path);
    pthread_mutex_lock(&m->lock);
    for (const kept_answer *a = m->oldest; ok && a; a = a->newer) ok = write_answer(&f, a);
    pthread_mutex_unlock(&m->lock);
    return new_file_close(&f, ok) || explain(why, path);
}

static void take_line(answer_memory *m, const char *text, size_t len) {
    json_t *line = json_loadb(text, len, 0, NULL);
    const char *model = json_string_value(json_object_get(line, "model"));
    const char *scope = json_string_value(json_object_get(line, "scope"));
    const json_t *answer = json_object_get(line, "answer");
    char *own = json_is_object(answer) ? json_dumps(answer, JSON_COMPACT) : NULL;
    if (model && scope && own) keep(m, model, scope, answer, own, strlen(own));
    account_free(own);
    json_decref(line);
}

/* A file of this user's, and no link. */
static FILE *open_own(const char *path) {
    struct stat st;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return NULL;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid()) {
        FILE *f = fdopen(fd, "r");
        if (f) return f;
    } else {
        errno = EPERM;
    }
    const int failed = errno;
    close(fd);
    errno = failed;
    return NULL;
}

bool answer_memory_load(answer_memory *m, const char *path, char why[ANSWER_WHY_SIZE]) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    FILE *f = open_own(path);
    if (!f) return errno == ENOENT || explain(why, path);
    while ((n = getline(&line, &cap, f)) > 0) take_line(m, line, (size_t)n);
    const bool failed = ferror(f);
    free(line);
    fclose(f);
    return !failed || explain(why, path);
}
