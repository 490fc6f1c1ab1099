/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/builtins/methods.h"

#include "jinja/builtins/arguments.h"
#include "jinja/value/list.h"
#include "jinja/value/ops.h"

#include <string.h>

static ag_jv dict_view(ag_jctx *c, ag_jv self, ag_jview_kind kind) {
    ag_jview *v = ag_jalloc(c, sizeof *v);
    if (!v) return ag_jfail_value();
    *v = (ag_jview){self.as.dict, kind};
    return (ag_jv){AG_JVIEW, {.view = v}};
}

static ag_jv dict_items(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return dict_view(c, self, AG_JVIEW_ITEMS);
}
static ag_jv dict_keys(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return dict_view(c, self, AG_JVIEW_KEYS);
}
static ag_jv dict_values(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return dict_view(c, self, AG_JVIEW_VALUES);
}
static ag_jv dict_get(ag_jctx *c, ag_jv self, const ag_jv *a) {
    ag_jv v = ag_jdict_find(c, self.as.dict, a[0]);
    if (!ag_jfailed(v) || c->status != AG_OK) return v;
    return ag_jfailed(a[1]) ? ag_jnone() : a[1];
}
static ag_jv copy(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)c;
    (void)a;
    return self; /* it is immutable */
}
static ag_jv list_count(ag_jctx *c, ag_jv self, const ag_jv *a) {
    int64_t n = 0;
    for (int64_t i = 0, len = ag_jlength(self); i < len; i++) {
        int r = ag_jequal(c, ag_jitem_at(c, self, (size_t)i), a[0]);
        if (r < 0) return ag_jfail_value();
        n += r;
    }
    return ag_jint(n);
}

static ag_jv list_index(ag_jctx *c, ag_jv self, const ag_jv *a) {
    int64_t len = ag_jlength(self), begin, end;
    if (!ag_jargument_int(c, a[1], 0, &begin) || !ag_jargument_int(c, a[2], len, &end)) {
        return ag_jfail_value();
    }
    if (begin < 0) begin = begin + len < 0 ? 0 : begin + len;
    if (end < 0) end += len;
    if (end > len) end = len;
    for (int64_t i = begin; i < end; i++) {
        int r = ag_jequal(c, ag_jitem_at(c, self, (size_t)i), a[0]);
        if (r < 0) return ag_jfail_value();
        if (r) return ag_jint(i);
    }
    return ag_jfail(c, "index(): the value is not in %s", ag_jtype_name(self));
}

/* Rejects a method that would modify its object. */
static ag_jv unsafe_method(ag_jctx *c, ag_jv self, const ag_jv *a) {
    (void)a;
    return ag_jfail(c, "the sandbox forbids methods that modify a %s", ag_jtype_name(self));
}

typedef enum self_kind {
    ON_STR,
    ON_DICT,
    ON_LIST,
    ON_TUPLE,
} self_kind;

/* Sorted by name, then by kind. params and min: as for ag_jbind(). call NULL: str.format(), which
 * takes arbitrary arguments. */
