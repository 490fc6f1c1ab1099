/* SPDX-License-Identifier: Apache-2.0 */
#include "constrain/grammar.h"

#include "constrain/interrupts.h"
#include "constrain/regex/tree.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "text/bytes.h"
#include "text/utf8.h"

#include <string.h>

enum { MAX_PARENTHESES = 100, MAX_COUNT = 100000, MAX_PARTS = 256 };

typedef struct rule {
    const char *name; /* [len] borrowed from the text */
    size_t len;
    uint32_t node;     /* UINT32_MAX: not defined yet */
    size_t line;       /* line of its first use */
    uint32_t id;       /* number in the PDA */
    bool is_anonymous; /* a token or a schema, which the PDA already has; without name and node */
} rule;

/* Uses the nodes of regular expressions. A CALL has the index of a rule in `set`. */
typedef struct grammar {
    ag_regex_tree tree;
    rule *rules;
    size_t n_rules, rules_cap;
    uint32_t *slots; /* rule + 1 by the hash of its name; 0: empty */
    size_t n_slots;  /* a power of two */
    const char *s;
    size_t n, at, line;
    int depth;
    ag_pda *pda;
    const ag_grammar_scope *scope;
    ag_trigger *trigger; /* NULL: none */
    ag_error *err;
} grammar;

static ag_status fail_line(grammar *g, const char *message) {
    return AG_FAIL(g->err, FORMAT, "grammar: line %zu: %s", g->line, message);
}

static ag_status new_node(grammar *g, ag_regex_node node, uint32_t *id) {
    const ag_status st = ag_regex_tree_add(&g->tree, node, id, g->err);
    return st == AG_LIMIT ? ag_error_prefix(g->err, st, "grammar") : st;
}

static ag_status add_class(grammar *g, ag_char_set **out, uint32_t *id) {
    AG_TRY(ag_regex_tree_add_set(&g->tree, out, g->err));
    const uint32_t set = (uint32_t)g->tree.n_sets - 1;
    return new_node(g, (ag_regex_node){.kind = AG_REGEX_SET, .set = set}, id);
}

/* ---- lexical elements ---- */

static char peek(const grammar *g) { return g->at < g->n ? g->s[g->at] : '\0'; }

/* Skips spaces and comments; line ends only if `lines`. */
static void skip_space(grammar *g, bool lines) {
    for (; g->at < g->n; g->at++) {
        const char c = g->s[g->at];
        if (c == '#') {
            while (g->at < g->n && g->s[g->at] != '\n') g->at++;
            g->at--;
        } else if (c == '\n' && lines) {
            g->line++;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            return;
        }
    }
}

static bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t rule_slot(const grammar *g, const char *name, size_t len) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < len; i++) h = (h ^ (uint8_t)name[i]) * 0x100000001B3u;
    size_t at = (h ^ h >> 32) & (g->n_slots - 1);
    for (; g->slots[at]; at = (at + 1) & (g->n_slots - 1)) {
        const rule *r = &g->rules[g->slots[at] - 1];
        if (r->len == len && !memcmp(r->name, name, len)) break;
    }
    return at;
}

static ag_status grow_rule_slots(grammar *g) {
    const size_t n = g->n_slots ? 2 * g->n_slots : 64;
    uint32_t *slots = ag_calloc(n, sizeof *slots);
    if (!slots) return AG_FAIL(g->err, NOMEM, "grammar of %zu rules", n);
    ag_free(g->slots);
    g->slots = slots;
    g->n_slots = n;
    for (uint32_t i = 0; i < g->n_rules; i++) {
        if (g->rules[i].is_anonymous) continue;
        g->slots[rule_slot(g, g->rules[i].name, g->rules[i].len)] = i + 1;
    }
    return AG_OK;
}

static ag_status read_rule_name(grammar *g, uint32_t *out) {
    const size_t start = g->at;
    while (is_name_char(peek(g))) g->at++;
    const size_t len = g->at - start;
    if (2 * (g->n_rules + 1) > g->n_slots) AG_TRY(grow_rule_slots(g));
    const size_t slot = rule_slot(g, g->s + start, len);
    if (g->slots[slot]) {
        *out = g->slots[slot] - 1;
        return AG_OK;
    }
    AG_TRY(AG_GROW(g->rules, &g->rules_cap, g->n_rules + 1, g->err));
    g->rules[g->n_rules] = (rule){.name = g->s + start,
                                  .len = len,
                                  .node = UINT32_MAX,
                                  .line = g->line,
                                  .id = ag_pda_rule_plain(g->pda, AG_PDA_UNSET)};
    *out = (uint32_t)g->n_rules++;
    g->slots[slot] = *out + 1;
    return AG_OK;
}

