/* SPDX-License-Identifier: Apache-2.0 */
/* A 64-bit checksum of a stream of bytes, against damage and mix-ups; no defence against somebody
 * who wants a file to pass. It does not depend on how the stream is cut into calls, nor on the
 * machine. */
#ifndef AG_CORE_CHECKSUM_H
#define AG_CORE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

enum { AG_CHECKSUM_LANES = 4, AG_CHECKSUM_STRIPE = 8 * AG_CHECKSUM_LANES };

typedef struct ag_checksum {
    uint64_t lane[AG_CHECKSUM_LANES];
    uint8_t pending[AG_CHECKSUM_STRIPE]; /* bytes that do not fill a stripe yet */
    size_t n_pending;
    uint64_t n; /* bytes so far */
} ag_checksum;

void ag_checksum_begin(ag_checksum *c);
void ag_checksum_add(ag_checksum *c, const void *bytes, size_t n);
/* Of all bytes so far; more may follow. */
uint64_t ag_checksum_value(const ag_checksum *c);

#endif
