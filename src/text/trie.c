/* SPDX-License-Identifier: Apache-2.0 */
#include "text/trie.h"

#include "core/alloc.h"
#include "core/fail.h"

enum { MAX_NODES = 1 << 24 };

static ag_trie_edge *edge_of(const ag_trie *t, uint32_t key) {
    uint32_t h = key * 0x9E3779B1u;
    for (size_t i = (h ^ h >> 15) & (t->n_slots - 1);; i = (i + 1) & (t->n_slots - 1)) {
        if (!t->edges[i].child || t->edges[i].key == key) return &t->edges[i];
    }
}

uint32_t ag_trie_step(const ag_trie *t, uint32_t node, unsigned char byte) {
    return t->n_slots ? edge_of(t, node << 8 | byte)->child : 0;
}

static ag_status double_slots(ag_trie *t, ag_error *err) {
    ag_trie old = *t;
    size_t n = old.n_slots ? 2 * old.n_slots : 1024;
    ag_trie_edge *edges = ag_calloc(n, sizeof *edges);
    if (!edges) return AG_FAIL(err, NOMEM, "tree of %zu edges", n);
    t->edges = edges;
    t->n_slots = n;
    for (size_t i = 0; i < old.n_slots; i++) {
        if (old.edges[i].child) *edge_of(t, old.edges[i].key) = old.edges[i];
    }
    ag_free(old.edges);
    return AG_OK;
}

static ag_status add_node(ag_trie *t, ag_error *err) {
    if (t->n_nodes == MAX_NODES)
        return AG_FAIL(err, LIMIT, "the vocabulary is too large: its tree has more than %d nodes",
                       MAX_NODES);
    AG_TRY(AG_GROW(t->ids, &t->nodes_cap, t->n_nodes + 1, err));
    t->ids[t->n_nodes++] = -1;
    return AG_OK;
}

ag_status ag_trie_add(ag_trie *t, const char *s, size_t n, int32_t id, ag_error *err) {
    uint32_t node = 0;
    if (t->n_nodes == 0) AG_TRY(add_node(t, err));
    for (size_t i = 0; i < n; i++) {
        if (t->n_nodes * 2 > t->n_slots) AG_TRY(double_slots(t, err));
        uint32_t key = node << 8 | (unsigned char)s[i];
        ag_trie_edge *edge = edge_of(t, key);
        if (!edge->child) {
            AG_TRY(add_node(t, err));
            *edge = (ag_trie_edge){key, (uint32_t)t->n_nodes - 1};
        }
        node = edge->child;
    }
    t->ids[node] = id;
    return AG_OK;
}

void ag_trie_free(ag_trie *t) {
    ag_free(t->edges);
    ag_free(t->ids);
    *t = (ag_trie){0};
}