/* Reads a character, which may be escaped. */
static ag_status read_char(grammar *g, uint32_t *cp) {
    const char *message = ag_grammar_read_char(g->s, g->n, &g->at, cp);
    return message ? fail_line(g, message) : AG_OK;
}

/* ---- expressions ---- */

static ag_status read_alternatives(grammar *g, uint32_t *id);

static ag_status join(grammar *g, ag_regex_kind kind, bool *first, uint32_t right, uint32_t *id) {
    if (*first) {
        *first = false;
        *id = right;
        return AG_OK;
    }
    return new_node(g, (ag_regex_node){.kind = kind, .left = *id, .right = right}, id);
}

static ag_status read_literal(grammar *g, uint32_t *id) {
    bool first = true;
    AG_TRY(new_node(g, (ag_regex_node){.kind = AG_REGEX_EMPTY}, id));
    for (g->at++; peek(g) != '"';) {
        uint32_t cp, one = 0;
        ag_char_set *set;
        AG_TRY(read_char(g, &cp));
        AG_TRY(add_class(g, &set, &one));
        AG_TRY(ag_char_set_add(set, cp, cp, g->err));
        AG_TRY(join(g, AG_REGEX_CAT, &first, one, id));
    }
    g->at++;
    return AG_OK;
}

static ag_status read_class(grammar *g, uint32_t *id) {
    ag_char_set *set;
    AG_TRY(add_class(g, &set, id));
    g->at++;
    const bool negative = peek(g) == '^';
    g->at += negative;
    while (peek(g) != ']') {
        uint32_t lo, hi;
        AG_TRY(read_char(g, &lo));
        hi = lo;
        if (peek(g) == '-' && g->at + 1 < g->n && g->s[g->at + 1] != ']') {
            g->at++;
            AG_TRY(read_char(g, &hi));
        }
        if (hi < lo) return fail_line(g, "invalid character range: its end precedes its start");
        AG_TRY(ag_char_set_add(set, lo, hi, g->err));
    }
    g->at++;
    ag_char_set_sort(set);
    return negative ? ag_char_set_invert(set, g->err) : AG_OK;
}

static ag_status read_group(grammar *g, uint32_t *id) {
    g->at++;
    if (++g->depth > MAX_PARENTHESES) return fail_line(g, "parentheses are nested too deeply");
    AG_TRY(read_alternatives(g, id));
    g->depth--;
    skip_space(g, true);
    if (peek(g) != ')') return fail_line(g, "( without )");
    g->at++;
    return AG_OK;
}

/* Compiles a grammar that is a part of this one. Its rules have names of their own. Only one level
 * is allowed, so that there is no recursion. */
static ag_status compile_inner(grammar *g, const char *text, size_t n, uint32_t *start) {
    ag_grammar_scope scope = *g->scope;
    ag_trigger *trigger = NULL;
    if (scope.is_inner) return fail_line(g, "%grammar in a %grammar; only one level is allowed");
    scope.is_inner = true;
    ag_status st = ag_grammar_compile(g->pda, &scope, text, n, start, &trigger, g->err);
    if (st == AG_OK && trigger) st = fail_line(g, "%trigger in a %grammar; it belongs outside");
    ag_trigger_release(trigger);
    return st;
}

static bool accept_word(grammar *g, const char *word) {
    const size_t n = strlen(word);
    if (g->n - g->at < n || memcmp(g->s + g->at, word, n) != 0) return false;
    g->at += n;
    return true;
}

/* Reads %regex or %grammar and a JSON string. *found: there is one. */
static ag_status read_text(grammar *g, bool *found, uint32_t *start) {
    json_error_t e;
    const bool is_regex = accept_word(g, "%regex");
    *found = is_regex || accept_word(g, "%grammar");
    if (!*found) return AG_OK;
    const size_t flags = JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY | JSON_ALLOW_NUL;
    json_t *v = json_loadb(g->s + g->at, g->n - g->at, flags, &e);
    const char *text = json_string_value(v);
    ag_status st = text ? AG_OK : fail_line(g, "expected a JSON string after %regex or %grammar");
    if (!v && json_error_code(&e) == json_error_out_of_memory)
        st = AG_FAIL(g->err, NOMEM, "out of memory for a part of a grammar");
    if (text && is_regex) {
        st = ag_compile_regex(g->pda, text, json_string_length(v), start, g->err);
        if (st != AG_OK) ag_error_prefix(g->err, st, "grammar: line %zu", g->line);
    } else if (text) {
        st = compile_inner(g, text, json_string_length(v), start);
    }
    json_decref(v);
    if (st == AG_OK) g->at += (size_t)e.position;
    return st;
}

