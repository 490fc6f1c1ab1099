/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/pda/mask_cache.h"

#include "core/alloc.h"
#include "text/bytes.h"

#include <string.h>

enum { NODES_MAX = 512, EDGES_MAX = 4096, SLOTS = 2 * NODES_MAX };

/* ---- keys ---- */

static void hash_word(ag_mask_key *key, uint32_t word) {
    key->hash[0] = (key->hash[0] ^ word) * 0x100000001B3u;
    key->hash[0] ^= key->hash[0] >> 29;
    key->hash[1] = (key->hash[1] + word) * 0xFF51AFD7ED558CCDu;
    key->hash[1] ^= key->hash[1] >> 32;
}

static ag_mask_key new_key(bool is_exact) {
    return (ag_mask_key){{0xCBF29CE484222325u, 0x9E3779B97F4A7C15u}, is_exact};
}

/* Stack nodes in the order in which the threads reach them. */
typedef struct node_order {
    uint32_t nodes[NODES_MAX];
    uint16_t slots[SLOTS]; /* 1 + index into nodes; 0: free */
    size_t n;
} node_order;

/* Returns the index of the node in the order; NODES_MAX if there are too many. */
static uint32_t index_of_node(node_order *o, uint32_t node) {
    size_t at = node * 0x9E3779B1u % SLOTS;
    while (o->slots[at] && o->nodes[o->slots[at] - 1] != node) at = (at + 1) % SLOTS;
    if (o->slots[at]) return o->slots[at] - 1u;
    if (o->n == NODES_MAX) return NODES_MAX;
    o->nodes[o->n++] = node;
    o->slots[at] = (uint16_t)o->n;
    return (uint32_t)o->n - 1;
}

/* Hashes what the threads can reach, whatever numbers the nodes have. Returns false if that is too
 * large. */
static bool hash_reachable(const ag_matcher *m, ag_mask_key *key) {
    node_order o = {.n = 0};
    size_t n_edges = 0;
    for (size_t i = 0; i < m->n_threads; i++) {
        hash_word(key, m->threads[i].state);
        hash_word(key, m->threads[i].extra);
        hash_word(key, index_of_node(&o, m->threads[i].node));
    }
    hash_word(key, UINT32_MAX);
    for (size_t i = 0; i < o.n; i++) {
        const ag_stack_node *node = &m->nodes[o.nodes[i]];
        hash_word(key, node->rule);
        for (uint32_t e = node->edge; e != UINT32_MAX; e = m->edges[e].next) {
            if (++n_edges > EDGES_MAX) return false;
            hash_word(key, m->edges[e].state);
            hash_word(key, index_of_node(&o, m->edges[e].node));
        }
        hash_word(key, UINT32_MAX);
    }
    return o.n < NODES_MAX && m->n_threads <= EDGES_MAX;
}

/* Hashes the arrays as they are. They are equal for texts that took the same path. */
static void hash_arrays(const ag_matcher *m, ag_mask_key *key) {
    for (size_t i = 0; i < m->n_threads; i++) {
        hash_word(key, m->threads[i].state);
        hash_word(key, m->threads[i].node);
        hash_word(key, m->threads[i].extra);
    }
    for (size_t i = 0; i < m->n_nodes; i++) {
        hash_word(key, m->nodes[i].rule);
        hash_word(key, m->nodes[i].edge);
    }
    for (size_t i = 0; i < m->n_edges; i++) {
        hash_word(key, m->edges[i].state);
        hash_word(key, m->edges[i].node);
        hash_word(key, m->edges[i].next);
    }
}

ag_mask_key ag_mask_key_of(const ag_matcher *m) {
    ag_mask_key key = new_key(true);
    if (hash_reachable(m, &key)) return key;
    key = new_key(false);
    hash_arrays(m, &key);
    return key;
}

static bool same_key(const ag_mask_key *a, const ag_mask_key *b) {
    return a->hash[0] == b->hash[0] && a->hash[1] == b->hash[1] && a->is_exact == b->is_exact;
}

/* ---- masks ---- */

void ag_mask_cache_clear(ag_mask_cache *c) {
    for (size_t i = 0; i < c->n; i++) ag_free(c->list[i].bits);
    c->n = c->next = 0;
}

void ag_mask_cache_free(ag_mask_cache *c) {
    ag_mask_cache_clear(c);
    ag_free(c->list);
    *c = (ag_mask_cache){.n = 0};
}

const uint32_t *ag_mask_cache_find(const ag_mask_cache *c, const ag_mask_key *key) {
    for (size_t i = 0; i < c->n; i++) {
        if (same_key(&c->list[i].key, key)) return c->list[i].bits;
    }
    return NULL;
}

size_t ag_mask_cache_add(ag_mask_cache *c, const ag_mask_key *key, const uint32_t *bits,
                         size_t n_words) {
    const bool is_full = c->n == AG_CACHED_MASKS_MAX;
    if (!is_full && AG_GROW(c->list, &c->cap, c->n + 1, NULL) != AG_OK) return 0;
    ag_cached_mask *x = &c->list[c->next];
    uint32_t *copy = is_full ? x->bits : ag_malloc(n_words * sizeof *copy);
    if (!copy) return 0;
    memcpy(copy, bits, n_words * sizeof *copy);
    *x = (ag_cached_mask){*key, copy};
    c->next = (c->next + 1) % AG_CACHED_MASKS_MAX;
    if (is_full) return 0;
    c->n++;
    return sizeof *x + n_words * sizeof *copy;
}

/* ---- failures ---- */

ag_status ag_mask_cache_failure(const ag_mask_cache *c, const ag_mask_key *key, ag_error *err) {
    for (size_t i = 0; i < c->n_failed && i < AG_FAILED_MASKS_MAX; i++) {
        const ag_failed_mask *x = &c->failed[i];
        if (!same_key(&x->key, key)) continue;
        if (err) *err = x->error;
        return x->error.status;
    }
    return AG_OK;
}

void ag_mask_cache_add_failure(ag_mask_cache *c, const ag_mask_key *key, const ag_error *error) {
    c->failed[c->n_failed++ % AG_FAILED_MASKS_MAX] = (ag_failed_mask){*key, *error};
}
