/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/pda/pda.h"

#include "constrain/interrupts.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"
#include "text/utf8.h"

#include <string.h>

void ag_net_init(ag_net *net, const ag_net_limits *limits, uint32_t id_bit) {
    *net = (ag_net){.limits = *limits, .id_bit = id_bit};
    net->limits.text.spent = &net->text_steps;
}

void ag_net_free(ag_net *net) {
    for (size_t i = 0; i < net->n_objects; i++) ag_free(net->objects[i].members);
    ag_free(net->objects);
    ag_interner_free(&net->sets);
    ag_free(net->set_ops);
    ag_free(net->ops);
    ag_free(net->slots);
    ag_free(net->rules);
    ag_free(net->names);
    *net = (ag_net){0};
}

void ag_net_fail(ag_net *net, ag_status st, const ag_error *err) {
    if (net->status != AG_OK || st == AG_OK) return;
    net->status = st;
    net->error = *err;
}

static bool net_array(ag_net *net, void **p, size_t *cap, size_t need, size_t size) {
    ag_error err;
    ag_net_fail(net, ag_array_grow(p, cap, need, size, &err), &err);
    return net->status == AG_OK;
}

/* ---- instructions ---- */

/* Those that change are written anew each time. */
static bool is_shared_op(const ag_net_op *op) {
    return op->kind != AG_NET_SPLIT && op->kind != AG_NET_SET;
}

static uint64_t hash_op(const ag_net_op *op) {
    uint64_t h = (uint64_t)op->next << 32 | op->other;
    h = (h ^ ((uint64_t)op->kind << 16 | (uint64_t)op->lo << 8 | op->hi)) * 0xFF51AFD7ED558CCDu;
    h ^= h >> 33;
    h *= 0xC4CEB9FE1A85EC53u;
    return h ^ h >> 29;
}

static bool same_op(const ag_net_op *a, const ag_net_op *b) {
    return a->kind == b->kind && a->lo == b->lo && a->hi == b->hi && a->next == b->next &&
           a->other == b->other;
}

static size_t op_slot(const ag_net *net, const ag_net_op *op) {
    size_t at = hash_op(op) & (net->n_slots - 1);
    while (net->slots[at] && !same_op(&net->ops[net->slots[at] - 1], op)) {
        at = (at + 1) & (net->n_slots - 1);
    }
    return at;
}

static bool grow_op_slots(ag_net *net) {
    size_t n = 256;
    while (n < 4 * (net->n_ops + 1)) n *= 2;
    uint32_t *slots = ag_calloc(n, sizeof *slots);
    ag_error err;
    if (!slots) {
        ag_net_fail(net, AG_FAIL(&err, NOMEM, "table of %zu instructions", n), &err);
        return false;
    }
    ag_free(net->slots);
    net->slots = slots;
    net->n_slots = n;
    for (uint32_t i = 0; i < net->n_ops; i++) {
        ag_net_fail(net, ag_compile_steps(1, &err), &err);
        if (net->status != AG_OK) return false;
        if (is_shared_op(&net->ops[i])) net->slots[op_slot(net, &net->ops[i])] = i + 1;
    }
    return true;
}

static uint32_t add_op(ag_net *net, ag_net_op op) {
    ag_error err;
    if (net->status != AG_OK) return 0;
    if (ag_compile_steps(1, &err) != AG_OK) {
        ag_net_fail(net, AG_CANCELLED, &err);
        return 0;
    }
    if (net->n_ops - net->finished_ops >= net->limits.ops) {
        ag_net_fail(net, AG_FAIL(&err, LIMIT, "more than %zu instructions", net->limits.ops), &err);
        return 0;
    }
    if (2 * (net->n_ops + 1) > net->n_slots && !grow_op_slots(net)) return 0;
    size_t slot = 0;
    if (is_shared_op(&op)) {
        slot = op_slot(net, &op);
        if (net->slots[slot]) return net->slots[slot] - 1;
    }
    void *p = net->ops;
    const bool grown = net_array(net, &p, &net->ops_cap, net->n_ops + 1, sizeof op);
    net->ops = p;
    if (!grown) return 0;
    op.live = net->finished;
    net->ops[net->n_ops] = op;
    if (is_shared_op(&op)) net->slots[slot] = (uint32_t)net->n_ops + 1;
    return (uint32_t)net->n_ops++;
}