/* Reads a token, a schema or a text. It becomes a rule of its own, which is written at once. */
static ag_status read_anonymous(grammar *g, uint32_t *id) {
    uint32_t start;
    const size_t from = g->at;
    if (g->s[from] == '%' && ++g->pda->n_parts > MAX_PARTS) {
        return AG_FAIL(g->err, LIMIT, "grammar: too many parts with %%; the maximum is %d",
                       MAX_PARTS);
    }
    bool is_text;
    AG_TRY(read_text(g, &is_text, &start));
    if (!is_text) {
        const ag_status st = ag_grammar_atom(g->pda, g->scope, g->s, g->n, &g->at, &start, g->err);
        if (st != AG_OK) return ag_error_prefix(g->err, st, "grammar: line %zu", g->line);
    }
    for (size_t i = from; i < g->at; i++) g->line += g->s[i] == '\n';
    AG_TRY(AG_GROW(g->rules, &g->rules_cap, g->n_rules + 1, g->err));
    g->rules[g->n_rules] = (rule){.name = "",
                                  .node = UINT32_MAX,
                                  .line = g->line,
                                  .id = ag_pda_rule_plain(g->pda, start),
                                  .is_anonymous = true};
    return new_node(g, (ag_regex_node){.kind = AG_REGEX_CALL, .set = (uint32_t)g->n_rules++}, id);
}

static ag_status read_atom(grammar *g, bool *found, uint32_t *id) {
    *found = true;
    const char c = peek(g);
    if (c == '"') return read_literal(g, id);
    if (c == '[') return read_class(g, id);
    if (c == '(') return read_group(g, id);
    if (c == '<' || c == '%') return read_anonymous(g, id);
    if (c == '.') {
        ag_char_set *set;
        g->at++;
        AG_TRY(add_class(g, &set, id));
        return ag_char_set_add(set, 0, AG_CHAR_MAX, g->err);
    }
    if (is_name_char(c)) {
        uint32_t called;
        AG_TRY(read_rule_name(g, &called));
        return new_node(g, (ag_regex_node){.kind = AG_REGEX_CALL, .set = called}, id);
    }
    *found = false;
    return AG_OK;
}

static ag_status read_count(grammar *g, bool *found, uint32_t *out) {
    uint32_t n = 0;
    *found = false;
    for (; peek(g) >= '0' && peek(g) <= '9'; g->at++) {
        n = n * 10 + (uint32_t)(peek(g) - '0');
        *found = true;
        if (n > MAX_COUNT) return fail_line(g, "too many repetitions");
    }
    *out = n;
    return AG_OK;
}

/* Reads the counts after {. */
static ag_status read_counts(grammar *g, uint32_t *min, uint32_t *max) {
    bool low, high = true;
    skip_space(g, false);
    AG_TRY(read_count(g, &low, min));
    *max = *min;
    skip_space(g, false);
    if (peek(g) == ',') {
        g->at++;
        skip_space(g, false);
        AG_TRY(read_count(g, &high, max));
        skip_space(g, false);
        if (!high) *max = AG_REGEX_NO_END;
    }
    if ((!low && !high) || peek(g) != '}')
        return fail_line(g, "invalid repetition: { needs counts and }");
    g->at++;
    return *max < *min ? fail_line(g, "invalid repetition: the minimum exceeds the maximum")
                       : AG_OK;
}

static ag_status read_repeated(grammar *g, bool *found, uint32_t *id) {
    AG_TRY(read_atom(g, found, id));
    for (int n = 1; *found; n++) {
        const char c = peek(g);
        uint32_t min = c == '+', max = c == '?' ? 1 : AG_REGEX_NO_END;
        if (c != '*' && c != '+' && c != '?' && c != '{') return AG_OK;
        if (n > AG_REGEX_STACKED) return fail_line(g, "too many quantifiers on one element");
        g->at++;
        if (c == '{') AG_TRY(read_counts(g, &min, &max));
        AG_TRY(new_node(
            g, (ag_regex_node){.kind = AG_REGEX_REPEAT, .left = *id, .min = min, .max = max}, id));
    }
    return AG_OK;
}

