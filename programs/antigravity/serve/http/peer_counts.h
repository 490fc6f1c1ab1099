/* SPDX-License-Identifier: Apache-2.0 */
/* Hash table of the addresses that have open connections, with the number of each. */
#ifndef ANTIGRAVITY_SERVE_HTTP_PEER_COUNTS_H
#define ANTIGRAVITY_SERVE_HTTP_PEER_COUNTS_H

#include "peer_address.h"

typedef struct peer_count {
    struct peer_count *next; /* in the bucket */
    peer_address address;
    uint32_t n; /* connections, at least 1 */
} peer_count;

typedef struct peer_counts {
    peer_count **buckets; /* [n_buckets] */
    size_t n_buckets;     /* a power of two */
    uint64_t seed;        /* random: a client must not be able to choose its bucket */
} peer_counts;

/* Fails without memory. */
bool peer_counts_init(peer_counts *t, size_t max_connections);
/* Frees the table and all entries in it. */
void peer_counts_free(peer_counts *t);

/* Counts one more connection of the address. Returns its entry, for peer_counts_remove(). NULL: the
 * address has `max` connections, or no memory. */
peer_count *peer_counts_add(peer_counts *t, const peer_address *a, uint32_t max);
/* Counts one connection less. Frees the entry with the last one. */
void peer_counts_remove(peer_counts *t, peer_count *entry);

#endif
