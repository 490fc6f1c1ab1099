/* SPDX-License-Identifier: Apache-2.0 */
/* 64-bit checksum of a stream of bytes, against damage and mix-ups. It is not cryptographic: a file
 * can be forged. It depends neither on how the stream is split into calls nor on the machine. */
#ifndef AG_CORE_CHECKSUM_H
#define AG_CORE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

enum { AG_CHECKSUM_LANES = 4, AG_CHECKSUM_STRIPE = 8 * AG_CHECKSUM_LANES };

typedef struct ag_checksum {
    uint64_t lane[AG_CHECKSUM_LANES];
    uint8_t pending[AG_CHECKSUM_STRIPE]; /* bytes of an incomplete stripe */
    size_t n_pending;
    uint64_t n; /* bytes so far */
} ag_checksum;

void ag_checksum_begin(ag_checksum *c);
void ag_checksum_add(ag_checksum *c, const void *bytes, size_t n);
/* Returns the checksum of all bytes so far. More may follow. */
uint64_t ag_checksum_value(const ag_checksum *c);

#endif
