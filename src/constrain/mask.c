/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the mask of a text from the matcher's threads. */
#include "constrain/constraint.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

enum {
    EXCLUDED_MAX = 64,
    BITS_IN_STEP = 256 /* words or ids that a simple loop handles in the time of one step */
};

/* Ranges [first, second) of the token tree whose tokens complete an excluded name. */
typedef struct excluded_names {
    uint32_t ranges[EXCLUDED_MAX][2];
    size_t n;
    bool is_full; /* there are more ranges: each token is checked by its bytes */
} excluded_names;

typedef struct fill {
    ag_constraint *c;
    ag_matcher *m;
    const ag_token_tree *tree;
    uint32_t *bits;
    /* The rule and the extra state of the current thread, for tokens that may end the rule. */
    const ag_pda_rule *rule;
    uint32_t extra;
    excluded_names excluded;
} fill;

static void set_bit(fill *f, int32_t id) { f->bits[id / 32] |= 1u << (id % 32); }

static void set_same(fill *f, int32_t id) {
    for (; id >= 0; id = f->tree->same[id]) set_bit(f, id);
}

/* ---- tokens that may end a LENGTH or NAME rule ---- */

/* Finds the ranges below `node` whose tokens complete an excluded name. Walks the tree of names and
 * the token tree together. */
static void find_excluded(fill *f, uint32_t name, uint32_t node) {
    f->m->dfa->work++;
    const ag_name_node *names = f->m->dfa->pda->names;
    const ag_token_node *nodes = f->tree->nodes;
    const uint32_t end = node + nodes[node].skip;
    for (uint32_t child = node + 1; child < end; child += nodes[child].skip) {
        if (names[name].ends && nodes[child].byte == '"') {
            if (f->excluded.n == EXCLUDED_MAX) {
                f->excluded.is_full = true;
                return;
            }
            f->excluded.ranges[f->excluded.n][0] = child;
            f->excluded.ranges[f->excluded.n++][1] = child + nodes[child].skip;
            continue;
        }
        const uint32_t next = ag_name_child(names, name, (uint8_t)nodes[child].byte);
        if (next) find_excluded(f, next, child);
    }
}

/* Returns whether a token completes an excluded name, by its bytes. */
static bool spells_name(const fill *f, int32_t id) {
    const ag_name_node *names = f->m->dfa->pda->names;
    uint32_t at = f->extra - 1;
    for (uint32_t i = f->tree->start[id]; i < f->tree->start[id + 1]; i++) {
        const uint8_t byte = f->tree->bytes[i];
        if (byte == '"' && names[at].ends) return true;
        at = ag_name_child(names, at, byte);
        if (!at) return false;
    }
    return false;
}

static bool allows_rule_end(const fill *f, const ag_mask_entry *e) {
    switch (f->rule->kind) {
    case AG_RULE_LENGTH: {
        const uint32_t left = f->rule->max - f->extra;
        const bool fits = e->chars < 255 ? e->chars <= left : left >= f->tree->max_depth;
        return fits && (f->extra >= f->rule->min || e->chars >= f->rule->min - f->extra);
    }
    case AG_RULE_NAME: {
        if (!f->extra) return true;
        if (f->excluded.is_full) return !spells_name(f, e->token);
        const uint32_t node = f->tree->node_of[e->token];
        for (size_t i = 0; i < f->excluded.n; i++) {
            if (node >= f->excluded.ranges[i][0] && node < f->excluded.ranges[i][1]) return false;
        }
        return true;
    }
    case AG_RULE_PLAIN:
        break;
    }
    return true;
}

static void set_entries(fill *f, const ag_mask_entry *e) {
    for (;; e++) {
        f->m->dfa->work++;
        if (allows_rule_end(f, e)) set_bit(f, e->token);
        if (e->last) return;
    }
}

/* ---- walking ---- */

/* Sets the tokens of nodes[begin, end) that can follow the newest position. depth: of their parent.
 * entries: of a mask tree; NULL: nodes are the vocabulary's. */
static ag_status walk_tokens(fill *f, const ag_token_node *nodes, uint32_t begin, uint32_t end,
                             uint32_t depth, const ag_mask_entry *entries) {
    ag_matcher *m = f->m;
    const size_t n_positions = m->n_positions;
    for (uint32_t i = begin; i < end;) {
        size_t n;
        ag_matcher_rewind(m, n_positions + nodes[i].depth - depth - 1);
        AG_TRY(ag_matcher_step(m, (uint8_t)nodes[i].byte));
        ag_matcher_threads(m, &n);
        if (!n) {
            i += nodes[i].skip;
            continue;
        }
        const int32_t token = nodes[i].token;
        if (token >= 0 && !entries) set_same(f, token);
        if (token >= 0 && entries) set_entries(f, entries + token);
        i++;
    }
    ag_matcher_rewind(m, n_positions);
    return AG_OK;
}

/* Sets the uncertain tokens that can follow for this caller. */
static ag_status walk_uncertain(fill *f, const ag_uncertain_tokens *x, uint32_t caller) {
    const size_t n_positions = f->m->n_positions;
    AG_TRY(ag_matcher_follow(f->m, x->state, caller));
    const ag_token_node *node = &f->tree->nodes[x->node];
    AG_TRY(walk_tokens(f, f->tree->nodes, x->node + 1, x->node + node->skip, node->depth, NULL));
    ag_matcher_rewind(f->m, n_positions);
    return AG_OK;
}

static ag_status walk_tree(fill *f, const ag_mask_tree *t, uint32_t caller) {
    const size_t n_positions = f->m->n_positions;
    AG_TRY(ag_matcher_follow(f->m, t->state, caller));
    AG_TRY(walk_tokens(f, t->nodes, 1, t->n_nodes, 0, t->entries));
    ag_matcher_rewind(f->m, n_positions);
    return AG_OK;
}

