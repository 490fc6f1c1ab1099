/* SPDX-License-Identifier: Apache-2.0 */
/* str(), repr() and HTML escapes. */
#include "jinja/eval.h"
#include "jinja/value/list.h"
#include "jinja/value/number.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"
#include "jinja/value/unicode.h"
#include "text/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Keeps local buffers out of recursive functions, which then need less stack. */
#define LEAF __attribute__((noinline))

/* Writes the escape of cp in a repr() quoted by `quote`. Returns its length, 0 if cp needs none. */
static size_t escaped_char(uint32_t cp, char quote, char out[12]) {
    if (cp == '\\' || cp == (unsigned char)quote) {
        out[0] = '\\';
        out[1] = (char)cp;
        return 2;
    }
    if (cp == '\n' || cp == '\r' || cp == '\t') {
        out[0] = '\\';
        out[1] = cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't';
        return 2;
    }
    if (cp < 0x80 ? cp >= 0x20 && cp < 0x7F : ag_jchar_is_printable(cp)) return 0;
    return (size_t)snprintf(out, 12,
                            cp < 0x100     ? "\\x%02" PRIx32
                            : cp < 0x10000 ? "\\u%04" PRIx32
                                           : "\\U%08" PRIx32,
                            cp);
}

static LEAF bool append_repr_string(ag_jctx *c, ag_jbuf *b, const ag_jstr *s) {
    char quote =
        s->len && memchr(s->text, '\'', s->len) && !memchr(s->text, '"', s->len) ? '"' : '\'';
    if (s->markup && !ag_jbuf_append_text(c, b, "Markup(")) return false;
    if (!ag_jbuf_append_bytes(c, b, &quote, 1, false)) return false;
    size_t done = 0, n_escapes = 0;
    for (size_t at = 0; at < s->len;) {
        uint32_t cp;
        char text[12];
        size_t n = ag_utf8_get(s->text + at, &cp), len = escaped_char(cp, quote, text);
        if (len) {
            if (!ag_jwork_eighth(c, &n_escapes) || !ag_jbuf_append_slice(c, b, s, done, at) ||
                !ag_jbuf_append_bytes(c, b, text, len, ag_jstr_is_input(s, at))) {
                return false;
            }
            done = at + n;
        }
        at += n;
    }
    return ag_jbuf_append_slice(c, b, s, done, s->len) &&
           ag_jbuf_append_bytes(c, b, &quote, 1, false) &&
           (!s->markup || ag_jbuf_append_text(c, b, ")"));
}

static bool append_list(ag_jctx *c, ag_jbuf *b, const ag_jlist *l, const char *brackets) {
    if (!ag_jbuf_append_bytes(c, b, brackets, 1, false)) return false;
    for (size_t i = 0; i < l->n; i++) {
        ag_jregion r;
        ag_jregion_begin(c, &r);
        if (i && !ag_jbuf_append_text(c, b, ", ")) return false;
        if (!ag_jappend_repr(c, b, ag_jlist_get(c, l, i))) return false;
        ag_jregion_end(c, &r);
    }
    if (brackets[0] == '(' && l->n == 1 && !ag_jbuf_append_text(c, b, ",")) return false;
    return ag_jbuf_append_bytes(c, b, brackets + 1, 1, false);
}

static bool append_dict(ag_jctx *c, ag_jbuf *b, ag_jdict *d) {
    const ag_jentry *entries = ag_jdict_entries(c, d);
    if (c->status != AG_OK || !ag_jbuf_append_text(c, b, "{")) return false;
    for (size_t i = 0; i < d->n; i++) {
        ag_jregion r;
        ag_jregion_begin(c, &r);
        if (i && !ag_jbuf_append_text(c, b, ", ")) return false;
        if (!ag_jappend_repr(c, b, entries[i].key) || !ag_jbuf_append_text(c, b, ": ") ||
            !ag_jappend_repr(c, b, entries[i].value)) {
            return false;
        }
        ag_jregion_end(c, &r);
    }
    return ag_jbuf_append_text(c, b, "}");
}

static bool append_view(ag_jctx *c, ag_jbuf *b, ag_jv v) {
    ag_jlist *l = ag_jlist_of(c, v);
    return l && ag_jbuf_append_text(c, b, ag_jtype_name(v)) && ag_jbuf_append_text(c, b, "(") &&
           append_list(c, b, l, "[]") && ag_jbuf_append_text(c, b, ")");
}

static LEAF bool append_range(ag_jctx *c, ag_jbuf *b, const ag_jrange *r) {
    char text[100];
    int n = snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, r->start, r->stop);
    if (r->step != 1) n += snprintf(text + n, sizeof text - (size_t)n, ", %" PRId64, r->step);
    text[n++] = ')';
    return ag_jbuf_append_bytes(c, b, text, (size_t)n, false);
}

