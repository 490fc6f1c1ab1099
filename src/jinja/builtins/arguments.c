/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/builtins/arguments.h"

#include "jinja/value/ops.h"

#include <string.h>

/* Returns the index of parameter `name`, -1 if there is none. */
static int parameter_number(const char *params, const ag_jstr *name) {
    int i = 0;
    while (*params) {
        size_t n = strcspn(params, " ");
        if (n == name->len && !memcmp(params, name->text, n)) return i;
        params += n;
        params += *params == ' ';
        i++;
    }
    return -1;
}

static size_t count_parameters(const char *params) {
    size_t n = *params != '\0';
    for (; *params; params++) n += *params == ' ';
    return n;
}

bool ag_jbind(ag_jctx *c, const char *kind, const char *name, const ag_jargs *args,
              const char *params, size_t min, ag_jv out[AG_JMAX_PARAMS]) {
    size_t n = count_parameters(params);
    if (args->n > n) {
        ag_jfail(c, "%s '%s' takes at most %zu arguments (%zu given)", kind, name, n, args->n);
        return false;
    }
    for (size_t i = 0; i < AG_JMAX_PARAMS; i++) {
        out[i] = i < args->n ? args->items[i] : ag_jfail_value();
    }
    const ag_jdict *k = args->keywords;
    for (size_t i = 0; k && i < k->n; i++) {
        const ag_jstr *key = k->entries[i].key.as.string;
        int at = parameter_number(params, key);
        if (at < 0 || !ag_jfailed(out[at])) {
            ag_jfail(c, "%s '%s' got %s argument '%.*s'", kind, name,
                     at < 0 ? "an unexpected keyword" : "twice the", (int)key->len, key->text);
            return false;
        }
        out[at] = k->entries[i].value;
    }
    for (size_t i = 0; i < min; i++) {
        if (!ag_jfailed(out[i])) continue;
        ag_jfail(c, "%s '%s' needs %zu argument%s", kind, name, min, min == 1 ? "" : "s");
        return false;
    }
    return true;
}

bool ag_jargument_int(ag_jctx *c, ag_jv v, int64_t default_value, int64_t *out) {
    *out = default_value;
    if (ag_jfailed(v)) return true;
    if (ag_jis_integer(v)) return *out = ag_jinteger(v), true;
    if (v.kind == AG_JUNDEFINED) ag_jfail_undefined(c, v);
    else ag_jfail(c, "'%s' object cannot be interpreted as an integer", ag_jtype_name(v));
    return false;
}
