/* SPDX-License-Identifier: Apache-2.0 */
#include "peer_counts.h"

#include "../system.h"

#include <stdlib.h>
#include <string.h>

enum { MIN_BUCKETS = 16, MAX_BUCKETS = 65536 };

bool peer_counts_init(peer_counts *t, size_t max_connections) {
    *t = (peer_counts){.n_buckets = MIN_BUCKETS};
    while (t->n_buckets < max_connections && t->n_buckets < MAX_BUCKETS) t->n_buckets *= 2;
    if (!system_random(&t->seed, sizeof t->seed)) t->seed = (uintptr_t)t;
    t->buckets = calloc(t->n_buckets, sizeof *t->buckets);
    return t->buckets != NULL;
}

void peer_counts_free(peer_counts *t) {
    for (size_t i = 0; t->buckets && i < t->n_buckets; i++) {
        for (peer_count *e = t->buckets[i], *next; e; e = next) {
            next = e->next;
            free(e);
        }
    }
    free(t->buckets);
    t->buckets = NULL;
}

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static peer_count **bucket_of(peer_counts *t, const peer_address *a) {
    uint64_t high, low;
    memcpy(&high, a->bytes, sizeof high);
    memcpy(&low, a->bytes + sizeof high, sizeof low);
    const uint64_t hash = mix(mix(high ^ t->seed) + mix(low + t->seed));
    return &t->buckets[hash & (t->n_buckets - 1)];
}

peer_count *peer_counts_add(peer_counts *t, const peer_address *a, uint32_t max) {
    peer_count **bucket = bucket_of(t, a), *e = *bucket;
    while (e && memcmp(&e->address, a, sizeof *a) != 0) e = e->next;
    if (e) {
        if (e->n >= max) return NULL;
        e->n++;
        return e;
    }
    e = max ? malloc(sizeof *e) : NULL;
    if (!e) return NULL;
    *e = (peer_count){.next = *bucket, .address = *a, .n = 1};
    return *bucket = e;
}

void peer_counts_remove(peer_counts *t, peer_count *entry) {
    if (--entry->n) return;
    peer_count **at = bucket_of(t, &entry->address);
    while (*at != entry) at = &(*at)->next;
    *at = entry->next;
    free(entry);
}
