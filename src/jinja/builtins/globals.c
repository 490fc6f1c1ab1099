/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/builtins/globals.h"
#include "core/fail.h"

#include "jinja/builtins/arguments.h"
#include "jinja/value/list.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MAX_RANGE = 100000 }; /* limit of Jinja's sandbox */

static bool range_argument(ag_jctx *c, ag_jv v, int64_t *out) {
    if (!ag_jis_integer(v)) {
        if (v.kind == AG_JUNDEFINED) ag_jfail_undefined(c, v);
        else ag_jfail(c, "range() needs integers, not '%s'", ag_jtype_name(v));
        return false;
    }
    *out = ag_jinteger(v);
    return true;
}

static ag_jv global_range(ag_jctx *c, const ag_jargs *args) {
    int64_t v[3] = {0, 0, 1};
    if (args->n < 1 || args->n > 3 || args->keywords) {
        return ag_jfail(c, "range() takes from 1 to 3 arguments");
    }
    for (size_t i = 0; i < args->n; i++) {
        if (!range_argument(c, args->items[i], &v[args->n == 1 ? 1 : i])) return ag_jfail_value();
    }
    if (v[2] == 0) return ag_jfail(c, "the step of range() must not be zero");
    ag_jrange *r = ag_jalloc(c, sizeof *r);
    if (!r) return ag_jfail_value();
    *r = (ag_jrange){v[0], v[1], v[2], 0};
    bool up = v[2] > 0;
    if (up ? v[0] < v[1] : v[0] > v[1]) {
        uint64_t distance = up ? (uint64_t)v[1] - (uint64_t)v[0] : (uint64_t)v[0] - (uint64_t)v[1];
        uint64_t step = up ? (uint64_t)v[2] : 0 - (uint64_t)v[2];
        uint64_t n = (distance - 1) / step + 1;
        if (n > MAX_RANGE)
            return ag_jfail_as(c, AG_LIMIT, "range() has %llu items: the sandbox allows %d",
                               (unsigned long long)n, MAX_RANGE);
        r->n = (size_t)n;
    }
    return (ag_jv){AG_JRANGE, {.range = r}};
}

static bool add_pair(ag_jctx *c, ag_jdict *d, ag_jv pair) {
    if (!ag_jis_iterable(pair)) {
        ag_jfail(c, "dict() needs pairs, not '%s'", ag_jtype_name(pair));
        return false;
    }
    ag_jlist *l = ag_jlist_of(c, pair);
    if (!l) return false;
    if (l->n != 2) return ag_jfail(c, "dict() needs pairs, not %zu items", l->n), false;
    return ag_jdict_set(c, d, l->items[0], l->items[1]);
}

/* Implements dict(), dict(mapping) and dict(pairs), each with further keyword arguments. */
static ag_jdict *make_dict(ag_jctx *c, const ag_jargs *args) {
    if (args->n > 1)
        return ag_jfail(c, "dict() takes at most 1 argument (%zu given)", args->n), NULL;
    ag_jdict *d = NULL;
    if (args->n && args->items[0].kind == AG_JDICT) {
        d = ag_jdict_copy(c, args->items[0].as.dict);
    } else {
        d = ag_jdict_create(c, 0);
        ag_jlist *l = args->n && d ? ag_jlist_of(c, args->items[0]) : NULL;
        if (args->n && !l) return NULL;
        for (size_t i = 0; l && i < l->n; i++) {
            if (!add_pair(c, d, l->items[i])) return NULL;
        }
    }
    const ag_jdict *k = args->keywords;
    for (size_t i = 0; d && k && i < k->n; i++) {
        if (!ag_jdict_set(c, d, k->entries[i].key, k->entries[i].value)) return NULL;
    }
    return d;
}

static ag_jv global_dict(ag_jctx *c, const ag_jargs *args) {
    return ag_jdict_value(make_dict(c, args));
}

static ag_jv global_namespace(ag_jctx *c, const ag_jargs *args) {
    ag_jdict *d = make_dict(c, args);
    return d ? (ag_jv){AG_JNAMESPACE, {.dict = d}} : ag_jfail_value();
}

static ag_jv global_raise(ag_jctx *c, const ag_jargs *args) {
    ag_jv message[AG_JMAX_PARAMS];
    if (!ag_jbind(c, "function", "raise_exception", args, "message", 1, message)) {
        return ag_jfail_value();
    }
    ag_jstr *s = ag_jstr_of(c, message[0]);
    if (!s) return ag_jfail_value();
    int n = s->len < 480 ? (int)s->len : 480;
    while (n > 0 && (size_t)n < s->len && ((unsigned char)s->text[n] & 0xC0) == 0x80) n--;
    c->status = ag_fail(c->err, AG_REFUSED, __FILE__, __LINE__, "%.*s", n, s->text);
    return ag_jfail_value();
}

/* Replaces the conversions that Python handles before it calls the C library: %f is zero, and a
 * time without zone has no %z and no %Z. */
static void python_format(const ag_jstr *format, char *out, size_t cap) {
    size_t n = 0;
    for (size_t i = 0; i < format->len && n + 8 < cap; i++) {
        out[n++] = format->text[i];
        if (format->text[i] != '%' || i + 1 == format->len) continue;
        char next = format->text[++i];
        if (next == 'f') n--, memcpy(out + n, "000000", 6), n += 6;
        else if (next == 'z' || next == 'Z') n--;
        else out[n++] = next;
    }
    out[n] = '\0';
}

static ag_jv format_time(ag_jctx *c, const ag_jstr *format, const struct tm *now) {
    char fmt[512], text[2048];
    python_format(format, fmt, sizeof fmt);
    locale_t english = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!english) return ag_jfail_as(c, AG_NOMEM, "locale \"C\"");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime_l(text, sizeof text, fmt, now, english);
#pragma GCC diagnostic pop
    freelocale(english);
    return ag_jstring(ag_jstr_copy(c, text, n));
}

static ag_jv global_strftime(ag_jctx *c, const ag_jargs *args) {
    ag_jv format[AG_JMAX_PARAMS];
    if (!ag_jbind(c, "function", "strftime_now", args, "format", 1, format)) {
        return ag_jfail_value();
    }
    if (format[0].kind != AG_JSTRING) return ag_jfail(c, "strftime_now() needs a string");
    struct tm now;
    if (c->in->now) {
        now = *c->in->now;
    } else {
        time_t seconds = time(NULL);
        if (!localtime_r(&seconds, &now))
            return ag_jfail(c, "strftime_now(): cannot get the local time");
    }
    return format_time(c, format[0].as.string, &now);
}

static const struct global {
    const char *name;
    ag_jv (*call)(ag_jctx *c, const ag_jargs *args);
} globals[] = {
    {"range", global_range},           {"dict", global_dict},
    {"namespace", global_namespace},   {"raise_exception", global_raise},
    {"strftime_now", global_strftime},
};

int ag_jglobal_find(const ag_jstr *name) {
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
        if (ag_jstr_is(name, globals[i].name)) return (int)i;
    }
    return -1;
}

ag_jv ag_jglobal_call(ag_jctx *c, int id, const ag_jargs *args) {
    return globals[id].call(c, args);
}
