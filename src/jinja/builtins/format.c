/* SPDX-License-Identifier: Apache-2.0 */
/* Formats strings: 'x %s' % args, the filter `format` and 'x {}'.format(args). */
#include "jinja/builtins/filters.h"
#include "jinja/value/list.h"
#include "jinja/value/number.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"
#include "text/utf8.h"

#include <string.h>

/* Appends str(v), escaped if the format string is markup. */
static bool append_text(ag_jctx *c, ag_jbuf *b, const ag_jstr *format, ag_jv v) {
    if (!format->markup) return ag_jappend_str(c, b, v);
    const ag_jstr *s = ag_jescape(c, v);
    return s && ag_jbuf_append(c, b, s);
}

/* Appends v as %d does. */
static bool append_integer(ag_jctx *c, ag_jbuf *b, ag_jv v) {
    if (v.kind == AG_JUNDEFINED) return ag_jfail_undefined(c, v), false;
    if (v.kind == AG_JFLOAT) v = ag_jint_of_double(c, v.as.number);
    if (ag_jfailed(v)) return false;
    if (!ag_jis_integer(v)) {
        ag_jfail(c, "%%d format: a real number is required, not %s", ag_jtype_name(v));
        return false;
    }
    return ag_jappend_str(c, b, ag_jint(ag_jinteger(v)));
}

/* Appends the conversion whose type is format[at]. args is a tuple or the only argument; *next
 * counts the used arguments. */
static bool append_conversion(ag_jctx *c, ag_jbuf *b, const ag_jstr *format, size_t at, ag_jv args,
                              size_t *next) {
    if (at == format->len) return ag_jfail(c, "incomplete format"), false;
    const char type = format->text[at];
    if (type == '%') return ag_jbuf_append_text(c, b, "%");
    if (type != 's' && type != 'd') {
        ag_jfail_as(c, AG_UNSUPPORTED,
                    "percent formatting: '%%%.*s' is not supported, only %%s, %%d and %%%%",
                    (int)ag_utf8_len(type), format->text + at);
        return false;
    }
    const bool is_tuple = args.kind == AG_JTUPLE;
    if (*next >= (is_tuple ? args.as.list->n : 1)) {
        return ag_jfail(c, "not enough arguments for format string"), false;
    }
    ag_jv v = is_tuple ? ag_jlist_get(c, args.as.list, *next) : args;
    ++*next;
    return type == 's' ? append_text(c, b, format, v) : append_integer(c, b, v);
}

ag_jv ag_jpercent_format(ag_jctx *c, ag_jstr *format, ag_jv args) {
    ag_jbuf *b = ag_jbuf_create(c);
    size_t n_used = 0;
    if (!b || !ag_jwork_bytes(c, format->len)) return ag_jfail_value();
    for (size_t at = 0; at < format->len;) {
        const char *percent = memchr(format->text + at, '%', format->len - at);
        size_t end = percent ? (size_t)(percent - format->text) : format->len;
        if (!ag_jwork(c, 1) || !ag_jbuf_append_slice(c, b, format, at, end))
            return ag_jfail_value();
        if (percent && !append_conversion(c, b, format, end + 1, args, &n_used)) {
            return ag_jfail_value();
        }
        at = end + 2;
    }
    size_t n_args = args.kind == AG_JTUPLE ? args.as.list->n : 1;
    bool may_be_unused = args.kind == AG_JDICT || args.kind == AG_JLIST || args.kind == AG_JRANGE ||
                         args.kind == AG_JUNDEFINED;
    if (n_used < n_args && !may_be_unused) {
        return ag_jfail(c, "not all arguments converted during string formatting");
    }
    ag_jstr *r = ag_jbuf_string(c, b);
    return ag_jstring(r ? ag_jstr_as_markup(c, r, format->markup) : NULL);
}

ag_jv ag_jfilter_format(ag_jctx *c, ag_jv v, const ag_jargs *args) {
    if (args->keywords) {
        return ag_jfail_as(c, AG_UNSUPPORTED, "format: keyword arguments are not supported");
    }
    ag_jstr *s = ag_jsoft_str(c, v);
    ag_jlist *l = s ? ag_jlist_create(c, args->n) : NULL;
    if (!l) return ag_jfail_value();
    for (size_t i = 0; i < args->n; i++) l->items[l->n++] = args->items[i];
    return ag_jpercent_format(c, s, ag_jtuple_value(l));
}

/* Returns the argument of field "", "0" or "name". *next is the automatic number of the next field;
 * -1: earlier fields have explicit numbers. */
static ag_jv field_value(ag_jctx *c, const ag_jargs *args, const ag_jstr *field, int64_t *next) {
    int64_t i;
    for (size_t k = 0; k < field->len; k++) {
        if (!strchr(".[!:", field->text[k])) continue;
        return ag_jfail_as(c, AG_UNSUPPORTED,
                           "format(): '{%.*s}' is not supported, only {}, {0} and {name}",
                           (int)field->len, field->text);
    }
    if (!field->len) {
        if (*next < 0) return ag_jfail(c, "cannot switch from manual to automatic numbering");
        i = (*next)++;
    } else if (ag_jparse_int(field->text, field->len, 10, &i) && i >= 0) {
        if (*next > 0) return ag_jfail(c, "cannot switch from automatic to manual numbering");
        *next = -1;
    } else {
        ag_jv v = ag_jfail_value();
        if (args->keywords)
            v = ag_jdict_find_string(c, args->keywords, field,
                                     ag_jstr_hash_of(field->text, field->len));
        if (!ag_jfailed(v)) return v;
        return ag_jfail(c, "format() has no argument '%.*s'", (int)field->len, field->text);
    }
    if ((size_t)i >= args->n) return ag_jfail(c, "format() has no argument %d", (int)i);
    return args->items[i];
}

ag_jv ag_jformat_method(ag_jctx *c, ag_jstr *format, const ag_jargs *args) {
    const char *text = format->text, *const end = text + format->len;
    ag_jbuf *b = ag_jbuf_create(c);
    int64_t next = 0;
    if (!b || !ag_jwork_bytes(c, format->len)) return ag_jfail_value();
    for (const char *p = text, *stop; p < end; p = stop + 1) {
        for (stop = p; stop < end && *stop != '{' && *stop != '}';) stop++;
        if (!ag_jwork(c, 1) ||
            !ag_jbuf_append_slice(c, b, format, (size_t)(p - text), (size_t)(stop - text))) {
            return ag_jfail_value();
        }
        if (stop == end) break;
        if (stop + 1 < end && stop[1] == *stop) { /* {{ or }} */
            const size_t at = (size_t)(stop++ - text);
            if (!ag_jbuf_append_slice(c, b, format, at, at + 1)) return ag_jfail_value();
            continue;
        }
        const char *close = *stop == '{' ? memchr(stop, '}', (size_t)(end - stop)) : NULL;
        if (!close) return ag_jfail(c, "Single '%c' encountered in format string", *stop);
        const ag_jstr field = {.text = stop + 1, .len = (size_t)(close - stop - 1)};
        const ag_jv v = field_value(c, args, &field, &next);
        if (ag_jfailed(v) || !append_text(c, b, format, v)) return ag_jfail_value();
        stop = close;
    }
    ag_jstr *r = ag_jbuf_string(c, b);
    return ag_jstring(r ? ag_jstr_as_markup(c, r, format->markup) : NULL);
}
