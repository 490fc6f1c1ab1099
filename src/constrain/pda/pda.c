/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/pda/pda.h"

#include "constrain/interrupts.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"
#include "text/utf8.h"

#include <string.h>

void ag_pda_init(ag_pda *pda, const ag_pda_limits *limits, uint32_t id_bit) {
    *pda = (ag_pda){.limits = *limits, .id_bit = id_bit};
    pda->limits.text.spent = &pda->text_steps;
}

void ag_pda_free(ag_pda *pda) {
    for (size_t i = 0; i < pda->n_objects; i++) ag_free(pda->objects[i].members);
    ag_free(pda->objects);
    ag_interner_free(&pda->sets);
    ag_free(pda->set_insts);
    ag_free(pda->insts);
    ag_free(pda->slots);
    ag_free(pda->rules);
    ag_free(pda->names);
    *pda = (ag_pda){0};
}

void ag_pda_fail(ag_pda *pda, ag_status st, const ag_error *err) {
    if (pda->status != AG_OK || st == AG_OK) return;
    pda->status = st;
    pda->error = *err;
}

static bool grow_array(ag_pda *pda, void *array, size_t *cap, size_t need, size_t size) {
    ag_error err;
    if (pda->status != AG_OK) return false;
    ag_pda_fail(pda, ag_array_grow(array, cap, need, size, &err), &err);
    return pda->status == AG_OK;
}

/* ---- instructions ---- */

/* SPLIT and SET instructions change later, so each is written separately. */
static bool is_shared_inst(const ag_pda_inst *inst) {
    return inst->kind != AG_PDA_SPLIT && inst->kind != AG_PDA_SET;
}

static uint64_t hash_inst(const ag_pda_inst *inst) {
    uint64_t h = (uint64_t)inst->next << 32 | inst->other;
    h = (h ^ ((uint64_t)inst->kind << 16 | (uint64_t)inst->lo << 8 | inst->hi)) *
        0xFF51AFD7ED558CCDu;
    h ^= h >> 33;
    h *= 0xC4CEB9FE1A85EC53u;
    return h ^ h >> 29;
}

static bool same_inst(const ag_pda_inst *a, const ag_pda_inst *b) {
    return a->kind == b->kind && a->lo == b->lo && a->hi == b->hi && a->next == b->next &&
           a->other == b->other;
}

static size_t inst_slot(const ag_pda *pda, const ag_pda_inst *inst) {
    size_t at = hash_inst(inst) & (pda->n_slots - 1);
    while (pda->slots[at] && !same_inst(&pda->insts[pda->slots[at] - 1], inst)) {
        at = (at + 1) & (pda->n_slots - 1);
    }
    return at;
}

static bool grow_inst_slots(ag_pda *pda) {
    size_t n = 256;
    while (n < 4 * (pda->n_insts + 1)) n *= 2;
    uint32_t *slots = ag_calloc(n, sizeof *slots);
    ag_error err;
    if (!slots) {
        ag_pda_fail(pda, AG_FAIL(&err, NOMEM, "table of %zu instructions", n), &err);
        return false;
    }
    ag_free(pda->slots);
    pda->slots = slots;
    pda->n_slots = n;
    for (uint32_t i = 0; i < pda->n_insts; i++) {
        ag_pda_fail(pda, ag_compile_steps(1, &err), &err);
        if (pda->status != AG_OK) return false;
        if (is_shared_inst(&pda->insts[i])) pda->slots[inst_slot(pda, &pda->insts[i])] = i + 1;
    }
    return true;
}

static uint32_t add_inst(ag_pda *pda, ag_pda_inst inst) {
    ag_error err;
    if (pda->status != AG_OK) return 0;
    if (ag_compile_steps(1, &err) != AG_OK) {
        ag_pda_fail(pda, AG_CANCELLED, &err);
        return 0;
    }
    if (pda->n_insts - pda->finished_insts >= pda->limits.insts) {
        ag_pda_fail(pda,
                    AG_FAIL(&err, LIMIT, "the constraint is too large: more than %zu instructions",
                            pda->limits.insts),
                    &err);
        return 0;
    }
    if (2 * (pda->n_insts + 1) > pda->n_slots && !grow_inst_slots(pda)) return 0;
    size_t slot = 0;
    if (is_shared_inst(&inst)) {
        slot = inst_slot(pda, &inst);
        if (pda->slots[slot]) return pda->slots[slot] - 1;
    }
    if (!grow_array(pda, &pda->insts, &pda->insts_cap, pda->n_insts + 1, sizeof inst)) return 0;
    inst.live = pda->finished;
    pda->insts[pda->n_insts] = inst;
    if (is_shared_inst(&inst)) pda->slots[slot] = (uint32_t)pda->n_insts + 1;
    return (uint32_t)pda->n_insts++;
}

