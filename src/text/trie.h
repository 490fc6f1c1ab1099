/* SPDX-License-Identifier: Apache-2.0 */
/* Trie of token spellings: finds the tokens that a text starts with. All edges are in one hash
 * table. */
#ifndef AG_TEXT_TRIE_H
#define AG_TEXT_TRIE_H

#include "text/bytes.h"

typedef struct ag_trie_edge {
    uint32_t key;   /* node << 8 | byte */
    uint32_t child; /* 0: empty slot, since the root has no parent */
} ag_trie_edge;

typedef struct ag_trie {
    ag_trie_edge *edges; /* open addressing */
    size_t n_slots;      /* power of two */
    int32_t *ids;        /* by node: token that ends there, or -1 */
    size_t n_nodes, nodes_cap;
} ag_trie;

/* Adds a spelling to a zeroed or growing trie. An empty spelling is never found. Fails with
 * AG_LIMIT above 2^24 nodes. The caller must call ag_trie_free(), also after a failure. */
ag_status ag_trie_add(ag_trie *t, const char *s, size_t n, int32_t id, ag_error *err);
void ag_trie_free(ag_trie *t);

/* Returns the child of `node` (0: root) for `byte`, 0 if there is none. */
uint32_t ag_trie_step(const ag_trie *t, uint32_t node, unsigned char byte);

#endif
