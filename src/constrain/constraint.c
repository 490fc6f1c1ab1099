/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/constraint.h"

#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <antigravity/sampler.h>

#include <string.h>

ag_constraint_params ag_constraint_defaults(ag_constraint_kind kind) {
    return (ag_constraint_params){
        .kind = kind,
        .spacing = AG_JSON_NEAT,
        .max_instructions = 1 << 20,
        .max_states = 1 << 16,
        .max_work = 1 << 24,
        .max_readings = 1024,
        .max_mask_bytes = (size_t)64 << 20,
        .max_state_bytes = (size_t)128 << 20,
    };
}

/* ---- compiled program ---- */

static void drop_masks(ag_constraint_program *p) {
    for (size_t i = 0; i < p->n_masks; i++) ag_state_mask_free(&p->masks[i]);
    for (size_t i = 0; i < p->dfa.n_states; i++) {
        ag_lazy_state *x = &p->dfa.states[i];
        if (x->mask != AG_MASK_FAILED) x->mask = 0;
    }
    ag_mask_cache_clear(&p->cache);
    p->n_masks = 0;
    p->mask_bytes = 0;
}

static void release_program(ag_constraint_program *p) {
    if (!p || --p->users) return;
    drop_masks(p);
    ag_mask_cache_free(&p->cache);
    release_program(p->next);
    ag_trigger_release(p->trigger);
    ag_free(p->masks);
    ag_lazy_dfa_free(&p->dfa);
    ag_pda_free(&p->pda);
    ag_free(p);
}

void ag_constraint_trim_masks(ag_constraint_program *p) {
    if (p->mask_bytes > p->max_mask_bytes) drop_masks(p);
}

ag_status ag_constraint_state_mask(ag_constraint_program *p, uint32_t state,
                                   const ag_state_mask **out, ag_error *err) {
    const uint32_t known = p->dfa.states[state].mask;
    if (known == AG_MASK_FAILED) return ag_lazy_dfa_fail_limit(&p->dfa, err);
    if (known) {
        *out = &p->masks[known - 1];
        return AG_OK;
    }
    ag_constraint_trim_masks(p);
    AG_TRY(AG_GROW(p->masks, &p->masks_cap, p->n_masks + 1, err));
    ag_state_mask *m = &p->masks[p->n_masks];
    const size_t before = p->dfa.work;
    const ag_status st = ag_state_mask_make(m, &p->dfa, &p->vocab->tree, state, 0, err);
    if (st != AG_OK) {
        /* More than half of a token's steps went into this mask, so later tokens do not try it
         * again. */
        if (st == AG_LIMIT && p->dfa.work - before > p->dfa.limits.work / 2)
            p->dfa.states[state].mask = AG_MASK_FAILED;
        ag_state_mask_free(m);
        return st;
    }
    p->mask_bytes += m->n_bytes;
    p->dfa.states[state].mask = (uint32_t)++p->n_masks;
    *out = m;
    return AG_OK;
}

static ag_status make_program(const ag_constraint_vocab *v, const ag_constraint_params *params,
                              ag_constraint_program **out, ag_error *err) {
    ag_constraint_program *p = ag_calloc(1, sizeof *p);
    *out = p;
    if (!p) return AG_FAIL(err, NOMEM, "constraint");
    p->users = 1;
    p->vocab = v;
    p->max_mask_bytes = params->max_mask_bytes;
    const ag_pda_limits limits = {
        .insts = params->max_instructions,
        .text = {.states = params->max_states, .work = params->max_work},
    };
    ag_pda_init(&p->pda, &limits, 0);
    AG_TRY(ag_constraint_vocab_json(v, params->spacing, &p->json, err));
    AG_TRY(ag_constraint_compile(&p->pda, &p->json->rules, &v->tree, params, &p->root, &p->trigger,
                                 err));
    AG_TRY(ag_pda_finish(&p->pda, &p->json->rules.pda, err));
    if (!p->pda.rules[p->root].live)
        return AG_FAIL(err, INVALID, "the constraint cannot be satisfied: no text matches it");
    const ag_lazy_limits dfa_limits = {.states = 16 * params->max_states,
                                       .bytes = params->max_state_bytes,
                                       .work = params->max_work,
                                       .total_work = 8 * params->max_work};
    return ag_lazy_dfa_init(&p->dfa, &p->pda, &dfa_limits, err);
}

