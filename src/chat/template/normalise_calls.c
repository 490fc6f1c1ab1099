/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/interrupt.h"
#include "chat/json_text.h"
#include "chat/message.h"
#include "chat/template/normalise.h"
#include "core/fail.h"

#include <stdio.h>
#include <string.h>

/* ---- ids ---- */

static bool is_short_id(const char *id) {
    size_t n = 0;
    for (; id[n]; n++) {
        const char c = id[n];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
            return false;
        }
    }
    return n == 9;
}

/* Returns 9 letters and digits that depend on the id alone. */
static json_t *shortened(const char *id) {
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t h = 14695981039346656037u;
    char text[10] = {0};
    for (const char *p = id; *p; p++) h = (h ^ (unsigned char)*p) * 1099511628211u;
    h ^= h >> 32;
    for (size_t i = 0; i < 9; i++, h /= 62) text[i] = letters[h % 62];
    return json_string(text);
}

static ag_status fit_id(const ag_chat_format *f, json_t *m, const char *key, ag_error *err) {
    const char *id = json_string_value(json_object_get(m, key));
    if (!id || (f->accepts & AG_ACCEPTS_LONG_IDS) || is_short_id(id)) return AG_OK;
    return ag_normalise_set(m, key, shortened(id), err);
}

/* ---- calls ---- */

/* Sets m[key] to v as text, with Python's spacing, which models were trained on. */
static ag_status set_as_text(json_t *m, const char *key, const json_t *v, ag_error *err) {
    ag_text text = {0};
    ag_status st = ag_json_text_append_spaced(v, &text, err);
    if (st == AG_OK) st = ag_normalise_set(m, key, json_stringn_nocheck(text.data, text.len), err);
    ag_text_free(&text);
    return st;
}

/* Converts arguments to an object or to text. Missing ones become {}. */
static ag_status fit_arguments(const ag_chat_format *f, json_t *function, ag_error *err) {
    json_t *v = json_object_get(function, "arguments");
    const bool objects = f->features & AG_CHAT_ARGUMENT_OBJECTS;
    const bool texts = f->features & AG_CHAT_ARGUMENT_TEXT;
    if (!v || json_is_null(v)) {
        return ag_normalise_set(function, "arguments", objects ? json_object() : json_string("{}"),
                                err);
    }
    if (json_is_object(v)) {
        return objects || !texts ? AG_OK : set_as_text(function, "arguments", v, err);
    }
    if (texts || !objects) return AG_OK;
    const char *s = json_string_value(v);
    const size_t n = json_string_length(v);
    json_t *object = json_loadb(s, n, JSON_ALLOW_NUL, NULL);
    if (!object && strspn(s, " \t\r\n") == n) object = json_object();
    /* Text that is not an object, such as a truncated call, must not be lost. */
    if (!json_is_object(object)) {
        json_decref(object);
        object = json_pack("{s:O}", "arguments", v);
    }
    return ag_normalise_set(function, "arguments", object, err);
}

/* Moves name and arguments from a call without "function" to `function`. */
static bool move_function(json_t *call, json_t *function) {
    static const char *const keys[] = {"name", "arguments"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *v = json_object_get(call, keys[i]);
        if (v && json_object_set(function, keys[i], v) != 0) return false;
        json_object_del(call, keys[i]);
    }
    return true;
}

/* Completes a call: type, id, and the function with its arguments. */
static ag_status fit_call(const ag_chat_format *f, json_t *call, json_t *function, size_t n_before,
                          size_t i, ag_error *err) {
    char id[24];
    snprintf(id, sizeof id, "call%03zu%02zu", n_before % 1000, i % 100);
    if (!json_object_get(call, "type")) {
        AG_TRY(ag_normalise_set(call, "type", json_string("function"), err));
    }
    if (!json_is_string(json_object_get(call, "id"))) {
        AG_TRY(ag_normalise_set(call, "id", json_string(id), err));
    }
    AG_TRY(fit_id(f, call, "id", err));
    AG_TRY(fit_arguments(f, function, err));
    return ag_normalise_set(call, "function", json_incref(function), err);
}

