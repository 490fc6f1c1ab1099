/* SPDX-License-Identifier: Apache-2.0 */
#include "model_names.h"

#include "../../support/json_out.h"
#include "../../support/user_files.h"
#include "../../terminal/output.h"
#include "../threads/account.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { REASON_SIZE = 256, MAX_NAME = 200 };

/* Hidden, so that it is no model of the store. {"NAME": {"from": FILE, "alias": true, ...}} */
static const char file_name[] = ".names.json";

bool model_name_is_valid(const char *name) {
    static const char in_tag[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = 0;
    while (name[n] && (strchr(in_tag, name[n]) || name[n] == '/')) n++;
    if (!n || strchr("./-", name[0]) || strstr(name, "..") || strlen(name) > MAX_NAME) return false;
    if (!name[n]) return true;
    const char *tag = name + n + 1;
    return name[n] == ':' && tag[0] && strspn(tag, in_tag) == strlen(tag);
}

/* ---- reading ---- */

/* Returns the model of this file in the store. */
static const model_entry *find_file(const model_list *l, const char *file) {
    const model_entry *e = NULL;
    while (file && (e = model_list_next(l, e)))
        if (e->file && !strcmp(e->file, file)) break;
    return e;
}

static void add_name(served_models *s, const char *name, const json_t *value) {
    char reason[REASON_SIZE];
    const char *from = json_string_value(json_object_get(value, "from"));
    const model_entry *base = find_file(s->list, from);
    json_t *parameters = json_object_get(value, "parameters");
    if (!base || !model_name_is_valid(name)) return; /* its model is not served */
    model_entry e = *base;
    char *text = json_is_object(parameters) ? json_dumps(parameters, JSON_COMPACT) : NULL;
    e.kind = json_is_true(json_object_get(value, "alias")) ? MODEL_ALIAS : MODEL_DERIVED;
    e.is_saved = true;
    e.name = name;
    e.file = NULL;
    e.system = json_string_value(json_object_get(value, "system"));
    e.parameters = text;
    model_entry_digest(&e, base->digest);
    if (!model_list_add(s->list, &e, NULL, reason))
        complain("%s/%s: %s", s->store, file_name, reason);
    account_free(text);
}

/* Returns the content of the file, an empty object if there is none. NULL with reason[REASON_SIZE]:
 * it cannot be read. */
static json_t *read_names(const served_models *s, char *reason) {
    char path[PATH_MAX];
    json_error_t error;
    if (!path_join(path, s->store, file_name)) {
        snprintf(reason, REASON_SIZE, "%.100s/%s: the path is too long", s->store, file_name);
        return NULL;
    }
    if (access(path, F_OK) != 0 && errno == ENOENT) return json_object();
    json_t *names = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (json_is_object(names)) return names;
    snprintf(reason, REASON_SIZE,
             "%.60s/%s: cannot read the names: %.100s; correct or delete the file", s->store,
             file_name, names ? "not an object" : error.text);
    json_decref(names);
    return NULL;
}

void model_names_load(served_models *s) {
    char reason[REASON_SIZE];
    const char *name;
    json_t *value, *names = s->store[0] ? read_names(s, reason) : json_object();
    if (!names) complain("%s", reason);
    json_object_foreach(names, name, value) add_name(s, name, value);
    json_decref(names);
}

/* ---- writing ---- */

static json_t *describe_name(const model_list *l, const model_entry *e) {
    const model_entry *base = model_list_of(l, e->model);
    json_t *value = JSON_OBJECT({"from", json_text(base->file, strlen(base->file))});
    if (e->kind == MODEL_ALIAS) value = JSON_ADD(value, {"alias", json_true()});
    if (e->system) value = JSON_ADD(value, {"system", json_text(e->system, strlen(e->system))});
    if (e->parameters) value = JSON_ADD(value, {"parameters", json_loads(e->parameters, 0, NULL)});
    return value;
}

bool model_names_save(const served_models *s, char *reason) {
    char path[PATH_MAX];
    new_file f;
    const char *name;
    json_t *value, *names, *earlier = read_names(s, reason);
    if (!earlier) return false;
    names = json_object();
    /* Names of models that this server does not serve stay. */
    json_object_foreach(earlier, name, value) {
        const char *from = json_string_value(json_object_get(value, "from"));
        if (!find_file(s->list, from)) names = JSON_ADD(names, {name, json_incref(value)});
    }
    json_decref(earlier);
    for (const model_entry *e = NULL; names && (e = model_list_next(s->list, e));) {
        const model_entry *base = model_list_of(s->list, e->model);
        if (!e->is_saved || !base || !base->file) continue;
        names = JSON_ADD(names, {e->name, describe_name(s->list, e)});
    }
    char *text = names ? json_dumps(names, JSON_INDENT(1)) : NULL;
    json_decref(names);
    bool ok = text && path_join(path, s->store, file_name) && make_directories(s->store, 0777) &&
              new_file_open(&f, path);
    if (ok) ok = new_file_close(&f, new_file_write(&f, text, strlen(text)));
    if (!ok)
        snprintf(reason, REASON_SIZE, "%.100s/%s: %s", s->store, file_name,
                 text ? strerror(errno) : "out of memory");
    account_free(text);
    return ok;
}