uint32_t ag_net_bytes(ag_net *net, uint8_t lo, uint8_t hi, uint32_t next) {
    return add_op(net, (ag_net_op){.kind = AG_NET_BYTES, .lo = lo, .hi = hi, .next = next});
}

uint32_t ag_net_split(ag_net *net, uint32_t next, uint32_t other) {
    return add_op(net, (ag_net_op){.kind = AG_NET_SPLIT, .next = next, .other = other});
}

void ag_net_patch(ag_net *net, uint32_t split, uint32_t next) {
    if (net->status == AG_OK) net->ops[split].next = next;
}

uint32_t ag_net_call(ag_net *net, uint32_t rule, uint32_t next) {
    return add_op(net, (ag_net_op){.kind = AG_NET_CALL, .next = next, .other = rule});
}

uint32_t ag_net_end(ag_net *net) { return add_op(net, (ag_net_op){.kind = AG_NET_END}); }

uint32_t ag_net_set_op(ag_net *net, uint32_t set, uint32_t next) {
    return add_op(net, (ag_net_op){.kind = AG_NET_SET, .next = next, .other = set});
}

uint32_t ag_net_literal(ag_net *net, const char *s, size_t n, uint32_t next) {
    while (n) {
        const uint8_t b = (uint8_t)s[--n];
        next = ag_net_bytes(net, b, b, next);
    }
    return next;
}

uint32_t ag_net_either(ag_net *net, uint32_t a, uint32_t b) {
    if (a == AG_NET_NOWHERE || a == b) return b;
    return b == AG_NET_NOWHERE ? a : ag_net_split(net, a, b);
}

/* ---- rules, names ---- */

uint32_t ag_net_rule_add(ag_net *net, ag_net_rule rule) {
    void *p = net->rules;
    const bool grown =
        net->status == AG_OK && net_array(net, &p, &net->rules_cap, net->n_rules + 1, sizeof rule);
    net->rules = p;
    if (!grown) return 0;
    net->rules[net->n_rules] = rule;
    return (uint32_t)net->n_rules++ | net->id_bit;
}

void ag_net_rule_start(ag_net *net, uint32_t rule, uint32_t start) {
    if (net->status == AG_OK) net->rules[rule & ~AG_NET_SHARED].start = start;
}

static uint32_t add_name_node(ag_net *net, ag_name_node node) {
    void *p = net->names;
    const bool grown =
        net->status == AG_OK && net_array(net, &p, &net->names_cap, net->n_names + 2, sizeof node);
    net->names = p;
    if (!grown) return 0;
    if (!net->n_names) net->names[net->n_names++] = (ag_name_node){0};
    net->names[net->n_names] = node;
    return (uint32_t)net->n_names++;
}

uint32_t ag_net_names(ag_net *net) { return add_name_node(net, (ag_name_node){0}); }

static uint32_t name_child(ag_net *net, uint32_t at, uint8_t byte) {
    if (net->status != AG_OK) return 0;
    uint32_t child = ag_name_child(net->names, at, byte);
    if (child) return child;
    child = add_name_node(net, (ag_name_node){.byte = byte, .sibling = net->names[at].child});
    if (child) net->names[at].child = child;
    return child;
}

void ag_net_names_add(ag_net *net, uint32_t root, const char *name, size_t n) {
    char escaped[6];
    ag_error err;
    if (net->status != AG_OK) return;
    ag_net_fail(net, ag_compile_steps(1 + n / 4, &err), &err);
    for (size_t i = 0; i < n && net->status == AG_OK; i++) {
        const size_t bytes = ag_json_escape(escaped, name + i, 1);
        for (size_t k = 0; k < bytes; k++) root = name_child(net, root, (uint8_t)escaped[k]);
    }
    if (net->status == AG_OK) net->names[root].ends = true;
}

/* ---- characters ---- */

