/* SPDX-License-Identifier: Apache-2.0 */
/* API keys that admit requests. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_API_KEYS_H
#define ANTIGRAVITY_SERVE_REQUEST_API_KEYS_H

#include "../../support/sha256.h"

#include <stdbool.h>
#include <stddef.h>

enum { KEY_SCOPE = 33 };

typedef struct api_key {
    char hash[SHA256_HEX]; /* SHA-256. Comparing hashes hides the keys from timing attacks */
    bool is_admin;         /* it may change the models of the server */
} api_key;

typedef struct api_keys {
    api_key *keys; /* [n] owned */
    size_t n;
} api_keys;

/* Replaces *keys by the keys of the file, one a line (NULL: no file), and of the environment
 * variable ANTIGRAVITY_API_KEY, separated by commas. In the file the word "admin" after a key marks
 * it. Fails with reason[256] and leaves *keys unchanged. */
bool api_keys_load(api_keys *keys, const char *file, char *reason);
void api_keys_free(api_keys *keys);

/* Returns whether "Authorization: Bearer KEY" or "x-api-key: KEY" has a known key; either header
 * may be NULL. scope gets 32 digits of the key's hash, or "" if there are no keys. *is_admin: the
 * key is marked. */
bool api_keys_check(const api_keys *keys, const char *authorization, const char *x_api_key,
                    char scope[KEY_SCOPE], bool *is_admin);

#endif