/* Copies a program without the states and sets that texts have made. */
static ag_status copy_program(const ag_constraint_program *p, ag_constraint_program **out,
                              ag_error *err) {
    ag_constraint_program *copy = ag_calloc(1, sizeof *copy);
    if (!copy) return AG_FAIL(err, NOMEM, "constraint");
    *copy = (ag_constraint_program){.vocab = p->vocab,
                                    .json = p->json,
                                    .users = 1,
                                    .root = p->root,
                                    .trigger = ag_trigger_retain(p->trigger),
                                    .max_mask_bytes = p->max_mask_bytes};
    ag_status st = ag_pda_copy_closed(&copy->pda, &p->pda, err);
    if (st == AG_OK) st = ag_lazy_dfa_init(&copy->dfa, &copy->pda, &p->dfa.limits, err);
    copy->dfa.total = ag_lazy_dfa_total(&p->dfa);
    if (st == AG_OK) *out = copy;
    else release_program(copy);
    return st;
}

/* Returns the program for a new text in *out: p, or p->next if p needs a rebuild. Other texts may
 * still use p. */
static ag_status fresh_program(ag_constraint_program *p, ag_constraint_program **out,
                               ag_error *err) {
    *out = p;
    if (!ag_lazy_dfa_needs_rebuild(&p->dfa)) return AG_OK;
    if (p->next && ag_lazy_dfa_needs_rebuild(&p->next->dfa)) {
        release_program(p->next);
        p->next = NULL;
    }
    if (!p->next) AG_TRY(copy_program(p, &p->next, err));
    *out = p->next;
    return AG_OK;
}

/* ---- one text ---- */

static void filter_accept(ag_token_filter *f, int32_t id) {
    ag_constraint *c = (ag_constraint *)f;
    ag_error err;
    ag_status st = ag_constraint_accept(c, id, &err);
    if (st == AG_OK || c->status != AG_OK) return;
    c->status = st;
    c->error = err;
}

static ag_status filter_mask(ag_token_filter *f, const uint32_t **mask, ag_error *err) {
    return ag_constraint_mask((ag_constraint *)f, mask, err);
}

static void filter_reset(ag_token_filter *f) {
    ag_constraint *c = (ag_constraint *)f;
    ag_error err;
    const ag_status st = ag_constraint_reset(c, &err);
    if (st == AG_OK) return;
    c->status = st;
    c->error = err;
}

/* Hides failures: the next mask reports them. */
static size_t filter_forced(ag_token_filter *f, int32_t *ids, size_t n) {
    ag_constraint *c = (ag_constraint *)f;
    if (c->status != AG_OK) return 0;
    c->forced.n = 0;
    if (ag_constraint_forced(c, n, &c->forced, NULL) != AG_OK) return 0;
    for (size_t i = 0; i < c->forced.n; i++) ids[i] = c->forced.data[i];
    return c->forced.n;
}

static bool filter_is_free(ag_token_filter *f) {
    const ag_constraint *c = (const ag_constraint *)f;
    return c->is_free && !c->n_excluded && c->status == AG_OK;
}

static bool filter_permits(ag_token_filter *f, int32_t id);

static const ag_token_filter_ops filter_ops = {
    .mask = filter_mask,
    .is_free = filter_is_free,
    .permits = filter_permits,
    .accept = filter_accept,
    .reset = filter_reset,
    .forced = filter_forced,
};

static const ag_token_filter_ops watched_filter_ops = {
    .mask = filter_mask,
    .is_free = filter_is_free,
    .accept = filter_accept,
    .reset = filter_reset,
    .forced = filter_forced,
};

void ag_constraint_leave_to_watch(ag_constraint *c) { c->filter.ops = &watched_filter_ops; }

/* Starts the free text before the first constrained part, if there is a trigger. */
static void begin_text(ag_constraint *c) {
    const ag_trigger *t = c->program->trigger;
    c->is_free = t != NULL;
    c->n_excluded = 0;
    if (t) ag_trigger_begin(t, &c->scan);
}