static ag_status read_sequence(grammar *g, uint32_t *id) {
    bool first = true, found = true;
    AG_TRY(new_node(g, (ag_regex_node){.kind = AG_REGEX_EMPTY}, id));
    for (;;) {
        uint32_t one = 0;
        skip_space(g, g->depth > 0);
        AG_TRY(read_repeated(g, &found, &one));
        if (!found) return AG_OK;
        AG_TRY(join(g, AG_REGEX_CAT, &first, one, id));
    }
}

static ag_status read_alternatives(grammar *g, uint32_t *id) {
    bool first = true;
    for (;;) {
        uint32_t one = 0;
        skip_space(g, true); /* a line may end after ::= and | */
        AG_TRY(read_sequence(g, &one));
        AG_TRY(join(g, AG_REGEX_ALT, &first, one, id));
        skip_space(g, g->depth > 0);
        /* A line that starts with | continues the rule. */
        grammar ahead = *g;
        skip_space(&ahead, true);
        if (peek(&ahead) != '|') return AG_OK;
        g->at = ahead.at + 1;
        g->line = ahead.line;
    }
}

static ag_status read_rule(grammar *g) {
    uint32_t named, node;
    if (!is_name_char(peek(g))) return fail_line(g, "expected the name of a rule");
    AG_TRY(read_rule_name(g, &named));
    skip_space(g, false);
    if (g->n - g->at < 3 || memcmp(g->s + g->at, "::=", 3)) {
        return fail_line(g, "expected ::= after the name of a rule");
    }
    g->at += 3;
    if (g->rules[named].node != UINT32_MAX) {
        return AG_FAIL(g->err, FORMAT, "grammar: line %zu: rule %.*s is defined twice", g->line,
                       (int)(g->rules[named].len < 60 ? g->rules[named].len : 60),
                       g->rules[named].name);
    }
    AG_TRY(read_alternatives(g, &node));
    g->rules[named].node = node;
    if (g->at < g->n && peek(g) != '\n') return fail_line(g, "unexpected text after the rule");
    return AG_OK;
}

/* Reads %trigger and a JSON object. */
static ag_status read_trigger(grammar *g) {
    static const char word[] = "%trigger";
    const size_t len = sizeof word - 1;
    json_error_t e;
    if (g->trigger || g->n - g->at < len || memcmp(g->s + g->at, word, len) != 0) {
        return fail_line(g, "expected a rule, or the only %trigger");
    }
    const size_t from = g->at += len;
    json_t *v = json_loadb(g->s + from, g->n - from, JSON_DISABLE_EOF_CHECK, &e);
    if (!v) return fail_line(g, "expected JSON after %trigger");
    const ag_status st = ag_trigger_parse(g->scope, v, &g->trigger, g->err);
    json_decref(v);
    if (st != AG_OK) return ag_error_prefix(g->err, st, "grammar: line %zu", g->line);
    g->at += (size_t)e.position;
    for (size_t i = from; i < g->at; i++) g->line += g->s[i] == '\n';
    return AG_OK;
}

static ag_status read_rules(grammar *g) {
    const size_t valid = ag_utf8_valid_prefix(g->s, g->n);
    if (valid != g->n) return AG_FAIL(g->err, FORMAT, "grammar: invalid UTF-8 at byte %zu", valid);
    for (skip_space(g, true); g->at < g->n; skip_space(g, true)) {
        AG_TRY(peek(g) == '%' ? read_trigger(g) : read_rule(g));
    }
    for (size_t i = 0; i < g->n_rules; i++) {
        const rule *r = &g->rules[i];
        if (r->node != UINT32_MAX || r->is_anonymous) continue;
        return AG_FAIL(g->err, FORMAT, "grammar: line %zu: rule %.*s is not defined", r->line,
                       (int)(r->len < 60 ? r->len : 60), r->name);
    }
    return AG_OK;
}

/* ---- writing ---- */

static uint32_t write_node(grammar *g, uint32_t node, uint32_t next);

