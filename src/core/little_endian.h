/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian numbers of n_bytes bytes, on any machine. */
#ifndef AG_CORE_LITTLE_ENDIAN_H
#define AG_CORE_LITTLE_ENDIAN_H

#include <stdint.h>

static inline void ag_put_number(unsigned char *p, uint64_t v, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) p[i] = (unsigned char)(v >> (8 * i));
}

static inline uint64_t ag_get_number(const unsigned char *p, int n_bytes) {
    uint64_t v = 0;
    for (int i = 0; i < n_bytes; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

#endif
