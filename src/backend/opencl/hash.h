/* SPDX-License-Identifier: Apache-2.0 */
#ifndef AG_OPENCL_HASH_H
#define AG_OPENCL_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define AG_CL_HASH_START 0xcbf29ce484222325u

/* FNV-1a, 64 bits: distinguishes programs; not cryptographic. */
static inline uint64_t ag_cl_hash(uint64_t h, const void *data, size_t n) {
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

/* Hashes the text with its terminator, so that "ab" "c" differs from "a" "bc". */
static inline uint64_t ag_cl_hash_text(uint64_t h, const char *s) {
    return ag_cl_hash(h, s, strlen(s) + 1);
}

#endif
