/* SPDX-License-Identifier: Apache-2.0 */
/* API keys that admit requests. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_API_KEYS_H
#define ANTIGRAVITY_SERVE_REQUEST_API_KEYS_H

#include "../../support/sha256.h"

#include <stdbool.h>
#include <stddef.h>

enum { KEY_SCOPE = 33 };

/* SHA-256 hashes of the keys. Comparing hashes hides the keys from timing attacks. */
typedef struct api_keys {
    char (*hashes)[SHA256_HEX];
    size_t n;
} api_keys;

/* Replaces *keys by the keys of the file, one a line (NULL: no file), and of the environment
 * variable ANTIGRAVITY_API_KEY, separated by commas. Fails with reason[256] and leaves *keys
 * unchanged. */
bool api_keys_load(api_keys *keys, const char *file, char *reason);
void api_keys_free(api_keys *keys);

/* Returns whether "Authorization: Bearer KEY" or "x-api-key: KEY" has a known key; either header
 * may be NULL. scope gets 32 digits of the key's hash, or "" if there are no keys. */
bool api_keys_check(const api_keys *keys, const char *authorization, const char *x_api_key,
                    char scope[KEY_SCOPE]);

#endif
