/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/pda/state_masks.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

enum { TREE_FROM = 6 }; /* uncertain nodes with one state that become a tree */

typedef struct path_step {
    uint32_t state;
    uint32_t chars; /* returns to the first state so far */
} path_step;

typedef struct mask_builder {
    ag_lazy_dfa *dfa;
    const ag_token_tree *tree;
    ag_state_mask *mask;
    uint32_t first; /* state of the mask */
    unsigned flags;
    path_step *path;
    size_t ids_cap, rule_ends_cap, uncertain_cap;
    uint8_t *uncertain_chars; /* [n_uncertain] */
    size_t uncertain_chars_cap;
    ag_error *err;
} mask_builder;

void ag_state_mask_free(ag_state_mask *m) {
    ag_free(m->bits);
    ag_free(m->ids);
    ag_free(m->rule_ends);
    ag_free(m->uncertain);
    for (size_t i = 0; i < m->n_trees; i++) {
        ag_free(m->trees[i].nodes);
        ag_free(m->trees[i].entries);
    }
    ag_free(m->trees);
    ag_free(m->chars);
    *m = (ag_state_mask){0};
}

static uint8_t clamp_chars(uint32_t n) { return n < 255 ? (uint8_t)n : 255; }

static const ag_lazy_state *state_at(const mask_builder *g, uint32_t state) {
    return &g->dfa->states[state & ~AG_PDA_SHARED];
}

static ag_status add_id(mask_builder *g, int32_t id) {
    ag_state_mask *m = g->mask;
    if (m->n_ids == g->ids_cap) { AG_TRY(AG_GROW(m->ids, &g->ids_cap, m->n_ids + 1, g->err)); }
    m->ids[m->n_ids++] = id;
    return AG_OK;
}

static ag_status add_rule_end(mask_builder *g, int32_t id, uint32_t chars) {
    ag_state_mask *m = g->mask;
    AG_TRY(AG_GROW(m->rule_ends, &g->rule_ends_cap, m->n_rule_ends + 1, g->err));
    m->rule_ends[m->n_rule_ends++] = (ag_mask_entry){id, clamp_chars(chars), false};
    return AG_OK;
}

static ag_status add_uncertain(mask_builder *g, uint32_t node, path_step at) {
    ag_state_mask *m = g->mask;
    AG_TRY(AG_GROW(m->uncertain, &g->uncertain_cap, m->n_uncertain + 1, g->err));
    AG_TRY(AG_GROW(g->uncertain_chars, &g->uncertain_chars_cap, m->n_uncertain + 1, g->err));
    g->uncertain_chars[m->n_uncertain] = clamp_chars(at.chars);
    m->uncertain[m->n_uncertain++] = (ag_uncertain_tokens){node, at.state};
    return AG_OK;
}

static ag_status add_tokens(mask_builder *g, const ag_token_node *node, path_step at) {
    const bool back = at.state == g->first;
    const bool ends_rule = g->flags & AG_MASK_RULE_ENDS && !back && state_at(g, at.state)->ends;
    for (int32_t id = node->token; id >= 0; id = g->tree->same[id]) {
        if (ends_rule) AG_TRY(add_rule_end(g, id, at.chars));
        else AG_TRY(add_id(g, id));
        if (!ends_rule && g->mask->chars) g->mask->chars[id] = clamp_chars(at.chars + !back);
    }
    return AG_OK;
}

/* Collects the tokens that stay in the rule from g->first on, and the uncertain ones. */
static ag_status gather_tokens(mask_builder *g) {
    const ag_token_tree *t = g->tree;
    g->path[0] = (path_step){g->first, 0};
    AG_TRY(ag_lazy_dfa_expand(g->dfa, g->first, g->err));
    for (uint32_t i = 1; i < t->n_nodes;) {
        const ag_token_node *node = &t->nodes[i];
        const path_step from = g->path[node->depth - 1];
        AG_TRY(ag_lazy_dfa_charge(g->dfa, 1, g->err));
        const uint32_t state =
            ag_lazy_dfa_step(g->dfa, state_at(g, from.state), (uint8_t)node->byte);
        if (state == AG_NO_STATE) {
            i += node->skip;
            continue;
        }
        const path_step at = {state, from.chars + (state == g->first)};
        g->path[node->depth] = at;
        const bool rule_ends = g->flags & AG_MASK_RULE_ENDS;
        if (node->skip > 1 || rule_ends) { AG_TRY(ag_lazy_dfa_expand(g->dfa, state, g->err)); }
        if (node->token >= 0) AG_TRY(add_tokens(g, node, at));
        const ag_lazy_state *x = state_at(g, state);
        if (node->skip > 1 && (x->ends || x->n_calls)) AG_TRY(add_uncertain(g, i, at));
        i++;
    }
    return AG_OK;
}

/* ---- trees of uncertain tokens ---- */

/* Lists the rest of each uncertain token after `state`. Returns their number. list NULL: only
 * counts. */
static size_t list_suffixes(const mask_builder *g, uint32_t state, ag_token_text *list) {
    const ag_token_tree *t = g->tree;
    size_t n = 0;
    for (size_t e = 0; e < g->mask->n_uncertain; e++) {
        const ag_uncertain_tokens *x = &g->mask->uncertain[e];
        if (x->state != state) continue;
        const uint32_t depth = t->nodes[x->node].depth, end = x->node + t->nodes[x->node].skip;
        for (uint32_t i = x->node + 1; i < end; i++) {
            for (int32_t id = t->nodes[i].token; id >= 0; id = t->same[id], n++) {
                if (!list) continue;
                list[n] = (ag_token_text){t->bytes + t->start[id] + depth,
                                          t->nodes[i].depth - depth, id, 0, g->uncertain_chars[e]};
            }
        }
    }
    return n;
}

