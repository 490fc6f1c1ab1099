/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokens a text begins with: a tree of bytes whose edges are in one hash table. */
#ifndef AG_TEXT_TRIE_H
#define AG_TEXT_TRIE_H

#include "text/bytes.h"

typedef struct ag_trie_edge {
    uint32_t key;   /* node << 8 | byte */
    uint32_t child; /* 0 in an empty slot: the root is nobody's child */
} ag_trie_edge;

typedef struct ag_trie {
    ag_trie_edge *edges; /* open addressing */
    size_t n_slots;      /* a power of two */
    int32_t *ids;        /* by node: of the token that ends there, or -1 */
    size_t n_nodes, nodes_cap;
} ag_trie;

/* Adds to a zeroed or growing trie; an empty spelling is never found. AG_LIMIT beyond 2^24 nodes.
 * Whatever it returns, release with ag_trie_free. */
ag_status ag_trie_add(ag_trie *t, const char *s, size_t n, int32_t id, ag_error *err);
void ag_trie_free(ag_trie *t);

/* The child of a node, 0 being the root, along a byte; 0 if there is none. */
uint32_t ag_trie_step(const ag_trie *t, uint32_t node, unsigned char byte);

#endif