uint32_t ag_pda_bytes(ag_pda *pda, uint8_t lo, uint8_t hi, uint32_t next) {
    return add_inst(pda, (ag_pda_inst){.kind = AG_PDA_BYTES, .lo = lo, .hi = hi, .next = next});
}

uint32_t ag_pda_split(ag_pda *pda, uint32_t next, uint32_t other) {
    return add_inst(pda, (ag_pda_inst){.kind = AG_PDA_SPLIT, .next = next, .other = other});
}

void ag_pda_patch(ag_pda *pda, uint32_t split, uint32_t next) {
    if (pda->status == AG_OK) pda->insts[split].next = next;
}

uint32_t ag_pda_call(ag_pda *pda, uint32_t rule, uint32_t next) {
    return add_inst(pda, (ag_pda_inst){.kind = AG_PDA_CALL, .next = next, .other = rule});
}

uint32_t ag_pda_end(ag_pda *pda) { return add_inst(pda, (ag_pda_inst){.kind = AG_PDA_END}); }

uint32_t ag_pda_set(ag_pda *pda, uint32_t set, uint32_t next) {
    return add_inst(pda, (ag_pda_inst){.kind = AG_PDA_SET, .next = next, .other = set});
}

uint32_t ag_pda_literal(ag_pda *pda, const char *s, size_t n, uint32_t next) {
    while (n) next = ag_pda_byte(pda, s[--n], next);
    return next;
}

uint32_t ag_pda_either(ag_pda *pda, uint32_t a, uint32_t b) {
    if (a == AG_PDA_FAIL || a == b) return b;
    return b == AG_PDA_FAIL ? a : ag_pda_split(pda, a, b);
}

/* ---- rules, names ---- */

uint32_t ag_pda_rule_add(ag_pda *pda, ag_pda_rule rule) {
    if (!grow_array(pda, &pda->rules, &pda->rules_cap, pda->n_rules + 1, sizeof rule)) return 0;
    pda->rules[pda->n_rules] = rule;
    return (uint32_t)pda->n_rules++ | pda->id_bit;
}

uint32_t ag_pda_rule_plain(ag_pda *pda, uint32_t start) {
    return ag_pda_rule_add(pda, (ag_pda_rule){.kind = AG_RULE_PLAIN, .start = start});
}

void ag_pda_rule_set_start(ag_pda *pda, uint32_t rule, uint32_t start) {
    if (pda->status == AG_OK) pda->rules[rule & ~AG_PDA_SHARED].start = start;
}

static uint32_t add_name_node(ag_pda *pda, ag_name_node node) {
    if (!grow_array(pda, &pda->names, &pda->names_cap, pda->n_names + 2, sizeof node)) return 0;
    if (!pda->n_names) pda->names[pda->n_names++] = (ag_name_node){0};
    pda->names[pda->n_names] = node;
    return (uint32_t)pda->n_names++;
}

uint32_t ag_pda_names_new(ag_pda *pda) { return add_name_node(pda, (ag_name_node){0}); }

static uint32_t name_child(ag_pda *pda, uint32_t at, uint8_t byte) {
    if (pda->status != AG_OK) return 0;
    uint32_t child = ag_name_child(pda->names, at, byte);
    if (child) return child;
    child = add_name_node(pda, (ag_name_node){.byte = byte, .sibling = pda->names[at].child});
    if (child) pda->names[at].child = child;
    return child;
}