/* ---- threads ---- */

static void add_bits(fill *f, const uint32_t *bits) {
    const size_t n = f->c->program->vocab->n_words;
    f->m->dfa->work += n / BITS_IN_STEP;
    for (size_t i = 0; i < n; i++) f->bits[i] |= bits[i];
}

/* Sets the tokens that stay inside a string with a length limit. */
static void add_lengths(fill *f, const ag_state_mask *mask) {
    const ag_json_masks *json = f->c->program->json;
    const uint32_t left = f->rule->max - f->extra;
    if (!left) return;
    add_bits(f, json->lengths[left < AG_LENGTH_STEPS ? left : AG_LENGTH_STEPS]);
    if (left <= AG_LENGTH_STEPS) return;
    f->m->dfa->work += f->tree->n_vocab / BITS_IN_STEP;
    for (size_t id = 0; id < f->tree->n_vocab; id++) {
        const uint8_t chars = mask->chars[id];
        if (chars <= AG_LENGTH_STEPS) continue;
        if (chars < 255 ? chars <= left : left >= f->tree->max_depth) set_bit(f, (int32_t)id);
    }
}

static ag_status add_mask(fill *f, const ag_thread *t, const ag_state_mask *mask) {
    if (f->rule->kind == AG_RULE_LENGTH) add_lengths(f, mask);
    else if (mask->bits) add_bits(f, mask->bits);
    for (size_t i = 0; i < mask->n_ids && mask->ids; i++) set_bit(f, mask->ids[i]);
    for (size_t i = 0; i < mask->n_rule_ends; i++) {
        if (allows_rule_end(f, &mask->rule_ends[i])) set_bit(f, mask->rule_ends[i].token);
    }
    for (size_t i = 0; i < mask->n_uncertain; i++)
        AG_TRY(walk_uncertain(f, &mask->uncertain[i], t->node));
    for (size_t i = 0; i < mask->n_trees; i++) AG_TRY(walk_tree(f, &mask->trees[i], t->node));
    return AG_OK;
}

/* Sets the tokens of a thread whose state has no mask. */
static ag_status add_by_walking(fill *f, const ag_thread *t) {
    const size_t n_positions = f->m->n_positions;
    AG_TRY(ag_matcher_open_thread(f->m, t));
    AG_TRY(walk_tokens(f, f->tree->nodes, 1, f->tree->n_nodes, 0, NULL));
    ag_matcher_rewind(f->m, n_positions);
    return AG_OK;
}

static ag_status add_thread(fill *f, const ag_thread *t, ag_error *err) {
    ag_constraint_program *p = f->c->program;
    const ag_json_rules *rules = &p->json->rules;
    const ag_state_mask *mask;
    f->rule = ag_matcher_rule(f->m, f->m->nodes[t->node].rule);
    f->extra = t->extra;
    f->excluded.n = 0;
    f->excluded.is_full = false;
    if (f->rule->kind == AG_RULE_LENGTH && t->state != rules->string_inside) {
        return add_by_walking(f, t);
    }
    if (f->rule->kind == AG_RULE_NAME) {
        if (t->state != rules->name_inside) return add_by_walking(f, t);
        if (t->extra) find_excluded(f, t->extra - 1, 0);
    }
    if (t->state & AG_PDA_SHARED) mask = &p->json->masks[t->state & ~AG_PDA_SHARED];
    else AG_TRY(ag_constraint_state_mask(p, t->state, &mask, err));
    return add_mask(f, t, mask);
}

static ag_status fill_mask(ag_constraint *c, ag_error *err) {
    fill f = {.c = c, .m = &c->matcher, .tree = &c->program->vocab->tree, .bits = c->mask};
    c->matcher.err = err;
    ag_lazy_dfa_begin_count(c->matcher.dfa, c->steps);
    memset(c->mask, 0, c->program->vocab->n_words * sizeof *c->mask);
    size_t n;
    ag_matcher_threads(f.m, &n);
    ag_status st = AG_OK;
    for (size_t i = 0; i < n && st == AG_OK; i++) {
        const ag_thread t = f.m->threads[i];
        const ag_lazy_state *x;
        st = ag_matcher_state(f.m, t.state, &x);
        if (st == AG_OK && x->n_edges) st = add_thread(&f, &t, err);
    }
    ag_matcher_rewind(f.m, 1);
    return st;
}

/* Cheap masks cost less than a lookup in the cache. */
ag_status ag_constraint_fill_mask(ag_constraint *c, ag_error *err) {
    ag_constraint_program *p = c->program;
    const size_t n_words = p->vocab->n_words;
    ag_constraint_trim_masks(p);
    const bool any = p->cache.n || p->cache.n_failed;
    ag_mask_key key;
    ag_error e = {0};
    if (any) {
        key = ag_mask_key_of(&c->matcher);
        const uint32_t *bits = ag_mask_cache_find(&p->cache, &key);
        if (bits) {
            memcpy(c->mask, bits, n_words * sizeof *bits);
            return AG_OK;
        }
        AG_TRY(ag_mask_cache_failure(&p->cache, &key, err));
    }
    ag_status st = fill_mask(c, &e);
    const bool is_expensive = st == AG_OK && p->dfa.work - c->steps >= AG_MASK_CACHE_FROM;
    if (!any && (is_expensive || st == AG_LIMIT)) key = ag_mask_key_of(&c->matcher);
    if (is_expensive) p->mask_bytes += ag_mask_cache_add(&p->cache, &key, c->mask, n_words);
    if (st == AG_LIMIT) ag_mask_cache_add_failure(&p->cache, &key, &e);
    if (st != AG_OK && err) *err = e;
    return st;
}