size_t ag_json_escape(char *out, const char *s, size_t n) {
    static const char short_from[] = "\"\\\b\f\n\r\t", short_to[] = "\"\\bfnrt";
    static const char hex[] = "0123456789abcdef";
    char *p = out;
    for (size_t i = 0; i < n; i++) {
        const char *found = s[i] ? strchr(short_from, s[i]) : NULL;
        const unsigned char c = (unsigned char)s[i];
        if (found) {
            *p++ = '\\';
            *p++ = short_to[found - short_from];
        } else if (c < 0x20) {
            memcpy(p, "\\u00", 4);
            p[4] = hex[c >> 4];
            p[5] = hex[c & 15];
            p += 6;
        } else {
            *p++ = s[i];
        }
    }
    return (size_t)(p - out);
}

uint32_t ag_net_json_text(ag_net *net, const char *s, size_t n, uint32_t next) {
    char escaped[6];
    while (n) {
        const size_t bytes = ag_json_escape(escaped, s + --n, 1);
        next = ag_net_literal(net, escaped, bytes, next);
    }
    return next;
}

/* Both ends have n bytes in UTF-8, and all that is between has them, too. */
static uint32_t chars_of_length(ag_net *net, const uint8_t *lo, const uint8_t *hi, size_t n,
                                uint32_t next) {
    static const uint8_t least[4] = {0x80, 0x80, 0x80, 0x80}, most[4] = {0xBF, 0xBF, 0xBF, 0xBF};
    if (n == 1) return ag_net_bytes(net, lo[0], hi[0], next);
    if (lo[0] == hi[0]) {
        return ag_net_bytes(net, lo[0], lo[0], chars_of_length(net, lo + 1, hi + 1, n - 1, next));
    }
    const bool low_cut = memcmp(lo + 1, least, n - 1), high_cut = memcmp(hi + 1, most, n - 1);
    const int from = lo[0] + low_cut, to = hi[0] - high_cut;
    uint32_t at = AG_NET_NOWHERE;
    if (low_cut) {
        at = ag_net_bytes(net, lo[0], lo[0], chars_of_length(net, lo + 1, most, n - 1, next));
    }
    if (from <= to) {
        at = ag_net_either(net, at,
                           ag_net_bytes(net, (uint8_t)from, (uint8_t)to,
                                        chars_of_length(net, least, most, n - 1, next)));
    }
    if (high_cut) {
        at = ag_net_either(
            net, at,
            ag_net_bytes(net, hi[0], hi[0], chars_of_length(net, least, hi + 1, n - 1, next)));
    }
    return at;
}

uint32_t ag_net_chars(ag_net *net, uint32_t lo, uint32_t hi, uint32_t next) {
    /* Where the number of bytes changes, and around the surrogates. */
    static const ag_char_range pieces[] = {
        {0, 0x7F}, {0x80, 0x7FF}, {0x800, 0xD7FF}, {0xE000, 0xFFFF}, {0x10000, AG_CHAR_MOST}};
    uint32_t at = AG_NET_NOWHERE;
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        const uint32_t from = lo > pieces[i].lo ? lo : pieces[i].lo;
        const uint32_t to = hi < pieces[i].hi ? hi : pieces[i].hi;
        if (from > to) continue;
        uint8_t a[4], b[4];
        const size_t n = ag_utf8_put((char *)a, from);
        ag_utf8_put((char *)b, to);
        at = ag_net_either(net, at, chars_of_length(net, a, b, n, next));
    }
    return at;
}

static uint32_t hex_digits(ag_net *net, unsigned lo, unsigned hi, uint32_t next) {
    uint32_t at = AG_NET_NOWHERE;
    if (lo < 10) {
        const unsigned to = hi < 9 ? hi : 9;
        at = ag_net_bytes(net, (uint8_t)('0' + lo), (uint8_t)('0' + to), next);
    }
    if (hi < 10) return at;
    const unsigned from = lo > 10 ? lo : 10;
    /* json.dumps writes small letters. */
    return ag_net_either(
        net, at, ag_net_bytes(net, (uint8_t)('a' + from - 10), (uint8_t)('a' + hi - 10), next));
}

