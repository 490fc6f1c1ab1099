/* SPDX-License-Identifier: Apache-2.0 */
#include "api_keys.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_KEYS = 1024, WHY = 256 };

static void hash_key(const char *key, size_t n, char hex[SHA256_HEX]) {
    sha256 s;
    sha256_begin(&s);
    sha256_add(&s, key, n);
    sha256_hex(&s, hex);
}

static bool add_key(api_keys *keys, const char *key, size_t n, char *why) {
    if (keys->n == MAX_KEYS) {
        snprintf(why, WHY, "more than %d keys", MAX_KEYS);
        return false;
    }
    void *grown = realloc(keys->hashes, (keys->n + 1) * sizeof keys->hashes[0]);
    if (!grown) {
        snprintf(why, WHY, "out of memory");
        return false;
    }
    keys->hashes = grown;
    hash_key(key, n, keys->hashes[keys->n++]);
    return true;
}

/* Words of `text`, which `ends` end. */
static bool add_keys(api_keys *keys, const char *text, const char *ends, char *why) {
    while (*text) {
        text += strspn(text, ends);
        const size_t n = strcspn(text, ends);
        if (n && !add_key(keys, text, n, why)) return false;
        text += n;
    }
    return true;
}

static bool read_file(api_keys *keys, const char *path, char *why) {
    char line[1024];
    FILE *f = fopen(path, "re");
    if (!f) {
        snprintf(why, WHY, "%.150s: %s", path, strerror(errno));
        return false;
    }
    bool ok = true;
    while (ok && fgets(line, sizeof line, f)) {
        const size_t n = strlen(line);
        if (n + 1 == sizeof line && line[n - 1] != '\n') {
            snprintf(why, WHY, "%.150s: a key of more than %zu letters", path, sizeof line - 2);
            ok = false;
        } else if (line[strspn(line, " \t")] != '#') {
            ok = add_keys(keys, line, " \t\r\n", why);
        }
    }
    if (ok && ferror(f)) {
        snprintf(why, WHY, "%.150s: %s", path, strerror(errno));
        ok = false;
    }
    fclose(f);
    if (ok && !keys->n) snprintf(why, WHY, "%.150s: holds no key", path);
    return ok && keys->n;
}

bool api_keys_load(api_keys *keys, const char *file, char *why) {
    api_keys fresh = {.n = 0};
    const char *named = getenv("ANTIGRAVITY_API_KEY");
    bool ok = !file || read_file(&fresh, file, why);
    if (ok && named) ok = add_keys(&fresh, named, ", \t\r\n", why);
    if (ok && named && !fresh.n) {
        snprintf(why, WHY, "ANTIGRAVITY_API_KEY is set, but holds no key");
        ok = false;
    }
    if (!ok) {
        api_keys_free(&fresh);
        return false;
    }
    api_keys_free(keys);
    *keys = fresh;
    return true;
}

void api_keys_free(api_keys *keys) {
    free(keys->hashes);
    *keys = (api_keys){.n = 0};
}

/* Looks at every key and every digit, whatever it has found. */
static bool is_known(const api_keys *keys, const char *key, char scope[KEY_SCOPE]) {
    char hex[SHA256_HEX];
    hash_key(key, strlen(key), hex);
    unsigned found = 0;
    for (size_t i = 0; i < keys->n; i++) {
        unsigned differs = 0;
        for (size_t d = 0; d < SHA256_HEX; d++)
            differs |= (unsigned char)(keys->hashes[i][d] ^ hex[d]);
        found |= differs == 0;
    }
    if (!found) return false;
    memcpy(scope, hex, KEY_SCOPE - 1);
    scope[KEY_SCOPE - 1] = '\0';
    return true;
}

bool api_keys_check(const api_keys *keys, const char *authorization, const char *x_api_key,
                    char scope[KEY_SCOPE]) {
    scope[0] = '\0';
    if (!keys->n) return true;
    if (authorization && !strncmp(authorization, "Bearer ", 7)) {
        const char *key = authorization + 7 + strspn(authorization + 7, " ");
        if (is_known(keys, key, scope)) return true;
    }
    return x_api_key && is_known(keys, x_api_key, scope);
}