static const struct method {
    const char *name;
    self_kind on;
    ag_jmethod_fn *call;
    const char *params;
    size_t min;
} methods[] = {
    {"append", ON_LIST, unsafe_method, "", 0},
    {"capitalize", ON_STR, ag_jstr_capitalize, "", 0},
    {"clear", ON_DICT, unsafe_method, "", 0},
    {"clear", ON_LIST, unsafe_method, "", 0},
    {"copy", ON_DICT, copy, "", 0},
    {"copy", ON_LIST, copy, "", 0},
    {"count", ON_STR, ag_jstr_count_of, "sub start end", 1},
    {"count", ON_LIST, list_count, "value", 1},
    {"count", ON_TUPLE, list_count, "value", 1},
    {"endswith", ON_STR, ag_jstr_endswith, "suffix start end", 1},
    {"extend", ON_LIST, unsafe_method, "", 0},
    {"find", ON_STR, ag_jstr_find_in, "sub start end", 1},
    {"format", ON_STR, NULL, "", 0},
    {"get", ON_DICT, dict_get, "key default", 1},
    {"index", ON_STR, ag_jstr_index_in, "sub start end", 1},
    {"index", ON_LIST, list_index, "value start stop", 1},
    {"index", ON_TUPLE, list_index, "value start stop", 1},
    {"insert", ON_LIST, unsafe_method, "", 0},
    {"isdigit", ON_STR, ag_jstr_isdigit, "", 0},
    {"items", ON_DICT, dict_items, "", 0},
    {"join", ON_STR, ag_jstr_join, "iterable", 1},
    {"keys", ON_DICT, dict_keys, "", 0},
    {"lower", ON_STR, ag_jstr_lower, "", 0},
    {"lstrip", ON_STR, ag_jstr_lstrip, "chars", 0},
    {"partition", ON_STR, ag_jstr_partition, "sep", 1},
    {"pop", ON_DICT, unsafe_method, "", 0},
    {"pop", ON_LIST, unsafe_method, "", 0},
    {"popitem", ON_DICT, unsafe_method, "", 0},
    {"remove", ON_LIST, unsafe_method, "", 0},
    {"replace", ON_STR, ag_jstr_replace, "old new count", 2},
    {"reverse", ON_LIST, unsafe_method, "", 0},
    {"rsplit", ON_STR, ag_jstr_rsplit, "sep maxsplit", 0},
    {"rstrip", ON_STR, ag_jstr_rstrip, "chars", 0},
    {"setdefault", ON_DICT, unsafe_method, "", 0},
    {"sort", ON_LIST, unsafe_method, "", 0},
    {"split", ON_STR, ag_jstr_split, "sep maxsplit", 0},
    {"splitlines", ON_STR, ag_jstr_splitlines, "keepends", 0},
    {"startswith", ON_STR, ag_jstr_startswith, "prefix start end", 1},
    {"strip", ON_STR, ag_jstr_strip, "chars", 0},
    {"title", ON_STR, ag_jstr_title, "", 0},
    {"update", ON_DICT, unsafe_method, "", 0},
    {"upper", ON_STR, ag_jstr_upper, "", 0},
    {"values", ON_DICT, dict_values, "", 0},
};
enum { N_METHODS = sizeof methods / sizeof *methods };

int ag_jmethod_find(const char *name, size_t len) {
    size_t low = 0, high = N_METHODS;
    while (low < high) {
        size_t mid = (low + high) / 2, n = strlen(methods[mid].name);
        int r = memcmp(methods[mid].name, name, n < len ? n : len);
        if (r == 0) r = (n > len) - (n < len);
        if (r < 0) low = mid + 1;
        else high = mid;
    }
    bool found = low < N_METHODS && strlen(methods[low].name) == len &&
                 !memcmp(methods[low].name, name, len);
    return found ? (int)low : -1;
}

static int kind_of_self(ag_jv self) {
    switch (self.kind) {
    case AG_JSTRING:
        return ON_STR;
    case AG_JDICT:
        return ON_DICT;
    case AG_JLIST:
        return ON_LIST;
    case AG_JTUPLE:
    case AG_JRANGE:
        return ON_TUPLE;
    default:
        return -1;
    }
}

/* Returns the entry for the type of self, NULL if there is none. id: first entry of the name. */
static const struct method *method_for(ag_jv self, int id) {
    int on = kind_of_self(self);
    for (int i = id; i < N_METHODS && !strcmp(methods[i].name, methods[id].name); i++) {
        if ((int)methods[i].on == on) return &methods[i];
    }
    return NULL;
}

ag_jmethod_access ag_jmethod_of(ag_jv self, int id) {
    const struct method *m = method_for(self, id);
    if (!m) return AG_JMETHOD_ABSENT;
    return m->call == unsafe_method ? AG_JMETHOD_UNSAFE : AG_JMETHOD_FOUND;
}

/* Returns whether the method takes keyword arguments. Most methods that CPython implements in C do
 * not. */
static bool takes_keywords(const char *name) {
    static const char *const names[] = {"split", "rsplit", "splitlines"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(names[i], name)) return true;
    }
    return false;
}

ag_jv ag_jmethod_call(ag_jctx *c, const ag_jmethod *method, const ag_jargs *args) {
    const struct method *m = method_for(method->self, method->id);
    if (!m) return ag_jfail(c, "unknown method");
    if (!m->call) return ag_jformat_method(c, method->self.as.string, args);
    ag_jv bound[AG_JMAX_PARAMS];
    if (args->keywords && !takes_keywords(m->name)) {
        return ag_jfail(c, "%s() takes no keyword arguments", m->name);
    }
    if (!ag_jbind(c, "method", m->name, args, m->params, m->min, bound)) return ag_jfail_value();
    return m->call(c, method->self, bound);
}