/* *out: a copy of a call as the template accepts it; owned. */
static ag_status fitted_call(const ag_chat_format *f, const json_t *call, size_t n_before, size_t i,
                             json_t **out, ag_error *err) {
    const json_t *old = json_object_get(call, "function");
    json_t *copy, *function = NULL;
    *out = NULL;
    AG_TRY(ag_json_copy_object(call, &copy, err));
    ag_status st = old ? ag_json_copy_object(old, &function, err) : AG_OK;
    if (!old) {
        function = json_object();
        st = ag_normalise_check(function && move_function(copy, function), err);
    }
    if (st == AG_OK) st = fit_call(f, copy, function, n_before, i, err);
    json_decref(function);
    if (st == AG_OK) *out = copy;
    else json_decref(copy);
    return st;
}

static ag_status fit_list(const ag_chat_format *f, json_t *m, const json_t *calls, size_t n_before,
                          ag_error *err) {
    json_t *list = json_array(), *call;
    ag_status st = ag_normalise_check(list != NULL, err);
    size_t i;
    json_array_foreach(calls, i, call) {
        json_t *fitted = NULL;
        if (st == AG_OK) st = ag_chat_check_interrupt("normalising the conversation", err);
        if (st == AG_OK) st = fitted_call(f, call, n_before, i, &fitted, err);
        if (st != AG_OK) break;
        st = ag_normalise_check(json_array_append_new(list, fitted) == 0, err);
    }
    if (st == AG_OK) return ag_normalise_set(m, "tool_calls", list, err);
    json_decref(list);
    return st;
}

/* ---- results ---- */

void ag_call_table_follow(ag_call_table *t, const json_t *m) {
    const json_t *calls = json_object_get(m, "tool_calls");
    if (json_array_size(calls) == 0 && ag_chat_has_role(m, "tool")) {
        t->n_results++;
        return;
    }
    ag_call_table_free(t);
    if (json_array_size(calls)) t->calls = calls;
}

void ag_call_table_free(ag_call_table *t) {
    json_decref(t->by_id);
    *t = (ag_call_table){0};
}

/* Fills by_id. If several calls have one id, the last counts. */
static ag_status build_table(ag_call_table *t, ag_error *err) {
    json_t *call;
    size_t i;
    t->by_id = json_object();
    AG_TRY(ag_normalise_check(t->by_id != NULL, err));
    json_array_foreach(t->calls, i, call) {
        const char *id = json_string_value(json_object_get(call, "id"));
        AG_TRY(ag_chat_check_interrupt("normalising the conversation", err));
        if (id) AG_TRY(ag_normalise_check(json_object_set_nocheck(t->by_id, id, call) == 0, err));
    }
    return AG_OK;
}

/* *call: the call that a result belongs to, by id or else by order; NULL if there is none.
 * Borrowed. */
static ag_status find_call(ag_call_table *t, const char *id, const json_t **call, ag_error *err) {
    *call = NULL;
    if (!t->calls) return AG_OK;
    if (id && !t->by_id) AG_TRY(build_table(t, err));
    *call = id ? json_object_get(t->by_id, id) : json_array_get(t->calls, t->n_results);
    return AG_OK;
}

static ag_status fit_result(const ag_chat_format *f, json_t *m, ag_call_table *t, ag_error *err) {
    const json_t *call;
    AG_TRY(fit_id(f, m, "tool_call_id", err));
    const char *id = json_string_value(json_object_get(m, "tool_call_id"));
    AG_TRY(find_call(t, id, &call, err));
    json_t *its_id = json_object_get(call, "id");
    json_t *name = json_object_get(json_object_get(call, "function"), "name");
    if (!id && its_id) AG_TRY(ag_normalise_set(m, "tool_call_id", json_incref(its_id), err));
    if (json_object_get(m, "name") || !name) return AG_OK;
    return ag_normalise_set(m, "name", json_incref(name), err);
}

ag_status ag_normalise_calls(const ag_chat_format *f, json_t *m, size_t n_before, ag_call_table *t,
                             ag_error *err) {
    const json_t *calls = json_object_get(m, "tool_calls");
    if (ag_chat_has_role(m, "tool")) return fit_result(f, m, t, err);
    if (!calls) return AG_OK;
    if (json_array_size(calls)) return fit_list(f, m, calls, n_before, err);
    json_object_del(m, "tool_calls");
    return AG_OK;
}