/* Counts one node. Repeating an empty text writes no instructions but takes time. */
static bool charge_node(grammar *g) {
    const size_t max = g->pda->limits.text.work;
    ag_error err;
    if (g->pda->status != AG_OK) return false;
    ag_pda_fail(g->pda, ag_compile_steps(1, &err), &err);
    if (g->pda->n_nodes++ < max) return g->pda->status == AG_OK;
    ag_pda_fail(g->pda,
                AG_FAIL(&err, LIMIT, "grammar: too large: more than %zu nodes to write", max),
                &err);
    return false;
}

static uint32_t write_set(grammar *g, const ag_char_set *set, uint32_t next) {
    uint32_t at = AG_PDA_FAIL;
    for (size_t i = 0; i < set->n; i++) {
        at = ag_pda_either(g->pda, at,
                           ag_pda_chars(g->pda, set->ranges[i].lo, set->ranges[i].hi, next));
    }
    return at;
}

static uint32_t write_repeat(grammar *g, const ag_regex_node *r, uint32_t next) {
    uint32_t at = next;
    if (r->max == AG_REGEX_NO_END) {
        at = ag_pda_split(g->pda, AG_PDA_UNSET, next);
        ag_pda_patch(g->pda, at, write_node(g, r->left, at));
    }
    for (uint32_t i = r->min; r->max != AG_REGEX_NO_END && i < r->max; i++) {
        if (g->pda->status != AG_OK) return at;
        at = ag_pda_either(g->pda, write_node(g, r->left, at), next);
    }
    for (uint32_t i = 0; i < r->min && g->pda->status == AG_OK; i++) {
        at = write_node(g, r->left, at);
    }
    return at;
}

static uint32_t write_node(grammar *g, uint32_t node, uint32_t next) {
    const ag_regex_node *nodes = g->tree.nodes, *r = &nodes[node];
    uint32_t start = AG_PDA_FAIL;
    if (!charge_node(g)) return next;
    switch (r->kind) {
    case AG_REGEX_SET:
        return write_set(g, &g->tree.sets[r->set], next);
    case AG_REGEX_CAT:
        for (; nodes[node].kind == AG_REGEX_CAT; node = nodes[node].left) {
            next = write_node(g, nodes[node].right, next);
        }
        return write_node(g, node, next);
    case AG_REGEX_ALT:
        for (; nodes[node].kind == AG_REGEX_ALT; node = nodes[node].left) {
            start = ag_pda_either(g->pda, write_node(g, nodes[node].right, next), start);
        }
        return ag_pda_either(g->pda, write_node(g, node, next), start);
    case AG_REGEX_REPEAT:
        return write_repeat(g, r, next);
    case AG_REGEX_CALL:
        return ag_pda_call(g->pda, g->rules[r->set].id, next);
    case AG_REGEX_EMPTY:
    case AG_REGEX_BEGIN:
    case AG_REGEX_END:
    case AG_REGEX_AHEAD:
        break;
    }
    return next;
}

ag_status ag_grammar_compile(ag_pda *pda, const ag_grammar_scope *scope, const char *text, size_t n,
                             uint32_t *start, ag_trigger **trigger, ag_error *err) {
    grammar g = {.s = text, .n = n, .line = 1, .pda = pda, .scope = scope, .err = err};
    *start = AG_PDA_FAIL;
    ag_status st = read_rules(&g);
    bool found = false;
    for (size_t i = 0; i < g.n_rules && st == AG_OK; i++) {
        const rule *r = &g.rules[i];
        if (r->is_anonymous) continue;
        ag_pda_rule_set_start(pda, r->id, write_node(&g, r->node, ag_pda_end(pda)));
        if (r->len != 4 || memcmp(r->name, "root", 4)) continue;
        found = true;
        *start = ag_pda_call(pda, r->id, ag_pda_end(pda));
    }
    if (st == AG_OK && !found) st = AG_FAIL(err, FORMAT, "grammar: rule root is not defined");
    *trigger = g.trigger;
    ag_regex_tree_free(&g.tree);
    ag_free(g.rules);
    ag_free(g.slots);
    return st;
}

ag_status ag_compile_regex(ag_pda *pda, const char *text, size_t n, uint32_t *start,
                           ag_error *err) {
    ag_text_dfa d;
    ag_status st = ag_text_dfa_regex(&d, text, n, false, &pda->limits.text, err);
    if (st != AG_OK) return ag_error_prefix(err, st, "regular expression");
    *start = ag_pda_dfa(pda, &d, AG_FORM_TEXT, ag_pda_end(pda));
    ag_text_dfa_free(&d);
    return AG_OK;
}
