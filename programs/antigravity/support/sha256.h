/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 (FIPS 180-4) of a stream of bytes. */
#ifndef ANTIGRAVITY_SHA256_H
#define ANTIGRAVITY_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_HEX = 65 }; /* digits and NUL */

typedef struct sha256 {
    uint32_t state[8];
    uint64_t n_bytes;
    unsigned char block[64]; /* holds the last n_bytes % 64 bytes */
} sha256;

void sha256_begin(sha256 *s);
void sha256_add(sha256 *s, const void *bytes, size_t n);
/* Writes the hash in lower case. Nothing may be added afterwards. */
void sha256_hex(sha256 *s, char hex[SHA256_HEX]);

#endif
