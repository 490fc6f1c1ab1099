/* SPDX-License-Identifier: Apache-2.0 */
/* Hash of bytes that a client chooses. Its key is random, so that a client cannot cause collisions.
 */
#ifndef AG_CORE_KEYED_HASH_H
#define AG_CORE_KEYED_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Returns a number that cannot be predicted. */
uint64_t ag_unpredictable(void);

/* SipHash-1-3 ("SipHash: a fast short-input PRF", eprint.iacr.org/2012/351) with a key that is
 * drawn once for each process: hashes must not be stored in files. */
uint64_t ag_keyed_hash(const void *bytes, size_t n);

#endif
