/* SPDX-License-Identifier: Apache-2.0 */
/* 'x %s' % args and the filter of it, 'x {}'.format(...). */
#include "chat/jinja_eval.h"
#include "chat/jinja_filters.h"
#include "chat/jinja_format.h"
#include "chat/jinja_list.h"
#include "chat/jinja_methods.h"
#include "chat/jinja_number.h"
#include "chat/jinja_ops.h"
#include "chat/jinja_string.h"
#include "text/utf8.h"

#include <math.h>
#include <string.h>

typedef struct percent {
    ag_jstr *s;
    size_t at;
    ag_jv args; /* a tuple, or one value */
    size_t next;
    bool by_name, escapes; /* of markup: what is put in is escaped */
    ag_jbuf *b;
} percent;

static ag_jv next_argument(ag_jctx *c, percent *p) {
    if (p->args.kind == AG_JTUPLE) {
        if (p->next < p->args.as.list->n) return ag_jlist_get(c, p->args.as.list, p->next++);
    } else if (p->next++ == 0) {
        return p->args;
    }
    return ag_jfail(c, "not enough arguments for format string");
}

static char peek_char(const percent *p) { return p->at < p->s->len ? p->s->text[p->at] : '\0'; }

/* %(name)s */
static ag_jv named_argument(ag_jctx *c, percent *p) {
    size_t begin = ++p->at, depth = 1;
    while (p->at < p->s->len && depth) {
        char ch = p->s->text[p->at++];
        depth += (ch == '(') - (ch == ')');
    }
    if (depth) return ag_jfail(c, "incomplete format key");
    if (p->args.kind != AG_JDICT) return ag_jfail(c, "format requires a mapping");
    ag_jv key = ag_jstring(ag_jstr_slice(c, p->s, begin, p->at - 1));
    if (ag_jfailed(key)) return key;
    ag_jv v = ag_jdict_find(c, p->args.as.dict, key);
    if (ag_jfailed(v)) return ag_jfail(c, "the format asks for a key that is not there");
    p->by_name = true;
    return v;
}

static bool percent_number(ag_jctx *c, percent *p, int64_t *out) {
    if (peek_char(p) == '*') {
        p->at++;
        ag_jv v = next_argument(c, p);
        if (ag_jfailed(v)) return false;
        if (!ag_jis_integer(v)) return ag_jfail(c, "* wants int"), false;
        *out = ag_jinteger(v);
    } else {
        *out = 0;
        while (peek_char(p) >= '0' && peek_char(p) <= '9' && *out < 10000000) {
            *out = *out * 10 + (p->s->text[p->at++] - '0');
        }
    }
    if (*out > 1000000 || *out < -1000000) {
        ag_jfail_as(c, AG_LIMIT, "a format of more than 1000000 characters");
        return false;
    }
    return true;
}

static ag_jstr *percent_text(ag_jctx *c, percent *p, ag_jv v, char type) {
    ag_jbuf *b = ag_jbuf_create(c);
    if (!b) return NULL;
    if (type == 's' ? !ag_jappend_str(c, b, v) : !ag_jappend_repr(c, b, v, type == 'a'))
        return NULL;
    ag_jstr *s = ag_jbuf_string(c, b);
    if (!p->escapes || !s) return s;
    bool safe = type == 's' && v.kind == AG_JSTRING && v.as.string->markup;
    ag_jstr *escaped = safe ? s : ag_jescape(c, ag_jstring(s));
    return escaped ? ag_jstr_as_markup(c, escaped, false) : NULL;
}

static bool percent_integer(ag_jctx *c, percent *p, ag_jv v, ag_jformat_spec *spec) {
    if (v.kind == AG_JFLOAT && strchr("diu", spec->type)) {
        v = ag_jint_of_double(c, v.as.number);
        if (ag_jfailed(v)) return false;
    }
    if (!ag_jis_integer(v)) {
        if (v.kind == AG_JUNDEFINED && strchr("diu", spec->type)) ag_jfail_undefined(c, v);
        else ag_jfail(c, "%%%c format: a number is required, not %s", spec->type, ag_jtype_name(v));
        return false;
    }
    if (strchr("iu", spec->type)) spec->type = 'd';
    if (spec->precision < 0) return ag_jappend_format(c, p->b, ag_jint(ag_jinteger(v)), spec);
    /* The precision is the least number of digits: zeros inside, then the width around. */
    ag_jformat_spec inner = {
        .width = spec->precision, .precision = -1, .zero = true, .type = spec->type};
    inner.sign = spec->sign;
    inner.alternate = spec->alternate;
    bool sign = ag_jinteger(v) < 0 || spec->sign == '+' || spec->sign == ' ';
    inner.width += sign + (spec->alternate && spec->type != 'd' ? 2 : 0);
    ag_jbuf *b = ag_jbuf_create(c);
    if (!b || !ag_jappend_format(c, b, ag_jint(ag_jinteger(v)), &inner)) return false;
    ag_jstr *s = ag_jbuf_string(c, b);
    return s && ag_jappend_padded(c, p->b, s, spec, '>', sign);
}

