/* SPDX-License-Identifier: Apache-2.0 */
/* Table of filters, and the filters of single values. */
#include "jinja/builtins/filters.h"

#include "jinja/builtins/arguments.h"
#include "jinja/parse/template.h"
#include "jinja/value/list.h"
#include "jinja/value/number.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static ag_jv filter_abs(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    if (v.kind == AG_JUNDEFINED) return ag_jfail_undefined(c, v);
    if (v.kind == AG_JFLOAT) return ag_jfloat(fabs(v.as.number));
    if (!ag_jis_integer(v))
        return ag_jfail(c, "bad operand type for abs(): '%s'", ag_jtype_name(v));
    return ag_jinteger(v) < 0 ? ag_jnegate(c, v, true) : ag_jint(ag_jinteger(v));
}

static ag_jv filter_default(ag_jctx *c, ag_jv v, const ag_jv *a) {
    bool use_default = v.kind == AG_JUNDEFINED || (ag_jtruth(a[1]) && !ag_jtruth(v));
    if (!use_default) return v;
    return ag_jfailed(a[0]) ? ag_jstr_literal(c, "") : a[0];
}

static ag_jv filter_length(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    int64_t n = ag_jlength(v);
    if (n >= 0) return ag_jint(n);
    return ag_jfail(c, "object of type '%s' has no len()", ag_jtype_name(v));
}

ag_jv ag_jfilter_list(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    return ag_jlist_value(ag_jlist_of(c, v));
}

ag_jv ag_jfilter_safe(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    if (v.kind == AG_JSTRING && v.as.string->markup) return v;
    ag_jstr *s = ag_jstr_of(c, v);
    return ag_jstring(s ? ag_jstr_as_markup(c, s, true) : NULL);
}

ag_jstr *ag_jsoft_str(ag_jctx *c, ag_jv v) {
    return v.kind == AG_JSTRING ? v.as.string : ag_jstr_of(c, v);
}

ag_jv ag_jfilter_string(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    return ag_jstring(ag_jsoft_str(c, v));
}

ag_jv ag_jfilter_escape(ag_jctx *c, ag_jv v, const ag_jv *a) {
    (void)a;
    return ag_jstring(ag_jescape(c, v));
}

/* Finds the text without surrounding spaces, which int() and float() ignore. */
static void trimmed(const ag_jstr *s, const char **text, size_t *n) {
    *text = s->text;
    *n = s->len;
    while (*n && (unsigned char)**text <= ' ') (*text)++, (*n)--;
    while (*n && (unsigned char)(*text)[*n - 1] <= ' ') (*n)--;
}

static bool float_of(ag_jv v, double *out) {
    if (ag_jis_number(v)) return *out = ag_jnumber(v), true;
    if (v.kind != AG_JSTRING) return false;
    const char *text;
    size_t n;
    trimmed(v.as.string, &text, &n);
    return ag_jparse_float(text, n, out);
}

static bool all_digits(const char *s, size_t n) {
    if (n && (*s == '-' || *s == '+')) s++, n--;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9') return false;
    }
    return n > 0;
}

ag_jv ag_jfilter_int(ag_jctx *c, ag_jv v, const ag_jv *a) {
    ag_jv default_value = ag_jfailed(a[0]) ? ag_jint(0) : a[0];
    int64_t i, base = 10;
    if (v.kind == AG_JUNDEFINED) return ag_jfail_undefined(c, v);
    if (!ag_jfailed(a[1]) && ag_jis_integer(a[1])) base = ag_jinteger(a[1]);
    if (ag_jis_integer(v)) return ag_jint(ag_jinteger(v));
    if (v.kind == AG_JSTRING) {
        const char *text;
        size_t n;
        trimmed(v.as.string, &text, &n);
        bool base_ok = base == 0 || (base >= 2 && base <= 36);
        if (base_ok && ag_jparse_int(text, n, (int)base, &i)) return ag_jint(i);
        if (base == 10 && all_digits(text, n)) {
            return ag_jfail_as(c, AG_UNSUPPORTED, "an integer exceeds 64 bits");
        }
    }
    double d;
    if (!float_of(v, &d) || !isfinite(d)) return default_value;
    return ag_jint_of_double(c, d);
}

ag_jv ag_jfilter_float(ag_jctx *c, ag_jv v, const ag_jv *a) {
    double d;
    if (v.kind == AG_JUNDEFINED) return ag_jfail_undefined(c, v);
    if (float_of(v, &d)) return ag_jfloat(d);
    return ag_jfailed(a[0]) ? ag_jfloat(0) : a[0];
}

