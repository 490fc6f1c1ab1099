/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of macros, functions of the environment and methods. */
#include "jinja/builtins/arguments.h"
#include "jinja/builtins/globals.h"
#include "jinja/builtins/methods.h"
#include "jinja/eval.h"
#include "jinja/value/list.h"
#include "jinja/value/ops.h"
#include "jinja/value/string.h"

#include <string.h>

ag_jv ag_jmacro_create(ag_jctx *c, const ag_jmacro_def *def) {
    ag_jmacro *m = ag_jalloc(c, sizeof *m);
    if (!m) return ag_jfail_value();
    *m = (ag_jmacro){def, c->scope};
    return (ag_jv){AG_JMACRO, {.macro = m}};
}

/* Removes the keyword argument `name` from *keywords and returns its value, AG_JFAIL if there is
 * none. */
static ag_jv pop_keyword(ag_jctx *c, ag_jdict **keywords, const ag_jstr *name) {
    ag_jdict *d = *keywords;
    ag_jv value = ag_jdict_find_string(c, d, name, ag_jstr_hash_of(name->text, name->len));
    if (ag_jfailed(value)) return value;
    ag_jdict *remaining = ag_jdict_create(c, d->n);
    for (size_t i = 0; remaining && i < d->n; i++) {
        const ag_jentry *e = &d->entries[i];
        if (!ag_jstr_equal(e->key.as.string, name) &&
            !ag_jdict_set(c, remaining, e->key, e->value)) {
            return ag_jfail_value();
        }
    }
    if (!remaining) return ag_jfail_value();
    *keywords = remaining;
    return value;
}

static bool set_parameter(ag_jctx *c, const ag_jmacro_def *d, size_t i, ag_jv value) {
    size_t first_default = d->n_params - d->n_defaults;
    if (ag_jfailed(value) && i >= first_default) {
        value = ag_jeval(c, d->defaults[i - first_default]);
    } else if (ag_jfailed(value)) {
        value = ag_jundefined_hint(c, "a parameter of a macro was not provided");
    }
    return !ag_jfailed(value) && ag_jscope_set(c, c->scope, d->params[i], value);
}

static const char *macro_name(const ag_jmacro_def *d) { return d->name ? d->name->text : "caller"; }
static int macro_name_len(const ag_jmacro_def *d) { return d->name ? (int)d->name->len : 6; }

/* Stores arguments without a parameter in varargs and kwargs. Fails if the macro does not read
 * these. */
static bool bind_extra_arguments(ag_jctx *c, const ag_jmacro_def *d, const ag_jargs *args,
                                 ag_jdict *keywords) {
    if (d->reads_kwargs) {
        if (!ag_jscope_set(c, c->scope, c->t->kwargs, ag_jdict_value(keywords))) return false;
    } else if (keywords->n) {
        const ag_jstr *key = keywords->entries[0].key.as.string;
        ag_jfail(c, "macro '%.*s' takes no keyword argument '%.*s'", macro_name_len(d),
                 macro_name(d), (int)key->len, key->text);
        return false;
    }
    size_t n = args->n > d->n_params ? args->n - d->n_params : 0;
    if (d->reads_varargs) {
        ag_jlist *l = ag_jlist_create(c, n);
        for (size_t i = 0; l && i < n; i++) l->items[l->n++] = args->items[d->n_params + i];
        return l && ag_jscope_set(c, c->scope, c->t->varargs, ag_jtuple_value(l));
    }
    if (!n) return true;
    ag_jfail(c, "macro '%.*s' takes at most %zu arguments", macro_name_len(d), macro_name(d),
             d->n_params);
    return false;
}

static bool bind_macro(ag_jctx *c, const ag_jmacro_def *d, const ag_jargs *args) {
    ag_jdict *keywords = args->keywords ? ag_jdict_copy(c, args->keywords) : ag_jdict_create(c, 0);
    if (!keywords) return false;
    ag_jv given[AG_JMAX_PARAMS], *values = given;
    if (d->n_params > AG_JMAX_PARAMS) values = ag_jalloc(c, d->n_params * sizeof *values);
    if (!values) return false;
    for (size_t i = 0; i < d->n_params; i++) {
        values[i] = i < args->n ? args->items[i] : pop_keyword(c, &keywords, d->param_names[i]);
        if (c->status != AG_OK) return false;
    }
    if (d->reads_caller) {
        ag_jv caller = pop_keyword(c, &keywords, c->t->names[c->t->caller]);
        if (ag_jfailed(caller))
            caller = ag_jundefined_hint(
                c, "caller is undefined: the macro was not called by {% call %}");
        if (ag_jfailed(caller) || !ag_jscope_set(c, c->scope, c->t->caller, caller)) return false;
    }
    if (!bind_extra_arguments(c, d, args, keywords)) return false;
    for (size_t i = 0; i < d->n_params; i++) {
        if (!set_parameter(c, d, i, values[i])) return false;
    }
    return true;
}

static ag_jv call_macro(ag_jctx *c, const ag_jmacro *m, const ag_jargs *args) {
    if (!ag_jenter(c)) return ag_jfail_value();
    ag_jbuf *out = c->out, *b = ag_jbuf_create(c);
    ag_jscope *scope = c->scope;
    const ag_jnode *statement = c->statement;
    ag_jregion r;
    ag_jregion_begin(c, &r);
    c->scope = b ? ag_jscope_create(c, m->scope) : NULL;
    bool ok = false;
    if (c->scope) {
        c->out = b;
        ok = bind_macro(c, m->def, args) && ag_jexec(c, &m->def->body) == AG_JFLOW_NEXT;
    }
    if (ok) ag_jregion_end(c, &r);
    ag_jv text = ok ? ag_jbuf_value(c, b) : ag_jfail_value();
    c->scope = scope;
    c->out = out;
    c->statement = statement;
    ag_jleave(c);
    return text;
}

ag_jv ag_jcall(ag_jctx *c, ag_jv callee, const ag_jargs *args) {
    switch (callee.kind) {
    case AG_JMACRO:
        return call_macro(c, callee.as.macro, args);
    case AG_JFUNCTION:
        return ag_jglobal_call(c, (int)callee.as.integer, args);
    case AG_JMETHOD:
        return ag_jmethod_call(c, callee.as.method, args);
    case AG_JUNDEFINED:
        return ag_jfail_undefined(c, callee);
    default:
        return ag_jfail(c, "'%s' object is not callable", ag_jtype_name(callee));
    }
}
