/* SPDX-License-Identifier: Apache-2.0 */
/* striptags, wordwrap, pprint: what no chat template is known to use. */
#include "chat/jinja_eval.h"
#include "chat/jinja_filters.h"
#include "chat/jinja_list.h"
#include "chat/jinja_methods.h"
#include "chat/jinja_number.h"
#include "chat/jinja_ops.h"
#include "chat/jinja_string.h"
#include "chat/jinja_unicode.h"
#include "text/utf8.h"

#include <string.h>

/* Where a tag or a comment at `at` ends; 0: it does not. */
static size_t tag_end_at(const ag_jstr *s, size_t at) {
    ag_jstr close = {.text = ">", .len = 1}, comment_end = {.text = "-->", .len = 3};
    bool is_comment = s->len - at >= 4 && !memcmp(s->text + at, "<!--", 4);
    const ag_jstr *what = is_comment ? &comment_end : &close;
    int64_t end = ag_jstr_find(s, at + (is_comment ? 4 : 0), s->len, what);
    return end == AG_JNOT_FOUND ? 0 : (size_t)end + what->len;
}

static ag_jstr *without_tags(ag_jctx *c, ag_jstr *s) {
    ag_jbuf *b = ag_jbuf_create(c);
    size_t at = 0;
    while (b && at < s->len) {
        const char *open = memchr(s->text + at, '<', s->len - at);
        size_t begin = open ? (size_t)(open - s->text) : s->len;
        size_t end = open ? tag_end_at(s, begin) : s->len;
        if (!end) begin = end = s->len;
        if (!ag_jwork(c, 1) || !ag_jbuf_append_slice(c, b, s, at, begin)) return NULL;
        at = end;
    }
    return b ? ag_jbuf_string(c, b) : NULL;
}

static const struct named_entity {
    const char *name;
    uint32_t cp;
} named_entities[] = {
    {"amp;", '&'},      {"lt;", '<'},       {"gt;", '>'},       {"quot;", '"'},
    {"apos;", '\''},    {"nbsp;", 0xA0},    {"copy;", 0xA9},    {"reg;", 0xAE},
    {"raquo;", 0xBB},   {"laquo;", 0xAB},   {"middot;", 0xB7},  {"times;", 0xD7},
    {"ndash;", 0x2013}, {"mdash;", 0x2014}, {"lsquo;", 0x2018}, {"rsquo;", 0x2019},
    {"ldquo;", 0x201C}, {"rdquo;", 0x201D}, {"bull;", 0x2022},  {"hellip;", 0x2026},
    {"euro;", 0x20AC},  {"trade;", 0x2122}, {"larr;", 0x2190},  {"rarr;", 0x2192},
    {"amp", '&'},       {"lt", '<'},        {"gt", '>'},        {"quot", '"'}};

/* The entity behind an & at s; returns its length, 0: none that is known. */
static size_t entity_at(const char *s, size_t n, uint32_t *cp) {
    if (n > 1 && s[0] == '#') {
        bool hex = s[1] == 'x' || s[1] == 'X';
        size_t begin = hex ? 2 : 1, end = begin;
        const char *digits = hex ? "0123456789abcdefABCDEF" : "0123456789";
        while (end < n && s[end] && strchr(digits, s[end])) end++;
        int64_t v;
        if (end == begin) return 0;
        if (!ag_jparse_int(s + begin, end - begin, hex ? 16 : 10, &v)) v = 0xFFFD;
        bool bad = v == 0 || v > 0x10FFFF || (v >= 0xD800 && v < 0xE000);
        *cp = bad ? 0xFFFD : (uint32_t)v;
        return end + (end < n && s[end] == ';');
    }
    for (size_t i = 0; i < sizeof named_entities / sizeof *named_entities; i++) {
        size_t len = strlen(named_entities[i].name);
        if (len > n || memcmp(s, named_entities[i].name, len) != 0) continue;
        *cp = named_entities[i].cp;
        return len;
    }
    return 0;
}

static ag_jstr *unescaped(ag_jctx *c, ag_jstr *s) {
    ag_jbuf *b = ag_jbuf_create(c);
    size_t done = 0;
    for (size_t i = 0; b && i < s->len; i++) {
        uint32_t cp;
        size_t n = s->text[i] == '&' ? entity_at(s->text + i + 1, s->len - i - 1, &cp) : 0;
        if (!n) continue;
        if (!ag_jwork(c, 1) || !ag_jbuf_append_slice(c, b, s, done, i) ||
            !ag_jbuf_append_char(c, b, cp, ag_jstr_is_conversation(s, i))) {
            return NULL;
        }
        done = i + 1 + n;
        i += n;
    }
    return b && ag_jbuf_append_slice(c, b, s, done, s->len) ? ag_jbuf_string(c, b) : NULL;
}

