/* SPDX-License-Identifier: Apache-2.0 */
/* Forced tokens and text: what must follow, whatever the model's logits are. */
#include "constrain/constraint.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"

#include <string.h>

/* Counts the bytes that can follow the newest position. *n_choices: 0, 1, or 2 for more; *byte: the
 * first. A state may have edges that a rule's extra state rejects, so each byte is tried. */
static ag_status count_bytes(ag_matcher *m, int *byte, int *n_choices) {
    const size_t n_positions = m->n_positions;
    size_t n;
    *n_choices = 0;
    for (int b = 0; b < 256 && *n_choices < 2; b++) {
        AG_TRY(ag_matcher_step(m, (uint8_t)b));
        ag_matcher_threads(m, &n);
        ag_matcher_rewind(m, n_positions);
        if (n && !(*n_choices)++) *byte = b;
    }
    return AG_OK;
}

/* Appends the bytes that must follow, at most max. *closed: nothing can follow them. */
static ag_status forced_bytes(ag_constraint *c, size_t max, ag_text *out, bool *closed,
                              ag_error *err) {
    ag_matcher *m = &c->matcher;
    m->err = err;
    ag_lazy_dfa_begin_count(m->dfa, 0);
    bool complete = ag_constraint_may_end(c);
    int byte = 0, n_choices = 0;
    for (size_t i = 0; i < max && !complete; i++) {
        AG_TRY(count_bytes(m, &byte, &n_choices));
        if (n_choices != 1) break;
        const char b = (char)byte;
        AG_TRY(ag_text_append(out, &b, 1, err));
        AG_TRY(ag_matcher_step(m, (uint8_t)byte));
        complete = m->complete;
    }
    *closed = complete;
    if (!complete) return AG_OK;
    AG_TRY(count_bytes(m, &byte, &n_choices));
    *closed = !n_choices;
    return AG_OK;
}

ag_status ag_constraint_forced_text(ag_constraint *c, size_t max, ag_text *out, ag_error *err) {
    const size_t before = out->len;
    bool closed;
    ag_status st = forced_bytes(c, max, out, &closed, err);
    ag_matcher_rewind(&c->matcher, 1);
    ag_lazy_dfa_discount(c->matcher.dfa);
    /* A special token is not text. */
    const char *token = out->len > before
                            ? memchr(out->data + before, AG_SPECIAL_PREFIX_BYTE, out->len - before)
                            : NULL;
    if (token) {
        out->len = (size_t)(token - out->data);
        out->data[out->len] = '\0';
    }
    if (st != AG_OK) out->len = before;
    return st;
}

/* Returns the length of the longest token that s starts with; 0 if there is none. *is_prefix: a
 * longer token starts with all of s. */
static size_t longest_token(const ag_token_tree *t, const unsigned char *s, size_t n, int32_t *id,
                            bool *is_prefix) {
    uint32_t at = 0;
    size_t best = 0, i = 0;
    for (; i < n; i++) {
        const uint32_t end = at + t->nodes[at].skip;
        uint32_t child = at + 1;
        while (child < end && t->nodes[child].byte != s[i]) child += t->nodes[child].skip;
        if (child >= end) break;
        at = child;
        if (t->nodes[at].token >= 0) {
            best = i + 1;
            *id = t->nodes[at].token;
        }
    }
    *is_prefix = i == n && t->nodes[at].skip > 1;
    return best;
}

ag_status ag_constraint_forced(ag_constraint *c, size_t max, ag_ids *out, ag_error *err) {
    const ag_token_tree *t = &c->program->vocab->tree;
    ag_text text = {0};
    const size_t before = out->n;
    bool closed;
    ag_status st = forced_bytes(c, max * 16, &text, &closed, err);
    ag_matcher_rewind(&c->matcher, 1);
    ag_lazy_dfa_discount(c->matcher.dfa); /* drafts do not count towards a text's limit */
    size_t done = 0;
    while (st == AG_OK && done < text.len && out->n - before < max) {
        int32_t id = -1;
        bool is_prefix;
        const size_t n = longest_token(t, (const unsigned char *)text.data + done, text.len - done,
                                       &id, &is_prefix);
        /* If nothing can follow, the last token is not a prefix of a longer one. */
        if (!n || (is_prefix && !closed)) break;
        st = ag_ids_push(out, id, err);
        done += n;
    }
    ag_text_free(&text);
    if (st != AG_OK) out->n = before;
    return st;
}
