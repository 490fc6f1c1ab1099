/* SPDX-License-Identifier: Apache-2.0 */
#include "api_keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEYS = 1024, REASON_SIZE = 256 };

static void hash_key(const char *key, size_t n, char hex[SHA256_HEX]) {
    sha256 s;
    sha256_begin(&s);
    sha256_add(&s, key, n);
    sha256_hex(&s, hex);
}

static bool add_key(api_keys *keys, const char *key, size_t n, char *reason) {
    if (keys->n == MAX_KEYS) {
        snprintf(reason, REASON_SIZE, "too many API keys: at most %d", MAX_KEYS);
        return false;
    }
    void *grown = realloc(keys->keys, (keys->n + 1) * sizeof keys->keys[0]);
    if (!grown) {
        snprintf(reason, REASON_SIZE, "out of memory");
        return false;
    }
    keys->keys = grown;
    api_key *added = &keys->keys[keys->n++];
    added->is_admin = false;
    hash_key(key, n, added->hash);
    return true;
}

/* Adds the key of a line: "KEY" or "KEY admin". */
static bool add_line(api_keys *keys, const char *line, const char *path, char *reason) {
    static const char blanks[] = " \t\r\n", mark[] = "admin";
    const char *key = line + strspn(line, blanks);
    const size_t n = strcspn(key, blanks);
    const char *word = key + n + strspn(key + n, blanks);
    const size_t n_word = strcspn(word, blanks);
    const bool is_admin = n_word == sizeof mark - 1 && !strncmp(word, mark, n_word);
    if (!n) return true;
    if (n_word && (!is_admin || word[n_word + strspn(word + n_word, blanks)])) {
        snprintf(reason, REASON_SIZE,
                 "%.150s: a line has more than a key; only the word admin may follow it", path);
        return false;
    }
    if (!add_key(keys, key, n, reason)) return false;
    keys->keys[keys->n - 1].is_admin = is_admin;
    return true;
}

/* Adds the words of `text` between separators. */
static bool add_keys(api_keys *keys, const char *text, const char *separators, char *reason) {
    while (*text) {
        text += strspn(text, separators);
        const size_t n = strcspn(text, separators);
        if (n && !add_key(keys, text, n, reason)) return false;
        text += n;
    }
    return true;
}

static bool read_file(api_keys *keys, const char *path, char *reason) {
    char line[1024];
    FILE *f = fopen(path, "re");
    if (!f) {
        snprintf(reason, REASON_SIZE, "%.150s: %s", path, strerror(errno));
        return false;
    }
    bool ok = true;
    while (ok && fgets(line, sizeof line, f)) {
        const size_t n = strlen(line);
        if (n + 1 == sizeof line && line[n - 1] != '\n') {
            snprintf(reason, REASON_SIZE, "%.150s: a line is too long: at most %zu bytes", path,
                     sizeof line - 2);
            ok = false;
        } else if (line[strspn(line, " \t")] != '#') {
            ok = add_line(keys, line, path, reason);
        }
    }
    if (ok && ferror(f)) {
        snprintf(reason, REASON_SIZE, "%.150s: %s", path, strerror(errno));
        ok = false;
    }
    fclose(f);
    if (ok && !keys->n) snprintf(reason, REASON_SIZE, "%.150s: the file has no key", path);
    return ok && keys->n;
}

bool api_keys_load(api_keys *keys, const char *file, char *reason) {
    api_keys loaded = {.n = 0};
    const char *from_environment = getenv("ANTIGRAVITY_API_KEY");
    bool ok = !file || read_file(&loaded, file, reason);
    if (ok && from_environment) ok = add_keys(&loaded, from_environment, ", \t\r\n", reason);
    if (ok && from_environment && !loaded.n) {
        snprintf(reason, REASON_SIZE, "ANTIGRAVITY_API_KEY is set but has no key");
        ok = false;
    }
    if (!ok) {
        api_keys_free(&loaded);
        return false;
    }
    api_keys_free(keys);
    *keys = loaded;
    return true;
}

void api_keys_free(api_keys *keys) {
    free(keys->keys);
    *keys = (api_keys){.n = 0};
}

/* Takes the same time for all keys: compares every digit of every key. */
static bool find_key(const api_keys *keys, const char *key, char scope[KEY_SCOPE], bool *is_admin) {
    char hex[SHA256_HEX];
    hash_key(key, strlen(key), hex);
    unsigned found = 0, admin = 0;
    for (size_t i = 0; i < keys->n; i++) {
        unsigned differs = 0;
        for (size_t d = 0; d < SHA256_HEX; d++)
            differs |= (unsigned char)(keys->keys[i].hash[d] ^ hex[d]);
        found |= differs == 0;
        admin |= (differs == 0) & keys->keys[i].is_admin;
    }
    *is_admin = admin != 0;
    if (!found) return false;
    memcpy(scope, hex, KEY_SCOPE - 1);
    scope[KEY_SCOPE - 1] = '\0';
    return true;
}

bool api_keys_check(const api_keys *keys, const char *authorization, const char *x_api_key,
                    char scope[KEY_SCOPE], bool *is_admin) {
    scope[0] = '\0';
    *is_admin = false;
    if (!keys->n) return true;
    if (authorization && !strncmp(authorization, "Bearer ", 7)) {
        const char *key = authorization + 7 + strspn(authorization + 7, " ");
        if (find_key(keys, key, scope, is_admin)) return true;
    }
    return x_api_key && find_key(keys, x_api_key, scope, is_admin);
}