static ag_status new_constraint(ag_constraint_program *p, ag_constraint **out, ag_error *err) {
    ag_constraint *c = ag_calloc(1, sizeof *c);
    uint32_t *mask = ag_calloc(p->vocab->n_words, sizeof *mask);
    if (!c || !mask) {
        ag_free(c);
        ag_free(mask);
        return AG_FAIL(err, NOMEM, "constraint");
    }
    p->users++;
    c->program = p;
    c->mask = mask;
    c->filter = (ag_token_filter){&filter_ops, p->vocab->tree.n_vocab};
    *out = c;
    return AG_OK;
}

ag_status ag_constraint_create(const ag_constraint_vocab *v, const ag_constraint_params *params,
                               ag_constraint **out, ag_error *err) {
    *out = NULL;
    ag_constraint_program *p;
    ag_constraint *c = NULL;
    ag_status st = make_program(v, params, &p, err);
    if (st == AG_OK) st = new_constraint(p, &c, err);
    if (st == AG_OK) {
        st = ag_matcher_init(&c->matcher, &p->dfa, &p->json->rules, p->root, params->max_readings,
                             err);
        c->complete = c->matcher.complete;
        c->at_start = true;
        c->steps = p->dfa.work;
        begin_text(c);
    }
    release_program(p);
    if (st != AG_OK) {
        ag_constraint_destroy(c);
        return st;
    }
    *out = c;
    return AG_OK;
}

ag_status ag_constraint_clone(const ag_constraint *c, ag_constraint **out, ag_error *err) {
    *out = NULL;
    ag_constraint *copy = NULL;
    ag_constraint_program *p = c->program;
    ag_status st = c->at_start ? fresh_program(p, &p, err) : AG_OK;
    if (st == AG_OK) st = new_constraint(p, &copy, err);
    if (st == AG_OK) st = ag_matcher_copy(&copy->matcher, &c->matcher, err);
    if (st == AG_OK && p->trigger) st = ag_trigger_copy(&copy->scan, &c->scan, err);
    if (st == AG_OK && p != c->program) {
        copy->matcher.dfa = &p->dfa;
        st = ag_matcher_reset(&copy->matcher, err);
    }
    if (st != AG_OK) {
        ag_constraint_destroy(copy);
        return st;
    }
    copy->complete = c->complete;
    copy->ended = c->ended;
    copy->at_start = c->at_start;
    copy->is_free = c->is_free;
    copy->n_excluded = c->n_excluded;
    if (c->n_excluded) memcpy(copy->mask, c->mask, p->vocab->n_words * sizeof *c->mask);
    copy->steps = c->steps;
    copy->status = c->status;
    copy->error = c->error;
    *out = copy;
    return AG_OK;
}

size_t ag_constraint_steps(const ag_constraint *c) { return ag_lazy_dfa_total(&c->program->dfa); }

size_t ag_constraint_shared_bytes(const ag_constraint *c) {
    const ag_constraint_program *p = c->program;
    return p->mask_bytes + p->masks_cap * sizeof *p->masks + ag_lazy_dfa_bytes(&p->dfa) +
           p->pda.insts_cap * sizeof *p->pda.insts;
}

size_t ag_constraint_own_bytes(const ag_constraint *c) {
    return ag_matcher_bytes(&c->matcher) + c->scan.seen.cap +
           c->program->vocab->n_words * sizeof *c->mask;
}

void ag_constraint_destroy(ag_constraint *c) {
    if (!c) return;
    ag_matcher_free(&c->matcher);
    release_program(c->program);
    ag_free(c->mask);
    ag_ids_free(&c->forced);
    ag_text_free(&c->scan.seen);
    ag_free(c);
}

/* Returns the matcher to the start of its text, in a program that needs no rebuild. recount: all
 * texts together may take the maximum of steps again. */