/* Writes a byte as JSON spells it between quotes. Returns the bytes written. */
static size_t escape(char out[6], char c) {
    static const char short_from[] = "\"\\\b\f\n\r\t", short_to[] = "\"\\bfnrt";
    const char *found = c ? strchr(short_from, c) : NULL;
    out[0] = c;
    if (!found && (unsigned char)c >= 0x20) return 1;
    memcpy(out, "\\u00", 4);
    if (found) {
        out[1] = short_to[found - short_from];
        return 2;
    }
    out[4] = (char)('0' + (c >> 4));
    out[5] = "0123456789abcdef"[c & 15];
    return 6;
}

void ag_pda_names_add(ag_pda *pda, uint32_t root, const char *name, size_t n) {
    char escaped[6];
    ag_error err;
    if (pda->status != AG_OK) return;
    ag_pda_fail(pda, ag_compile_steps(1 + n / 4, &err), &err);
    for (size_t i = 0; i < n && pda->status == AG_OK; i++) {
        const size_t bytes = escape(escaped, name[i]);
        for (size_t k = 0; k < bytes; k++) root = name_child(pda, root, (uint8_t)escaped[k]);
    }
    if (pda->status == AG_OK) pda->names[root].ends = true;
}

/* ---- characters ---- */

uint32_t ag_pda_json_text(ag_pda *pda, const char *s, size_t n, uint32_t next) {
    char escaped[6];
    while (n) {
        const size_t bytes = escape(escaped, s[--n]);
        next = ag_pda_literal(pda, escaped, bytes, next);
    }
    return next;
}

/* Writes the characters of lo..hi, which all have n bytes in UTF-8, then next. */
static uint32_t chars_of_length(ag_pda *pda, const uint8_t *lo, const uint8_t *hi, size_t n,
                                uint32_t next) {
    static const uint8_t lowest[4] = {0x80, 0x80, 0x80, 0x80},
                         highest[4] = {0xBF, 0xBF, 0xBF, 0xBF};
    if (n == 1) return ag_pda_bytes(pda, lo[0], hi[0], next);
    if (lo[0] == hi[0]) {
        return ag_pda_bytes(pda, lo[0], lo[0], chars_of_length(pda, lo + 1, hi + 1, n - 1, next));
    }
    const bool cuts_low = memcmp(lo + 1, lowest, n - 1), cuts_high = memcmp(hi + 1, highest, n - 1);
    const int from = lo[0] + cuts_low, to = hi[0] - cuts_high;
    uint32_t at = AG_PDA_FAIL;
    if (cuts_low) {
        at = ag_pda_bytes(pda, lo[0], lo[0], chars_of_length(pda, lo + 1, highest, n - 1, next));
    }
    if (from <= to) {
        at = ag_pda_either(pda, at,
                           ag_pda_bytes(pda, (uint8_t)from, (uint8_t)to,
                                        chars_of_length(pda, lowest, highest, n - 1, next)));
    }
    if (cuts_high) {
        at = ag_pda_either(
            pda, at,
            ag_pda_bytes(pda, hi[0], hi[0], chars_of_length(pda, lowest, hi + 1, n - 1, next)));
    }
    return at;
}

uint32_t ag_pda_chars(ag_pda *pda, uint32_t lo, uint32_t hi, uint32_t next) {
    /* The number of bytes changes between these, and surrogates are left out. */
    static const ag_char_range pieces[] = {
        {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, AG_CHAR_MAX}};
    uint32_t at = AG_PDA_FAIL;
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        const uint32_t from = lo > pieces[i].lo ? lo : pieces[i].lo;
        const uint32_t to = hi < pieces[i].hi ? hi : pieces[i].hi;
        if (from > to) continue;
        uint8_t a[4], b[4];
        const size_t n = ag_utf8_put((char *)a, from);
        ag_utf8_put((char *)b, to);
        at = ag_pda_either(pda, at, chars_of_length(pda, a, b, n, next));
    }
    return at;
}

static uint32_t hex_digits(ag_pda *pda, unsigned lo, unsigned hi, uint32_t next) {
    uint32_t at = AG_PDA_FAIL;
    if (lo < 10) {
        const unsigned to = hi < 9 ? hi : 9;
        at = ag_pda_bytes(pda, (uint8_t)('0' + lo), (uint8_t)('0' + to), next);
    }
    if (hi < 10) return at;
    const unsigned from = lo > 10 ? lo : 10;
    /* json.dumps writes small letters */
    return ag_pda_either(
        pda, at, ag_pda_bytes(pda, (uint8_t)('a' + from - 10), (uint8_t)('a' + hi - 10), next));
}