/* Scales v by 10 ** precision, rounds it up or down and scales it back. */
static ag_jv rounded_by(ag_jctx *c, ag_jv v, ag_jv precision, bool up) {
    ag_jv scale = ag_jbinary(c, AG_JOP_POW, ag_jint(10), precision);
    ag_jv scaled = ag_jfailed(scale) ? scale : ag_jbinary(c, AG_JOP_MUL, v, scale);
    if (ag_jfailed(scaled)) return scaled;
    ag_jv integral = scaled;
    if (scaled.kind == AG_JFLOAT) {
        integral = ag_jint_of_double(c, up ? ceil(scaled.as.number) : floor(scaled.as.number));
    }
    if (ag_jfailed(integral)) return integral;
    return ag_jbinary(c, AG_JOP_DIV, integral, scale);
}

static int64_t round_half_even(int64_t i, int64_t scale) {
    int64_t remainder = i % scale, down = i - remainder;
    int64_t twice = remainder < 0 ? -remainder : remainder, half = scale / 2;
    bool away = twice > half || (twice == half && scale % 2 == 0 && down / scale % 2 != 0);
    return away ? down + (remainder < 0 ? -scale : scale) : down;
}

ag_jv ag_jfilter_round(ag_jctx *c, ag_jv v, const ag_jv *a) {
    ag_jv precision = ag_jfailed(a[0]) ? ag_jint(0) : a[0];
    if (v.kind == AG_JUNDEFINED) return ag_jfail_undefined(c, v);
    bool common =
        ag_jfailed(a[1]) || (a[1].kind == AG_JSTRING && ag_jstr_is(a[1].as.string, "common"));
    bool up = !common && a[1].kind == AG_JSTRING && ag_jstr_is(a[1].as.string, "ceil");
    bool down = !common && a[1].kind == AG_JSTRING && ag_jstr_is(a[1].as.string, "floor");
    if (!common && !up && !down) return ag_jfail(c, "round: method must be common, ceil or floor");
    if (!ag_jis_number(v)) return ag_jfail(c, "round needs a number, not '%s'", ag_jtype_name(v));
    if (!common) return rounded_by(c, v, precision, up);
    if (precision.kind == AG_JNONE) {
        return v.kind == AG_JFLOAT ? ag_jint_of_double(c, nearbyint(v.as.number))
                                   : ag_jint(ag_jinteger(v));
    }
    if (!ag_jis_integer(precision)) return ag_jfail(c, "round: the precision must be an integer");
    int64_t digits = ag_jinteger(precision);
    if (v.kind == AG_JFLOAT) return ag_jfloat(ag_jround(v.as.number, digits));
    int64_t i = ag_jinteger(v), scale = 1;
    if (digits >= 0) return ag_jint(i);
    if (digits < -18) return ag_jint(0);
    for (; digits < 0; digits++) scale *= 10;
    return ag_jint(round_half_even(i, scale));
}

/* Sets the indent: a number of spaces, or a string. None: no indent. */
static bool json_indent(ag_jctx *c, ag_jv v, ag_jjson_style *style) {
    if (ag_jfailed(v) || v.kind == AG_JNONE) return true;
    if (v.kind == AG_JSTRING) return style->indent = v.as.string, true;
    if (!ag_jis_integer(v)) {
        ag_jfail(c, "tojson: indent must be an integer or a string, not '%s'", ag_jtype_name(v));
        return false;
    }
    ag_jstr space = {.text = " ", .len = 1, .n_chars = 1};
    ag_jbuf *b = ag_jbuf_create(c);
    int64_t n = ag_jinteger(v);
    if (!b || !ag_jbuf_append_repeated(c, b, &space, n > 0 ? (size_t)n : 0)) return false;
    style->indent = ag_jbuf_string(c, b);
    return style->indent != NULL;
}

static bool json_separators(ag_jctx *c, ag_jv v, ag_jjson_style *style) {
    if (ag_jfailed(v) || v.kind == AG_JNONE) return true;
    ag_jlist *l = ag_jlist_of(c, v);
    if (!l) return false;
    if (l->n != 2 || l->items[0].kind != AG_JSTRING || l->items[1].kind != AG_JSTRING) {
        ag_jfail(c, "tojson: separators must be two strings");
        return false;
    }
    style->item_separator = l->items[0].as.string;
    style->key_separator = l->items[1].as.string;
    return true;
}