static ag_status restart(ag_constraint *c, bool recount, ag_error *err) {
    ag_constraint_program *p;
    AG_TRY(fresh_program(c->program, &p, err));
    if (p != c->program) {
        p->users++;
        release_program(c->program);
        c->program = p;
        c->matcher.dfa = &p->dfa;
    }
    if (recount) ag_lazy_dfa_reset_count(&p->dfa);
    AG_TRY(ag_matcher_reset(&c->matcher, err));
    c->complete = c->matcher.complete;
    c->steps = p->dfa.work;
    return AG_OK;
}

ag_status ag_constraint_reset(ag_constraint *c, ag_error *err) {
    c->mask_known = c->ended = false;
    c->status = AG_OK;
    begin_text(c);
    AG_TRY(restart(c, true, err));
    c->at_start = true;
    return AG_OK;
}

static bool is_eos_id(const ag_constraint *c, int32_t id) {
    const ag_constraint_vocab *v = c->program->vocab;
    for (size_t i = 0; i < v->n_eos; i++) {
        if (v->eos_ids[i] == id) return true;
    }
    return false;
}

ag_status ag_constraint_mask(ag_constraint *c, const uint32_t **mask, ag_error *err) {
    const ag_constraint_vocab *v = c->program->vocab;
    *mask = c->mask;
    if (c->status != AG_OK) {
        if (err) *err = c->error;
        return c->status;
    }
    if (c->is_free && !c->n_excluded) *mask = NULL;
    if (c->mask_known || c->is_free) return AG_OK;
    if (c->ended) memset(c->mask, 0, v->n_words * sizeof *c->mask);
    else AG_TRY(ag_constraint_fill_mask(c, err));
    for (size_t i = 0; i < v->n_eos && (c->complete || c->ended); i++) {
        c->mask[v->eos_ids[i] / 32] |= 1u << (v->eos_ids[i] % 32);
    }
    for (size_t i = 0; i < v->n_words && !c->mask_known; i++) c->mask_known = c->mask[i] != 0;
    if (c->mask_known) return AG_OK;
    return AG_FAIL(err, INVALID,
                   "the constraint cannot continue: no token of the vocabulary may follow");
}

/* Advances the matcher by bytes. Fails with AG_INVALID, and changes nothing, if they may not
 * follow.
 */
static ag_status match_bytes(ag_constraint *c, const unsigned char *s, size_t len, ag_error *err) {
    ag_matcher *m = &c->matcher;
    m->err = err;
    ag_lazy_dfa_begin_count(m->dfa, 0);
    size_t n = 0;
    ag_status st = AG_OK;
    for (size_t i = 0; i < len; i++) {
        st = ag_matcher_step(m, s[i]);
        ag_matcher_threads(m, &n);
        if (st != AG_OK || !n) break;
    }
    if (st != AG_OK || !n) {
        ag_matcher_rewind(m, 1);
        return st != AG_OK ? st : AG_FAIL(err, INVALID, "the constraint does not allow it here");
    }
    c->complete = m->complete;
    c->steps = m->dfa->work;
    ag_matcher_commit(m);
    return AG_OK;
}

static ag_status check_id(const ag_constraint *c, int32_t id, ag_error *err) {
    const size_t n_vocab = c->program->vocab->tree.n_vocab;
    if (id >= 0 && (size_t)id < n_vocab) return AG_OK;
    return AG_FAIL(err, INVALID, "token id %d: outside the vocabulary of %zu tokens", (int)id,
                   n_vocab);
}

/* ---- free text ---- */

/* Excludes the token from the next mask. Fails with AG_LIMIT if there are too many such tokens. */
static ag_status exclude(ag_constraint *c, int32_t id, ag_error *err) {
    enum { MAX_EXCLUDED = 1024 };
    if (!c->n_excluded) memset(c->mask, 0xFF, c->program->vocab->n_words * sizeof *c->mask);
    if (++c->n_excluded > MAX_EXCLUDED)
        return AG_FAIL(err, LIMIT,
                       "the constraint is too expensive: it rejected more than %d tokens that "
                       "began a constrained part",
                       MAX_EXCLUDED);
    c->mask[id / 32] &= ~(1u << (id % 32));
    return AG_INVALID;
}