static ag_status make_tree(mask_builder *g, uint32_t state, ag_mask_tree *out) {
    const size_t n = list_suffixes(g, state, NULL);
    AG_TRY(ag_lazy_dfa_charge(g->dfa, n, g->err));
    ag_token_text *list = ag_calloc(n, sizeof *list);
    uint32_t *path = ag_calloc(g->tree->max_depth + 1, sizeof *path);
    *out = (ag_mask_tree){.state = state, .entries = ag_calloc(n, sizeof *out->entries)};
    if (list && path && out->entries) {
        list_suffixes(g, state, list);
        const size_t n_nodes = ag_token_texts_sort(list, n);
        out->nodes = ag_calloc(n_nodes, sizeof *out->nodes);
        out->n_nodes = (uint32_t)n_nodes;
        g->mask->n_bytes += n * sizeof *out->entries + n_nodes * sizeof *out->nodes;
    }
    if (out->nodes) ag_token_texts_link(list, n, out->nodes, path);
    for (size_t i = 0; out->nodes && i < n; i++) {
        ag_token_node *end = &out->nodes[list[i].node];
        if (end->token < 0) end->token = (int32_t)i;
        else out->entries[i - 1].last = false;
        out->entries[i] = (ag_mask_entry){list[i].id, list[i].chars, true};
    }
    ag_free(list);
    ag_free(path);
    return out->nodes ? AG_OK : AG_FAIL(g->err, NOMEM, "token tree of %zu tokens", n);
}

static size_t count_uncertain(const ag_state_mask *m, uint32_t state) {
    size_t n = 0;
    for (size_t e = 0; e < m->n_uncertain; e++) n += m->uncertain[e].state == state;
    return n;
}

/* Turns uncertain nodes with the same state into one tree, if there are many. With flags all become
 * trees, since entries also hold the characters before. */
static ag_status merge_uncertain(mask_builder *g) {
    ag_state_mask *m = g->mask;
    const size_t from = g->flags ? 1 : TREE_FROM;
    for (size_t e = 0; e < m->n_uncertain;) {
        const uint32_t state = m->uncertain[e].state;
        AG_TRY(ag_lazy_dfa_charge(g->dfa, m->n_uncertain, g->err));
        if (count_uncertain(m, state) < from) {
            e++;
            continue;
        }
        ag_mask_tree *trees = ag_realloc(m->trees, (m->n_trees + 1) * sizeof *trees);
        if (!trees) return AG_FAIL(g->err, NOMEM, "token trees");
        m->trees = trees;
        m->trees[m->n_trees] = (ag_mask_tree){0};
        AG_TRY(make_tree(g, state, &m->trees[m->n_trees++]));
        size_t n = 0;
        for (size_t k = 0; k < m->n_uncertain; k++) {
            if (m->uncertain[k].state == state) continue;
            g->uncertain_chars[n] = g->uncertain_chars[k];
            m->uncertain[n++] = m->uncertain[k];
        }
        m->n_uncertain = n;
        e = 0;
    }
    return AG_OK;
}

/* Turns many ids into bits. */
static ag_status pack_ids(mask_builder *g) {
    ag_state_mask *m = g->mask;
    const size_t words = (g->tree->n_vocab + 31) / 32;
    if (m->n_ids < words) {
        m->n_bytes += g->ids_cap * sizeof *m->ids;
        return AG_OK;
    }
    m->bits = ag_calloc(words, sizeof *m->bits);
    if (!m->bits) return AG_FAIL(g->err, NOMEM, "mask of %zu tokens", g->tree->n_vocab);
    for (size_t i = 0; i < m->n_ids; i++) m->bits[m->ids[i] / 32] |= 1u << (m->ids[i] % 32);
    ag_free(m->ids);
    m->ids = NULL;
    m->n_bytes += words * sizeof *m->bits;
    return AG_OK;
}

ag_status ag_state_mask_make(ag_state_mask *m, ag_lazy_dfa *dfa, const ag_token_tree *tree,
                             uint32_t state, unsigned flags, ag_error *err) {
    *m = (ag_state_mask){.n_bytes = sizeof *m};
    mask_builder g = {.dfa = dfa,
                      .tree = tree,
                      .mask = m,
                      .first = state,
                      .flags = flags,
                      .path = ag_calloc(tree->max_depth + 1, sizeof *g.path),
                      .err = err};
    ag_status st = AG_OK;
    if (flags & AG_MASK_CHARS) m->chars = ag_calloc(tree->n_vocab, 1);
    if (!g.path || (flags & AG_MASK_CHARS && !m->chars)) {
        st = AG_FAIL(err, NOMEM, "mask of %zu tokens", tree->n_vocab);
    }
    if (st == AG_OK) st = gather_tokens(&g);
    if (st == AG_OK) st = merge_uncertain(&g);
    if (st == AG_OK) st = pack_ids(&g);
    m->n_bytes += m->n_uncertain * sizeof *m->uncertain + m->n_rule_ends * sizeof *m->rule_ends;
    ag_free(g.path);
    ag_free(g.uncertain_chars);
    return st;
}