/* Control characters: \n and its like, and \u00XX in as few instructions as it takes. */
static uint32_t json_controls(ag_net *net, uint32_t lo, uint32_t hi, uint32_t next) {
    uint32_t at = AG_NET_NOWHERE, rows[2] = {AG_NET_NOWHERE, AG_NET_NOWHERE};
    uint32_t from = lo;
    for (uint32_t c = lo; c <= hi + 1; c++) {
        const bool apart = c <= hi && (c == 8 || c == 9 || c == 10 || c == 12 || c == 13);
        if (c <= hi && !apart && c != 16) continue;
        if (from < c) {
            uint32_t *row = &rows[from >> 4];
            *row = ag_net_either(net, *row, hex_digits(net, from & 15, (c - 1) & 15, next));
        }
        if (apart) {
            const char text = (char)c;
            at = ag_net_either(net, at, ag_net_json_text(net, &text, 1, next));
        }
        from = apart ? c + 1 : c;
    }
    for (int i = 0; i < 2; i++) {
        if (rows[i] == AG_NET_NOWHERE) continue;
        at = ag_net_either(net, at, ag_net_literal(net, i ? "\\u001" : "\\u000", 5, rows[i]));
    }
    return at;
}

/* The same inside of a JSON string. */
static uint32_t json_chars(ag_net *net, uint32_t lo, uint32_t hi, uint32_t next) {
    uint32_t at = AG_NET_NOWHERE;
    if (lo < 0x20) at = json_controls(net, lo, hi < 0x1F ? hi : 0x1F, next);
    static const ag_char_range plain[] = {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, AG_CHAR_MOST}};
    for (size_t i = 0; i < 3; i++) {
        const uint32_t from = lo > plain[i].lo ? lo : plain[i].lo;
        const uint32_t to = hi < plain[i].hi ? hi : plain[i].hi;
        if (from <= to) at = ag_net_either(net, at, ag_net_chars(net, from, to, next));
    }
    if (lo <= '"' && hi >= '"') at = ag_net_either(net, at, ag_net_literal(net, "\\\"", 2, next));
    if (lo <= '\\' && hi >= '\\') at = ag_net_either(net, at, ag_net_literal(net, "\\\\", 2, next));
    return at;
}

/* ---- languages ---- */

uint32_t ag_net_dfa(ag_net *net, const ag_text_dfa *d, ag_char_form form, uint32_t next) {
    if (!d->n_states) return AG_NET_NOWHERE;
    uint32_t *entries = ag_calloc(d->n_states, sizeof *entries);
    ag_error err;
    if (!entries) {
        ag_net_fail(net, AG_FAIL(&err, NOMEM, "automaton of %zu states", d->n_states), &err);
        return 0;
    }
    for (size_t s = 0; s < d->n_states; s++) {
        entries[s] = ag_net_split(net, AG_NET_NOWHERE, d->accepts[s] ? next : AG_NET_NOWHERE);
    }
    for (size_t s = 0; s < d->n_states && net->status == AG_OK; s++) {
        uint32_t at = AG_NET_NOWHERE;
        for (size_t e = d->starts[s]; e < d->starts[s + 1]; e++) {
            const ag_text_edge *x = &d->edges[e];
            const uint32_t way = form == AG_FORM_JSON
                                     ? json_chars(net, x->lo, x->hi, entries[x->state])
                                     : ag_net_chars(net, x->lo, x->hi, entries[x->state]);
            at = ag_net_either(net, at, way);
        }
        ag_net_patch(net, entries[s], at);
    }
    const uint32_t first = entries[0];
    ag_free(entries);
    return first;
}

uint32_t ag_net_regex(ag_net *net, const char *regex, uint32_t next) {
    ag_text_dfa d;
    ag_error err;
    ag_net_fail(net, ag_text_dfa_regex(&d, regex, strlen(regex), false, &net->limits.text, &err),
                &err);
    const uint32_t at = ag_net_dfa(net, &d, AG_FORM_TEXT, next);
    ag_text_dfa_free(&d);
    return at;
}