/* Writes control characters as JSON escapes, \n and \u00XX, in few instructions. */
static uint32_t json_controls(ag_pda *pda, uint32_t lo, uint32_t hi, uint32_t next) {
    uint32_t at = AG_PDA_FAIL, rows[2] = {AG_PDA_FAIL, AG_PDA_FAIL};
    uint32_t from = lo;
    for (uint32_t c = lo; c <= hi + 1; c++) {
        const bool has_short_form = c <= hi && (c == 8 || c == 9 || c == 10 || c == 12 || c == 13);
        if (c <= hi && !has_short_form && c != 16) continue;
        if (from < c) {
            uint32_t *row = &rows[from >> 4];
            *row = ag_pda_either(pda, *row, hex_digits(pda, from & 15, (c - 1) & 15, next));
        }
        if (has_short_form) {
            const char text = (char)c;
            at = ag_pda_either(pda, at, ag_pda_json_text(pda, &text, 1, next));
        }
        from = has_short_form ? c + 1 : c;
    }
    for (int i = 0; i < 2; i++) {
        if (rows[i] == AG_PDA_FAIL) continue;
        at = ag_pda_either(pda, at, ag_pda_literal(pda, i ? "\\u001" : "\\u000", 5, rows[i]));
    }
    return at;
}

/* Writes the characters of lo..hi as JSON strings spell them. */
static uint32_t json_chars(ag_pda *pda, uint32_t lo, uint32_t hi, uint32_t next) {
    uint32_t at = AG_PDA_FAIL;
    if (lo < 0x20) at = json_controls(pda, lo, hi < 0x1F ? hi : 0x1F, next);
    static const ag_char_range plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, AG_CHAR_MAX}};
    for (size_t i = 0; i < 3; i++) {
        const uint32_t from = lo > plain[i].lo ? lo : plain[i].lo;
        const uint32_t to = hi < plain[i].hi ? hi : plain[i].hi;
        if (from <= to) at = ag_pda_either(pda, at, ag_pda_chars(pda, from, to, next));
    }
    if (lo <= '"' && hi >= '"') at = ag_pda_either(pda, at, ag_pda_literal(pda, "\\\"", 2, next));
    if (lo <= '\\' && hi >= '\\') at = ag_pda_either(pda, at, ag_pda_literal(pda, "\\\\", 2, next));
    return at;
}

/* ---- languages ---- */

uint32_t ag_pda_dfa(ag_pda *pda, const ag_text_dfa *d, ag_text_form form, uint32_t next) {
    if (!d->n_states) return AG_PDA_FAIL;
    uint32_t *entries = ag_calloc(d->n_states, sizeof *entries);
    ag_error err;
    if (!entries) {
        ag_pda_fail(pda, AG_FAIL(&err, NOMEM, "automaton of %zu states", d->n_states), &err);
        return 0;
    }
    for (size_t s = 0; s < d->n_states; s++) {
        entries[s] = ag_pda_split(pda, AG_PDA_UNSET, d->accepts[s] ? next : AG_PDA_FAIL);
    }
    for (size_t s = 0; s < d->n_states && pda->status == AG_OK; s++) {
        uint32_t at = AG_PDA_FAIL;
        for (size_t e = d->starts[s]; e < d->starts[s + 1]; e++) {
            const ag_text_edge *x = &d->edges[e];
            const uint32_t edge = form == AG_FORM_JSON
                                      ? json_chars(pda, x->lo, x->hi, entries[x->state])
                                      : ag_pda_chars(pda, x->lo, x->hi, entries[x->state]);
            at = ag_pda_either(pda, at, edge);
        }
        ag_pda_patch(pda, entries[s], at);
    }
    const uint32_t first = entries[0];
    ag_free(entries);
    return first;
}

uint32_t ag_pda_regex(ag_pda *pda, const char *regex, uint32_t next) {
    ag_text_dfa d;
    ag_error err;
    ag_pda_fail(pda, ag_text_dfa_regex(&d, regex, strlen(regex), false, &pda->limits.text, &err),
                &err);
    const uint32_t at = ag_pda_dfa(pda, &d, AG_FORM_TEXT, next);
    ag_text_dfa_free(&d);
    return at;
}