/* Appends an object without the address that Python would print. */
static LEAF bool append_object(ag_jctx *c, ag_jbuf *b, ag_jv v) {
    char text[100];
    if (v.kind == AG_JMACRO && v.as.macro->def->name) {
        const ag_jstr *name = v.as.macro->def->name;
        return ag_jbuf_append_text(c, b, "<Macro '") && ag_jbuf_append(c, b, name) &&
               ag_jbuf_append_text(c, b, "'>");
    }
    if (v.kind == AG_JMACRO) return ag_jbuf_append_text(c, b, "<Macro anonymous>");
    snprintf(text, sizeof text, "<%s object>", ag_jtype_name(v));
    return ag_jbuf_append_text(c, b, text);
}

static LEAF bool append_scalar(ag_jctx *c, ag_jbuf *b, ag_jv v) {
    char text[AG_JFLOAT_BYTES];
    switch (v.kind) {
    case AG_JNONE:
        return ag_jbuf_append_text(c, b, "None");
    case AG_JBOOL:
        return ag_jbuf_append_text(c, b, v.as.boolean ? "True" : "False");
    case AG_JINT:
        snprintf(text, sizeof text, "%" PRId64, v.as.integer);
        return ag_jbuf_append_text(c, b, text);
    default:
        return ag_jbuf_append_bytes(c, b, text, ag_jfloat_repr(v.as.number, text), false);
    }
}

static bool append_within(ag_jctx *c, ag_jbuf *b, ag_jv v) {
    switch (v.kind) {
    case AG_JFAIL:
        return false;
    case AG_JUNDEFINED:
        return ag_jbuf_append_text(c, b, "Undefined");
    case AG_JNONE:
    case AG_JBOOL:
    case AG_JINT:
    case AG_JFLOAT:
        return append_scalar(c, b, v);
    case AG_JSTRING:
        return append_repr_string(c, b, v.as.string);
    case AG_JLIST:
        return append_list(c, b, v.as.list, "[]");
    case AG_JTUPLE:
        return append_list(c, b, v.as.list, "()");
    case AG_JDICT:
        return append_dict(c, b, v.as.dict);
    case AG_JRANGE:
        return append_range(c, b, v.as.range);
    case AG_JVIEW:
        return append_view(c, b, v);
    case AG_JNAMESPACE:
        return ag_jbuf_append_text(c, b, "<Namespace ") && append_dict(c, b, v.as.dict) &&
               ag_jbuf_append_text(c, b, ">");
    default:
        return append_object(c, b, v);
    }
}

bool ag_jappend_repr(ag_jctx *c, ag_jbuf *b, ag_jv v) {
    if (!ag_jenter(c)) return false;
    bool ok = append_within(c, b, v);
    ag_jleave(c);
    return ok;
}

bool ag_jappend_str(ag_jctx *c, ag_jbuf *b, ag_jv v) {
    if (v.kind == AG_JSTRING) return ag_jbuf_append(c, b, v.as.string);
    if (v.kind == AG_JUNDEFINED) return true;
    return ag_jappend_repr(c, b, v);
}

ag_jstr *ag_jstr_of(ag_jctx *c, ag_jv v) {
    if (v.kind == AG_JSTRING) return ag_jstr_as_markup(c, v.as.string, false);
    ag_jbuf *b = ag_jbuf_create(c);
    return b && ag_jappend_str(c, b, v) ? ag_jbuf_string(c, b) : NULL;
}

static const char *entity(char ch) {
    switch (ch) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '\'':
        return "&#39;";
    case '"':
        return "&#34;";
    default:
        return NULL;
    }
}

ag_jstr *ag_jescape(ag_jctx *c, ag_jv v) {
    if (v.kind == AG_JSTRING && v.as.string->markup) return v.as.string;
    ag_jstr *s = ag_jstr_of(c, v);
    ag_jbuf *b = s ? ag_jbuf_create(c) : NULL;
    if (!b) return NULL;
    size_t done = 0, n_entities = 0;
    for (size_t i = 0; i < s->len; i++) {
        const char *e = entity(s->text[i]);
        if (!e) continue;
        if (!ag_jwork_eighth(c, &n_entities) || !ag_jbuf_append_slice(c, b, s, done, i) ||
            !ag_jbuf_append_bytes(c, b, e, strlen(e), ag_jstr_is_input(s, i))) {
            return NULL;
        }
        done = i + 1;
    }
    if (!ag_jbuf_append_slice(c, b, s, done, s->len)) return NULL;
    ag_jstr *r = ag_jbuf_string(c, b);
    return r ? ag_jstr_as_markup(c, r, true) : NULL;
}