/* Matches the constrained part that begins at scan.seen[begin]. */
static ag_status match_from(ag_constraint *c, size_t begin, ag_error *err) {
    AG_TRY(restart(c, false, err));
    const ag_text *seen = &c->scan.seen;
    return match_bytes(c, (const unsigned char *)seen->data + begin, seen->len - begin, err);
}

/* Adds a token to a free text. *fires: it begins a constrained part. With `commit` unset, only
 * checks the token. */
static ag_status scan_token(ag_constraint *c, int32_t id, bool commit, bool *fires, ag_error *err) {
    const ag_token_tree *t = &c->program->vocab->tree;
    const ag_trigger_state before = c->scan;
    const size_t n = t->start[id + 1] - t->start[id];
    size_t begin = 0;
    AG_TRY(ag_trigger_push(c->program->trigger, &c->scan, t->bytes + t->start[id], n, fires, &begin,
                           err));
    const ag_status st = *fires ? match_from(c, begin, err) : AG_OK;
    if (st != AG_OK || !commit) ag_trigger_undo(&c->scan, &before, n);
    return st == AG_INVALID ? exclude(c, id, err) : st;
}

static bool filter_permits(ag_token_filter *f, int32_t id) {
    ag_constraint *c = (ag_constraint *)f;
    bool fires;
    ag_error err;
    if (!c->is_free || c->status != AG_OK) return true;
    const ag_status st = scan_token(c, id, false, &fires, &err);
    if (st == AG_OK || st == AG_INVALID) return st == AG_OK;
    c->status = st;
    c->error = err;
    return true;
}

ag_status ag_constraint_watch(ag_constraint *c, int32_t id, bool *fires, ag_error *err) {
    const ag_token_tree *t = &c->program->vocab->tree;
    *fires = false;
    AG_TRY(check_id(c, id, err));
    const ag_trigger_state before = c->scan;
    const size_t n = t->start[id + 1] - t->start[id];
    size_t begin;
    AG_TRY(ag_trigger_push(c->program->trigger, &c->scan, t->bytes + t->start[id], n, fires, &begin,
                           err));
    if (*fires) ag_trigger_undo(&c->scan, &before, n);
    else c->n_excluded = 0;
    return AG_OK;
}

/* Ends the constrained part once its text may end. */
static void close_if_complete(ag_constraint *c) {
    c->is_free = c->program->trigger && c->complete;
    c->n_excluded = 0;
    if (c->is_free) ag_trigger_resume(&c->scan);
}

static ag_status accept_free(ag_constraint *c, int32_t id, ag_error *err) {
    bool fires;
    const ag_status st = scan_token(c, id, true, &fires, err);
    if (st == AG_INVALID) return ag_error_prefix(err, st, "token %d", (int)id);
    AG_TRY(st);
    c->n_excluded = 0;
    c->mask_known = c->at_start = false;
    if (fires) close_if_complete(c);
    return AG_OK;
}

/* ---- tokens ---- */

ag_status ag_constraint_accept(ag_constraint *c, int32_t id, ag_error *err) {
    const ag_token_tree *t = &c->program->vocab->tree;
    AG_TRY(check_id(c, id, err));
    if (ag_constraint_may_end(c) && is_eos_id(c, id)) {
        c->mask_known = c->at_start = c->is_free = false;
        c->ended = true;
        c->steps = 0;
        return AG_OK;
    }
    if (c->is_free) return accept_free(c, id, err);
    const size_t n = c->ended ? 0 : t->start[id + 1] - t->start[id];
    const ag_status st = match_bytes(c, t->bytes + t->start[id], n, err);
    if (st == AG_INVALID) return ag_error_prefix(err, st, "token %d", (int)id);
    AG_TRY(st);
    c->mask_known = c->at_start = false;
    if (c->program->trigger) close_if_complete(c);
    return AG_OK;
}

bool ag_constraint_is_free(const ag_constraint *c) { return c->is_free; }
bool ag_constraint_may_end(const ag_constraint *c) { return c->complete || c->ended || c->is_free; }
bool ag_constraint_has_ended(const ag_constraint *c) { return c->ended; }

ag_status ag_sampler_constrain(ag_sampler *s, ag_constraint *c, ag_error *err) {
    return ag_sampler_set_filter(s, c ? &c->filter : NULL, err);
}