ag_jv ag_jfilter_tojson(ag_jctx *c, ag_jv v, const ag_jv *a) {
    ag_jstr comma = {.text = ",", .len = 1}, comma_space = {.text = ", ", .len = 2};
    ag_jstr colon = {.text = ": ", .len = 2};
    ag_jjson_style style = {.ensure_ascii = ag_jtruth(a[0]), .sort_keys = ag_jtruth(a[3])};
    if (!json_indent(c, a[1], &style)) return ag_jfail_value();
    style.item_separator = style.indent ? &comma : &comma_space;
    style.key_separator = &colon;
    ag_jbuf *b = ag_jbuf_create(c);
    if (!b || !json_separators(c, a[2], &style) || !ag_jappend_json(c, b, v, &style)) {
        return ag_jfail_value();
    }
    return ag_jbuf_value(c, b);
}

static const struct filter {
    const char *name;
    ag_jfilter_fn *call;
    ag_jfilter_any_fn *call_any;
    const char *params;
    size_t min;
} filters[] = {
    {"abs", filter_abs, NULL, "", 0},
    {"batch", ag_jfilter_batch, NULL, "linecount fill_with", 1},
    {"capitalize", ag_jfilter_capitalize, NULL, "", 0},
    {"count", filter_length, NULL, "", 0},
    {"d", filter_default, NULL, "default_value boolean", 0},
    {"default", filter_default, NULL, "default_value boolean", 0},
    {"dictsort", ag_jfilter_dictsort, NULL, "case_sensitive by reverse", 0},
    {"e", ag_jfilter_escape, NULL, "", 0},
    {"escape", ag_jfilter_escape, NULL, "", 0},
    {"first", ag_jfilter_first, NULL, "", 0},
    {"float", ag_jfilter_float, NULL, "default", 0},
    {"format", NULL, ag_jfilter_format, NULL, 0},
    {"groupby", ag_jfilter_groupby, NULL, "attribute default case_sensitive", 1},
    {"indent", ag_jfilter_indent, NULL, "width first blank", 0},
    {"int", ag_jfilter_int, NULL, "default base", 0},
    {"items", ag_jfilter_items, NULL, "", 0},
    {"join", ag_jfilter_join, NULL, "d attribute", 0},
    {"last", ag_jfilter_last, NULL, "", 0},
    {"length", filter_length, NULL, "", 0},
    {"list", ag_jfilter_list, NULL, "", 0},
    {"lower", ag_jfilter_lower, NULL, "", 0},
    {"map", NULL, ag_jfilter_map, NULL, 0},
    {"max", ag_jfilter_max, NULL, "case_sensitive attribute", 0},
    {"min", ag_jfilter_min, NULL, "case_sensitive attribute", 0},
    {"reject", NULL, ag_jfilter_reject, NULL, 0},
    {"rejectattr", NULL, ag_jfilter_rejectattr, NULL, 0},
    {"replace", ag_jfilter_replace, NULL, "old new count", 2},
    {"reverse", ag_jfilter_reverse, NULL, "", 0},
    {"round", ag_jfilter_round, NULL, "precision method", 0},
    {"safe", ag_jfilter_safe, NULL, "", 0},
    {"select", NULL, ag_jfilter_select, NULL, 0},
    {"selectattr", NULL, ag_jfilter_selectattr, NULL, 0},
    {"slice", ag_jfilter_slice, NULL, "slices fill_with", 1},
    {"sort", ag_jfilter_sort, NULL, "reverse case_sensitive attribute", 0},
    {"string", ag_jfilter_string, NULL, "", 0},
    {"sum", ag_jfilter_sum, NULL, "attribute start", 0},
    {"title", ag_jfilter_title, NULL, "", 0},
    {"tojson", ag_jfilter_tojson, NULL, "ensure_ascii indent separators sort_keys", 0},
    {"trim", ag_jfilter_trim, NULL, "chars", 0},
    {"truncate", ag_jfilter_truncate, NULL, "length killwords end leeway", 0},
    {"unique", ag_jfilter_unique, NULL, "case_sensitive attribute", 0},
    {"upper", ag_jfilter_upper, NULL, "", 0},
    {"wordcount", ag_jfilter_wordcount, NULL, "", 0},
};

int ag_jfilter_find(const char *name, size_t len) {
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++) {
        if (strlen(filters[i].name) == len && !memcmp(filters[i].name, name, len)) return (int)i;
    }
    return -1;
}

ag_jv ag_jfilter_call(ag_jctx *c, int id, ag_jv value, const ag_jargs *args) {
    const struct filter *f = &filters[id];
    if (f->call_any) return f->call_any(c, value, args);
    ag_jv a[AG_JMAX_PARAMS];
    if (!ag_jbind(c, "filter", f->name, args, f->params, f->min, a)) return ag_jfail_value();
    return f->call(c, value, a);
}