ag_jv ag_jfilter_striptags(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    ag_jstr space = {.text = " ", .len = 1, .n_chars = 1};
    ag_jstr *s = ag_jstr_of(c, v);
    s = s ? without_tags(c, s) : NULL;
    ag_jlist *words = s ? ag_jstr_words(c, s) : NULL;
    s = words ? ag_jstr_joined(c, &space, words) : NULL;
    return ag_jstring(s ? unescaped(c, s) : NULL);
}

/* A line of text in pieces as Python's textwrap cuts it: words, spaces, parts of hyphenated words.
 */
typedef struct wrapping {
    ag_jstr *line;
    int64_t width;
    bool break_long, break_hyphens;
    ag_jlist *pieces, *out;
} wrapping;

static uint32_t char_at(const ag_jstr *s, size_t at) {
    uint32_t cp = ' ';
    if (at < s->len) ag_utf8_get(s->text + at, &cp);
    return cp;
}

static bool is_blank(uint32_t cp) { return cp == ' ' || (cp >= 9 && cp <= 13); }
static bool is_letter(uint32_t cp) { return ag_jchar_is_word(cp) && !ag_jchar_is_decimal(cp); }

/* Behind a hyphen between two letters on the left and one on the right a word may be broken. */
static bool breaks_behind(const ag_jstr *s, size_t begin, size_t at) {
    if (s->text[at] != '-' || at + 1 >= s->len) return false;
    size_t before = at > begin ? ag_utf8_last(s->text, at) : at;
    if (before == at || !is_letter(char_at(s, before)) || before == begin) return false;
    size_t further = ag_utf8_last(s->text, before);
    if (!is_letter(char_at(s, further)) || !is_letter(char_at(s, at + 1))) return false;
    size_t next = at + 1 + ag_utf8_len(s->text[at + 1]);
    return is_letter(char_at(s, next)) || (next < s->len && s->text[next] == '-');
}

static bool cut_pieces(ag_jctx *c, wrapping *w) {
    ag_jstr *s = w->line;
    for (size_t at = 0; at < s->len;) {
        size_t begin = at;
        bool blank = is_blank(char_at(s, at));
        while (at < s->len && is_blank(char_at(s, at)) == blank) {
            size_t here = at;
            at += ag_utf8_len(s->text[at]);
            if (!blank && w->break_hyphens && breaks_behind(s, begin, here)) break;
        }
        if (!ag_jwork(c, 1) ||
            !ag_jlist_push(c, w->pieces, ag_jstring(ag_jstr_slice(c, s, begin, at)))) {
            return false;
        }
    }
    return true;
}

static bool is_blank_piece(const ag_jstr *s) { return s->len && is_blank(char_at(s, 0)); }

/* A piece longer than a line: as much of it as fits (one character at least), or all of it. */
static bool long_piece(ag_jctx *c, wrapping *w, size_t i, int64_t used, ag_jbuf *b, bool *moved) {
    ag_jstr *piece = w->pieces->items[i].as.string;
    int64_t left = w->width < 1 ? 1 : w->width - used;
    *moved = false;
    if (w->break_long) {
        size_t end = ag_jstr_offset(piece, (size_t)left);
        if (!ag_jbuf_append_slice(c, b, piece, 0, end)) return false;
        w->pieces->items[i] = ag_jstring(ag_jstr_slice(c, piece, end, piece->len));
        return !ag_jfailed(w->pieces->items[i]);
    }
    if (used) return true;
    *moved = true;
    return ag_jbuf_append(c, b, piece);
}

static bool wrap_line(ag_jctx *c, wrapping *w) {
    size_t i = 0;
    while (i < w->pieces->n) {
        ag_jbuf *b = ag_jbuf_create(c);
        if (!b) return false;
        if (w->out->n && is_blank_piece(w->pieces->items[i].as.string)) i++;
        int64_t used = 0;
        size_t solid = 0; /* length up to the last piece that is not blank */
        for (; i < w->pieces->n; i++) {
            ag_jstr *piece = w->pieces->items[i].as.string;
            int64_t n = (int64_t)ag_jstr_chars(piece);
            if (used + n > w->width) break;
            if (!ag_jwork(c, 1) || !ag_jbuf_append(c, b, piece)) return false;
            if (!is_blank_piece(piece)) solid = b->len;
            used += n;
        }
        if (i < w->pieces->n && (int64_t)ag_jstr_chars(w->pieces->items[i].as.string) > w->width) {
            bool moved;
            if (!long_piece(c, w, i, used, b, &moved)) return false;
            if (moved) i++;
            if (moved || w->break_long) solid = b->len;
        }
        ag_jstr *text = ag_jbuf_string(c, b);
        text = text ? ag_jstr_slice(c, text, 0, solid) : NULL;
        if (!text || (text->len && !ag_jlist_push(c, w->out, ag_jstring(text)))) return false;
        if (!ag_jwork(c, 1)) return false;
    }
    return true;
}

