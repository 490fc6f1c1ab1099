/* SPDX-License-Identifier: Apache-2.0 */
#include "jinja/value/value.h"

const char *ag_jtype_name(ag_jv v) {
    switch (v.kind) {
    case AG_JNONE:
        return "NoneType";
    case AG_JBOOL:
        return "bool";
    case AG_JINT:
        return "int";
    case AG_JFLOAT:
        return "float";
    case AG_JSTRING:
        return v.as.string->markup ? "Markup" : "str";
    case AG_JLIST:
        return "list";
    case AG_JTUPLE:
        return "tuple";
    case AG_JDICT:
        return "dict";
    case AG_JRANGE:
        return "range";
    case AG_JVIEW: {
        static const char *const names[] = {"dict_keys", "dict_values", "dict_items"};
        return names[v.as.view->kind];
    }
    case AG_JITERATOR:
        return v.as.iterator->type_name;
    case AG_JNAMESPACE:
        return "Namespace";
    case AG_JMACRO:
        return "Macro";
    case AG_JFUNCTION:
        return "function";
    case AG_JMETHOD:
        return "builtin_function_or_method";
    case AG_JLOOP:
        return "LoopContext";
    default:
        return "Undefined";
    }
}

bool ag_jtruth(ag_jv v) {
    switch (v.kind) {
    case AG_JFAIL:
    case AG_JUNDEFINED:
    case AG_JNONE:
        return false;
    case AG_JBOOL:
        return v.as.boolean;
    case AG_JINT:
        return v.as.integer != 0;
    case AG_JFLOAT:
        return v.as.number != 0;
    case AG_JSTRING:
        return v.as.string->len != 0;
    case AG_JLIST:
    case AG_JTUPLE:
        return v.as.list->n != 0;
    case AG_JDICT:
        return v.as.dict->n != 0;
    case AG_JRANGE:
        return v.as.range->n != 0;
    case AG_JVIEW:
        return v.as.view->dict->n != 0;
    default:
        return true;
    }
}