static bool percent_float(ag_jctx *c, percent *p, ag_jv v, ag_jformat_spec *spec) {
    if (v.kind == AG_JUNDEFINED) return ag_jfail_undefined(c, v), false;
    if (!ag_jis_number(v))
        return ag_jfail(c, "must be real number, not %s", ag_jtype_name(v)), false;
    return ag_jappend_format(c, p->b, v, spec);
}

static bool percent_char(ag_jctx *c, percent *p, ag_jv v, ag_jformat_spec *spec) {
    spec->zero = false;
    if (v.kind == AG_JSTRING && ag_jstr_chars(v.as.string) == 1) {
        return ag_jappend_padded(c, p->b, v.as.string, spec, '>', 0);
    }
    if (!ag_jis_integer(v)) return ag_jfail(c, "%%c requires int or char"), false;
    if (!spec->align) spec->align = '>';
    spec->type = 'c';
    return ag_jappend_format(c, p->b, v, spec);
}

static bool percent_value(ag_jctx *c, percent *p, ag_jv v, ag_jformat_spec *spec) {
    switch (spec->type) {
    case 's':
    case 'r':
    case 'a': {
        ag_jstr *s = percent_text(c, p, v, spec->type);
        if (s && spec->precision >= 0 && (size_t)spec->precision < ag_jstr_chars(s)) {
            s = ag_jstr_slice(c, s, 0, ag_jstr_offset(s, (size_t)spec->precision));
        }
        spec->zero = false;
        return s && ag_jappend_padded(c, p->b, s, spec, '>', 0);
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        return percent_integer(c, p, v, spec);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
        return percent_float(c, p, v, spec);
    case 'c':
        return percent_char(c, p, v, spec);
    default:
        ag_jfail(c, "unsupported format character '%c'", spec->type);
        return false;
    }
}

/* One conversion; at stands behind the percent sign. */
static bool convert_one(ag_jctx *c, percent *p) {
    ag_jformat_spec spec = {.width = -1, .precision = -1};
    ag_jv v = ag_jfail_value();
    if (peek_char(p) == '(') {
        v = named_argument(c, p);
        if (ag_jfailed(v)) return false;
    }
    bool left = false;
    if (peek_char(p) == '%') {
        p->at++;
        return ag_jbuf_append_text(c, p->b, "%");
    }
    for (;; p->at++) {
        char ch = peek_char(p);
        if (ch == '-') left = true;
        else if (ch == '+') spec.sign = '+';
        else if (ch == ' ') spec.sign = spec.sign ? spec.sign : ' ';
        else if (ch == '#') spec.alternate = true;
        else if (ch == '0') spec.zero = true;
        else break;
    }
    if (!percent_number(c, p, &spec.width)) return false;
    if (spec.width < 0) left = true, spec.width = -spec.width;
    if (peek_char(p) == '.') {
        p->at++;
        if (!percent_number(c, p, &spec.precision)) return false;
        if (spec.precision < 0) spec.precision = 0;
    }
    while (peek_char(p) && strchr("hlL", peek_char(p))) p->at++;
    if (p->at >= p->s->len) return ag_jfail(c, "incomplete format"), false;
    spec.type = p->s->text[p->at++];
    if (left) spec.align = '<', spec.zero = false;
    if (ag_jfailed(v)) v = next_argument(c, p);
    return !ag_jfailed(v) && percent_value(c, p, v, &spec);
}

ag_jv ag_jpercent_format(ag_jctx *c, ag_jstr *format, ag_jv args) {
    percent p = {.s = format, .args = args, .escapes = format->markup, .b = ag_jbuf_create(c)};
    if (!p.b || !ag_jwork_bytes(c, format->len)) return ag_jfail_value();
    while (p.at < format->len) {
        const char *next = memchr(format->text + p.at, '%', format->len - p.at);
        size_t end = next ? (size_t)(next - format->text) : format->len;
        if (!ag_jwork(c, 1) || !ag_jbuf_append_slice(c, p.b, format, p.at, end)) {
            return ag_jfail_value();
        }
        p.at = end + 1;
        if (next && !convert_one(c, &p)) return ag_jfail_value();
    }
    size_t n_args = args.kind == AG_JTUPLE ? args.as.list->n : 1;
    bool may_be_left = args.kind == AG_JDICT || args.kind == AG_JLIST || args.kind == AG_JRANGE ||
                       args.kind == AG_JUNDEFINED;
    if (p.next < n_args && !may_be_left && !p.by_name) {
        return ag_jfail(c, "not all arguments converted during string formatting");
    }
    ag_jstr *r = ag_jbuf_string(c, p.b);
    return ag_jstring(r ? ag_jstr_as_markup(c, r, format->markup) : NULL);
}

ag_jv ag_jfilter_format(ag_jctx *c, ag_jv v, const ag_jargs *args) {
    if (args->n && args->keywords) {
        return ag_jfail(c, "can't handle positional and keyword arguments at the same time");
    }
    ag_jstr *s = ag_jsoft_str(c, v);
    ag_jlist *l = s ? ag_jlist_create(c, args->n) : NULL;
    if (!l) return ag_jfail_value();
    if (args->keywords) {
        return ag_jpercent_format(c, s, ag_jdict_value(ag_jdict_copy(c, args->keywords)));
    }
    for (size_t i = 0; i < args->n; i++) l->items[l->n++] = args->items[i];
    return ag_jpercent_format(c, s, ag_jtuple_value(l));
}

typedef struct braces {
    ag_jstr *s;
    const ag_jargs *args;
    int64_t next; /* the automatic number; -1: numbers are given */
    uint32_t nested;
} braces;

static bool append_braces(ag_jctx *c, ag_jbuf *b, braces *f, size_t begin, size_t end);

static ag_jv first_field(ag_jctx *c, braces *f, ag_jstr *name) {
    int64_t i;
    if (!name->len) {
        if (f->next < 0) return ag_jfail(c, "cannot switch from manual to automatic numbering");
        i = f->next++;
    } else if (ag_jparse_int(name->text, name->len, 10, &i) && i >= 0) {
        if (f->next > 0) return ag_jfail(c, "cannot switch from automatic to manual numbering");
        f->next = -1;
    } else {
        ag_jv v = ag_jfail_value();
        if (f->args->keywords) v = ag_jdict_find(c, f->args->keywords, ag_jstring(name));
        if (!ag_jfailed(v)) return v;
        return ag_jfail(c, "format(): there is no argument '%.*s'", (int)name->len, name->text);
    }
    if ((size_t)i >= f->args->n)
        return ag_jfail(c, "format(): there is no argument number %d", (int)i);
    return f->args->items[i];
}

/* name.attribute[item] */
static ag_jv field_value(ag_jctx *c, braces *f, ag_jstr *name) {
    size_t at = 0;
    while (at < name->len && name->text[at] != '.' && name->text[at] != '[') at++;
    ag_jstr *first = ag_jstr_slice(c, name, 0, at);
    ag_jv v = first ? first_field(c, f, first) : ag_jfail_value();
    while (!ag_jfailed(v) && at < name->len) {
        bool is_item = name->text[at++] == '[';
        size_t begin = at;
        while (at < name->len &&
               (is_item ? name->text[at] != ']' : name->text[at] != '.' && name->text[at] != '['))
            at++;
        if (begin == at || (is_item && at == name->len))
            return ag_jfail(c, "format(): an empty or open field");
        ag_jstr *part = ag_jstr_slice(c, name, begin, at);
        at += is_item;
        int64_t i;
        if (!part) return ag_jfail_value();
        if (!is_item) v = ag_jattribute(c, v, part, ag_jmethod_find(part->text, part->len));
        else if (ag_jparse_int(part->text, part->len, 10, &i)) v = ag_jitem(c, v, ag_jint(i));
        else v = ag_jitem(c, v, ag_jstring(part));
    }
    return v;
}

static ag_jv converted(ag_jctx *c, ag_jv v, char conversion) {
    ag_jbuf *b = ag_jbuf_create(c);
    bool ok = b != NULL;
    if (ok && conversion == 's') ok = ag_jappend_str(c, b, v);
    else if (ok && (conversion == 'r' || conversion == 'a'))
        ok = ag_jappend_repr(c, b, v, conversion == 'a');
    else if (ok) return ag_jfail(c, "Unknown conversion specifier '%c'", conversion);
    return ok ? ag_jbuf_value(c, b) : ag_jfail_value();
}

static bool append_escaped(ag_jctx *c, ag_jbuf *b, ag_jv v, const ag_jformat_spec *spec) {
    ag_jbuf *inner = ag_jbuf_create(c);
    if (!inner || !ag_jappend_format(c, inner, v, spec)) return false;
    ag_jv text = ag_jbuf_value(c, inner);
    if (ag_jfailed(text)) return false;
    bool safe = v.kind == AG_JSTRING && v.as.string->markup;
    const ag_jstr *s = safe ? text.as.string : ag_jescape(c, text);
    return s && ag_jbuf_append(c, b, s);
}

/* s[begin..end) is what stands between the braces. */
static bool append_field(ag_jctx *c, ag_jbuf *b, braces *f, size_t begin, size_t end) {
    const char *text = f->s->text;
    size_t name = begin, bracket = 0;
    while (name < end && (bracket || (text[name] != '!' && text[name] != ':'))) {
        if (text[name] == '[') bracket = 1;
        if (text[name] == ']') bracket = 0;
        name++;
    }
    ag_jstr *field = ag_jstr_slice(c, f->s, begin, name);
    ag_jv v = field ? field_value(c, f, field) : ag_jfail_value();
    if (!ag_jfailed(v) && name < end && text[name] == '!') {
        if (name + 1 >= end || (name + 2 < end && text[name + 2] != ':')) {
            return ag_jfail(c, "format(): expected ':' after conversion specifier"), false;
        }
        v = converted(c, v, text[name + 1]);
        name += 2;
    }
    if (ag_jfailed(v)) return false;
    ag_jbuf *spec_text = ag_jbuf_create(c);
    if (!spec_text) return false;
    if (name < end) {
        if (f->nested >= 1 && memchr(text + name, '{', end - name))
            return ag_jfail(c, "Max string recursion exceeded"), false;
        f->nested++;
        bool ok = append_braces(c, spec_text, f, name + 1, end);
        f->nested--;
        if (!ok) return false;
    }
    ag_jformat_spec spec;
    const ag_jstr *s = ag_jbuf_string(c, spec_text);
    if (!s || !ag_jformat_parse(c, s, &spec)) return false;
    if (f->s->markup && !f->nested) return append_escaped(c, b, v, &spec);
    return ag_jappend_format(c, b, v, &spec);
}

static bool append_braces(ag_jctx *c, ag_jbuf *b, braces *f, size_t begin, size_t end) {
    const char *text = f->s->text;
    size_t at = begin;
    while (at < end) {
        size_t stop = at;
        while (stop < end && text[stop] != '{' && text[stop] != '}') stop++;
        if (!ag_jwork(c, 1) || !ag_jbuf_append_slice(c, b, f->s, at, stop)) return false;
        if (stop == end) return true;
        if (stop + 1 < end && text[stop + 1] == text[stop]) {
            if (!ag_jbuf_append_slice(c, b, f->s, stop, stop + 1)) return false;
            at = stop + 2;
            continue;
        }
        if (text[stop] == '}') return ag_jfail(c, "Single '}' encountered in format string"), false;
        size_t close = stop + 1, depth = 1;
        for (; close < end; close++) {
            depth += (text[close] == '{') - (text[close] == '}');
            if (!depth) break;
        }
        if (close >= end) return ag_jfail(c, "Single '{' encountered in format string"), false;
        if (!append_field(c, b, f, stop + 1, close)) return false;
        at = close + 1;
    }
    return true;
}

ag_jv ag_jformat_method(ag_jctx *c, ag_jstr *format, const ag_jargs *args) {
    braces f = {.s = format, .args = args};
    ag_jbuf *b = ag_jbuf_create(c);
    if (!b || !ag_jwork_bytes(c, format->len)) return ag_jfail_value();
    if (!append_braces(c, b, &f, 0, format->len)) return ag_jfail_value();
    ag_jstr *r = ag_jbuf_string(c, b);
    return ag_jstring(r ? ag_jstr_as_markup(c, r, format->markup) : NULL);
}
