/* SPDX-License-Identifier: Apache-2.0 */
/* Who may ask. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_API_KEYS_H
#define ANTIGRAVITY_SERVE_REQUEST_API_KEYS_H

#include "sha256.h"

#include <stdbool.h>
#include <stddef.h>

enum { KEY_SCOPE = 33 };

/* Hashes alone: what a request brings is hashed, too, and the hashes are compared, so that the time
 * it takes says nothing of a key. */
typedef struct api_keys {
    char (*hashes)[SHA256_HEX];
    size_t n;
} api_keys;

/* Those of the file, one a line (NULL: none), and those of the environment's ANTIGRAVITY_API_KEY,
 * with commas between them, take the place of those in *keys. False: why[256] says what is wrong,
 * and *keys is as it was. */
bool api_keys_load(api_keys *keys, const char *file, char *reason);
void api_keys_free(api_keys *keys);

/* What "Authorization: Bearer KEY" or "x-api-key: KEY" bring; either may be NULL. False: none of
 * them is known. scope gets 32 digits that stand for the key, "" where there are no keys. */
bool api_keys_check(const api_keys *keys, const char *authorization, const char *x_api_key,
                    char scope[KEY_SCOPE]);

#endif
