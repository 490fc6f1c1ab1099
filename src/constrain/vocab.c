/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/vocab.h"

#include "core/alloc.h"
#include "core/fail.h"

#include <string.h>

static void free_json(ag_json_masks *j) {
    if (!j) return;
    for (size_t i = 0; j->masks && i < j->rules.dfa.n_states; i++) {
        ag_state_mask_free(&j->masks[i]);
    }
    ag_free(j->masks);
    for (size_t i = 0; i <= AG_LENGTH_STEPS; i++) ag_free(j->lengths[i]);
    ag_json_rules_free(&j->rules);
    ag_free(j);
}

/* Makes the masks for strings with a length limit from the number of characters of each token. */
static ag_status make_lengths(ag_json_masks *j, const ag_token_tree *tree, size_t n_words,
                              ag_error *err) {
    const uint8_t *chars = j->masks[j->rules.string_inside & ~AG_PDA_SHARED].chars;
    for (size_t i = 1; i <= AG_LENGTH_STEPS; i++) {
        j->lengths[i] = ag_calloc(n_words, sizeof *j->lengths[i]);
        if (!j->lengths[i]) return AG_FAIL(err, NOMEM, "masks of strings");
        for (size_t id = 0; id < tree->n_vocab; id++) {
            if (chars[id] && chars[id] <= i) j->lengths[i][id / 32] |= 1u << (id % 32);
        }
    }
    return AG_OK;
}

static ag_status make_json(ag_json_masks *j, ag_json_spacing spacing, const ag_token_tree *tree,
                           size_t n_words, ag_error *err) {
    AG_TRY(ag_json_rules_make(&j->rules, spacing, err));
    ag_lazy_dfa *s = &j->rules.dfa;
    j->masks = ag_calloc(s->n_states, sizeof *j->masks);
    if (!j->masks) return AG_FAIL(err, NOMEM, "masks of JSON");
    for (uint32_t i = 0; i < s->n_states; i++) {
        const uint32_t state = i | AG_PDA_SHARED;
        unsigned flags = 0;
        if (state == j->rules.string_inside) flags = AG_MASK_RULE_ENDS | AG_MASK_CHARS;
        if (state == j->rules.name_inside) flags = AG_MASK_RULE_ENDS;
        AG_TRY(ag_state_mask_make(&j->masks[i], s, tree, state, flags, err));
    }
    return make_lengths(j, tree, n_words, err);
}

ag_status ag_constraint_vocab_json(const ag_constraint_vocab *v, ag_json_spacing spacing,
                                   const ag_json_masks **out, ag_error *err) {
    ag_constraint_vocab *w = (ag_constraint_vocab *)(uintptr_t)v; /* changed only under the lock */
    ag_status st = AG_OK;
    ag_mutex_lock(&w->lock);
    if (!w->json[spacing]) {
        ag_json_masks *j = ag_calloc(1, sizeof *j);
        st = j ? make_json(j, spacing, &v->tree, v->n_words, err)
               : AG_FAIL(err, NOMEM, "masks of JSON");
        if (st == AG_OK) w->json[spacing] = j;
        else free_json(j);
    }
    *out = w->json[spacing];
    ag_mutex_unlock(&w->lock);
    return st;
}

static ag_status check_ids(const ag_tokenizer *t, size_t n_vocab, const int32_t *eos_ids,
                           size_t n_eos, ag_error *err) {
    if (!n_vocab || n_vocab > INT32_MAX) {
        return AG_FAIL(err, INVALID, "n_vocab is %zu: it must be 1 to 2147483647", n_vocab);
    }
    if ((size_t)ag_tokenizer_vocab_size(t) > n_vocab) {
        return AG_FAIL(err, INVALID, "vocabularies differ: the tokenizer has %d ids, the model %zu",
                       (int)ag_tokenizer_vocab_size(t), n_vocab);
    }
    if (!n_eos)
        return AG_FAIL(err, INVALID,
                       "eos_ids is empty: a constraint needs a token that ends the text");
    for (size_t i = 0; i < n_eos; i++) {
        if (eos_ids[i] < 0 || (size_t)eos_ids[i] >= n_vocab) {
            return AG_FAIL(err, INVALID, "eos id %d: outside the vocabulary of %zu tokens",
                           (int)eos_ids[i], n_vocab);
        }
    }
    return AG_OK;
}

ag_status ag_constraint_vocab_create(const ag_tokenizer *t, size_t n_vocab, const int32_t *eos_ids,
                                     size_t n_eos, ag_constraint_vocab **out, ag_error *err) {
    *out = NULL;
    AG_TRY(check_ids(t, n_vocab, eos_ids, n_eos, err));
    ag_constraint_vocab *v = ag_calloc(1, sizeof *v);
    if (!v) return AG_FAIL(err, NOMEM, "vocabulary for constraints");
    ag_mutex_init(&v->lock);
    v->n_words = (n_vocab + 31) / 32;
    v->n_eos = n_eos;
    v->eos_ids = ag_calloc(n_eos, sizeof *v->eos_ids);
    ag_status st = AG_OK;
    if (v->eos_ids) memcpy(v->eos_ids, eos_ids, n_eos * sizeof *eos_ids);
    else st = AG_FAIL(err, NOMEM, "vocabulary for constraints");
    if (st == AG_OK) st = ag_token_tree_build(&v->tree, t, n_vocab, err);
    if (st != AG_OK) {
        ag_constraint_vocab_destroy(v);
        return st;
    }
    *out = v;
    return AG_OK;
}

void ag_constraint_vocab_destroy(ag_constraint_vocab *v) {
    if (!v) return;
    for (size_t i = 0; i < AG_N_SPACINGS; i++) free_json(v->json[i]);
    ag_token_tree_free(&v->tree);
    ag_free(v->eos_ids);
    ag_mutex_destroy(&v->lock);
    ag_free(v);
}