ag_jv ag_jfilter_wordwrap(ag_jctx *c, ag_jv v, const ag_jv *a) {
    ag_jstr newline = {.text = "\n", .len = 1, .n_chars = 1};
    wrapping w = {.break_long = ag_jfailed(a[1]) || ag_jtruth(a[1]),
                  .break_hyphens = ag_jfailed(a[3]) || ag_jtruth(a[3])};
    if (v.kind == AG_JUNDEFINED) return ag_jfail_undefined(c, v);
    if (v.kind != AG_JSTRING)
        return ag_jfail(c, "wordwrap needs a string, not '%s'", ag_jtype_name(v));
    if (!v.as.string->len) return v;
    if (!ag_jargument_int(c, a[0], 79, &w.width)) return ag_jfail_value();
    bool has_separator = !ag_jfailed(a[2]) && a[2].kind != AG_JNONE;
    if (has_separator && a[2].kind != AG_JSTRING)
        return ag_jfail(c, "wordwrap: wrapstring is no string");
    const ag_jstr *separator = has_separator ? a[2].as.string : &newline;
    ag_jlist *lines = ag_jstr_lines(c, v.as.string, false),
             *texts = lines ? ag_jlist_create(c, lines->n) : NULL;
    if (!texts) return ag_jfail_value();
    if (lines->n && w.width <= 0) return ag_jfail(c, "wordwrap: the width must be positive");
    for (size_t i = 0; i < lines->n; i++) {
        w.line = lines->items[i].as.string;
        w.pieces = ag_jlist_create(c, 0);
        w.out = ag_jlist_create(c, 0);
        if (!w.pieces || !w.out || !cut_pieces(c, &w) || !wrap_line(c, &w)) return ag_jfail_value();
        if (!ag_jlist_push(c, texts, ag_jstring(ag_jstr_joined(c, separator, w.out)))) {
            return ag_jfail_value();
        }
    }
    return ag_jstring(ag_jstr_joined(c, separator, texts));
}

/* On one line, as Python prints what fits into 80 columns; dicts are sorted by their keys. */
static ag_jv sorted_dicts(ag_jctx *c, ag_jv v) {
    if (ag_jfailed(v) || !ag_jenter(c)) return ag_jfail_value();
    ag_jv r = v;
    if (ag_jis_sequence(v)) {
        ag_jlist *l = ag_jlist_create(c, v.as.list->n);
        for (size_t i = 0; l && i < v.as.list->n; i++) {
            if (!ag_jlist_push(c, l, sorted_dicts(c, ag_jlist_get(c, v.as.list, i)))) l = NULL;
        }
        r = v.kind == AG_JLIST ? ag_jlist_value(l) : ag_jtuple_value(l);
    } else if (v.kind == AG_JDICT) {
        const ag_jv none[AG_JMAX_PARAMS] = {ag_jbool(true)};
        ag_jv pairs = ag_jfilter_dictsort(c, v, none);
        ag_jdict *d = ag_jfailed(pairs) ? NULL : ag_jdict_create(c, v.as.dict->n);
        for (size_t i = 0; d && i < pairs.as.list->n; i++) {
            const ag_jlist *pair = pairs.as.list->items[i].as.list;
            if (!ag_jdict_set(c, d, pair->items[0], sorted_dicts(c, pair->items[1]))) d = NULL;
        }
        r = ag_jdict_value(d);
    }
    ag_jleave(c);
    return r;
}

ag_jv ag_jfilter_pprint(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    ag_jbuf *b = ag_jbuf_create(c);
    ag_jv sorted = b ? sorted_dicts(c, v) : ag_jfail_value();
    if (ag_jfailed(sorted) || !ag_jappend_repr(c, b, sorted, false)) return ag_jfail_value();
    ag_jstr *s = ag_jbuf_string(c, b);
    if (!s) return ag_jfail_value();
    if (ag_jstr_chars(s) > 80) return ag_jfail_as(c, AG_UNSUPPORTED, "pprint over several lines");
    return ag_jstring(s);
}
