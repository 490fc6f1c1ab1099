/* SPDX-License-Identifier: Apache-2.0 */
#include "management.h"

#include "../../command.h"
#include "../../model/store.h"
#include "../../support/json_out.h"
#include "../ollama/ollama.h"
#include "../protocol/fields.h"
#include "../request/http_request.h"
#include "../request/routes.h"
#include "../system.h"
#include "../threads/account.h"
#include "model_names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REASON_SIZE = 256 };

static served_models *models_of(const serve_http_request *http) {
    return http->server->settings->models;
}

/* Returns a copy of the name without the tag ":latest", which all names may have. NULL: out of
 * memory. */
static char *without_latest(const char *name) {
    static const char latest[] = ":latest";
    const size_t n = strlen(name), k = sizeof latest - 1;
    return strndup(name, n > k && !strcmp(name + n - k, latest) ? n - k : n);
}

/* Reads a name that the client chooses. The caller frees it. Returns NULL with *e. */
static char *read_new_name(const char *field, const char *given, serve_error *e) {
    if (!given || !model_name_is_valid(given)) {
        reject_field(e, field,
                     "'%.100s' is not a name; use letters, digits and '._-/', perhaps with a :TAG, "
                     "without '..', and begin with a letter or digit",
                     given ? given : "");
        return NULL;
    }
    char *name = without_latest(given);
    if (!name) reject_no_memory(e);
    return name;
}

/* Returns the model whose files the names of the store may use. NULL with *e: there is none. */
static const model_entry *find_stored(const serve_http_request *http, const char *name,
                                      serve_error *e) {
    const model_entry *found = http_model_entry(http, name, e);
    if (!found) return NULL;
    const model_entry *base = model_list_of(http_models(http), found->model);
    if (base && base->file) return found;
    reject_request(e, 403, "model", "model '%.200s' is not in the store, so it cannot be changed",
                   found->name);
    return NULL;
}

/* ---- names ---- */

/* Adds the entry and saves the file of names. An earlier entry of the same name is replaced, unless
 * it has files. Returns 0, or with reason[REASON_SIZE] the status of the reply. The caller holds
 * `changing`. */
static int put_name(served_models *s, const model_entry *e, char *reason) {
    const model_entry *old = model_list_exact(s->list, e->name), *added;
    if (old && (old->kind == MODEL_FILE || !old->is_saved)) {
        snprintf(reason, REASON_SIZE, "%.100s: another model has this name; delete it first",
                 e->name);
        return 400;
    }
    if (old) model_list_remove(s->list, old);
    const bool is_added = model_list_add(s->list, e, &added, reason);
    if (is_added && model_names_save(s, reason)) return 0;
    if (is_added) model_list_remove(s->list, added);
    if (old) model_list_restore(s->list, old);
    return is_added ? 500 : 400;
}

/* Returns an entry for a name of the model, which the caller completes. */
static model_entry name_of(model_list *l, const model_entry *of, model_kind kind,
                           const char *name) {
    model_entry e = {.kind = kind,
                     .name = name,
                     .model = of->model,
                     .changed_at = system_wall_clock(),
                     .system = of->system,
                     .parameters = of->parameters,
                     .is_saved = true};
    model_list_digest(l, of, e.digest);
    return e;
}

bool manage_add_alias(served_models *s, const model_entry *of, const char *name, char *reason) {
    pthread_mutex_lock(&s->changing);
    const model_entry e = name_of(s->list, of, MODEL_ALIAS, name);
    bool ok = !atomic_load(&of->is_removed);
    if (ok) ok = put_name(s, &e, reason) == 0;
    else snprintf(reason, REASON_SIZE, "%.100s: deleted meanwhile", of->name);
    pthread_mutex_unlock(&s->changing);
    return ok;
}

/* Adds a name whose base find_stored() has found. The caller holds `changing`. */
static bool derive(const serve_http_request *http, model_entry *e, serve_error *error) {
    char reason[REASON_SIZE];
    served_models *s = models_of(http);
    model_entry_digest(e, model_list_of(s->list, e->model)->digest);
    const int status = put_name(s, e, reason);
    return !status || reject_request(error, status, status == 400 ? "model" : NULL, "%s", reason);
}

typedef bool (*change_fn)(serve_http_request *http, serve_error *e);

static bool make_change(change_fn change, serve_http_request *http, serve_error *e) {
    served_models *s = models_of(http);
    pthread_mutex_lock(&s->changing);
    const bool ok = change(http, e);
    pthread_mutex_unlock(&s->changing);
    return ok;
}

/* ---- copy ---- */

static bool copy_model(serve_http_request *http, serve_error *e) {
    const char *source = NULL, *destination = NULL;
    if (!field_string(http_body(http), "source", &source, e) ||
        !field_string(http_body(http), "destination", &destination, e))
        return false;
    const model_entry *from = find_stored(http, source, e);
    char *name = from ? read_new_name("destination", destination, e) : NULL;
    if (!name) return false;
    model_entry copy = name_of(http_models(http), from, MODEL_DERIVED, name);
    const bool ok = derive(http, &copy, e);
    free(name);
    return ok;
}

static void manage_copy(serve_http_request *http) {
    serve_error e;
    if (make_change(copy_model, http, &e)) http_reply_text(http, 200, NULL, "", 0);
    else http_reply_error(http, &e);
}

/* ---- create ---- */

/* Rejects members of a Modelfile that need other weights or another template. */
static bool check_supported(const json_t *body, serve_error *e) {
    static const struct {
        const char *name, *reason;
    } all[] = {
        {"template", "not supported: the model's own template is used; serve --chat-template "
                     "replaces it"},
        {"files", "not supported: put the file into the store, or pull it"},
        {"draft_files", "not supported: serve loads no draft models"},
        {"remote_host", "not supported: models run on this machine"},
        {"adapters", "not supported: merge the adapter into the model"},
        {"messages", "not supported: send them with each request"},
        {"quantize", "not supported: use 'antigravity quantize'"},
        {"quantization", "not supported: use 'antigravity quantize'"},
        {"modelfile", "not supported: send from, system and parameters"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const json_t *given = field_get(body, all[i].name);
        const char *text = json_string_value(given);
        const bool is_empty = !given || json_is_null(given) || (text && !*text) ||
                              (json_is_array(given) && !json_array_size(given)) ||
                              (json_is_object(given) && !json_object_size(given));
        if (!is_empty) return reject_field(e, all[i].name, "%s", all[i].reason);
    }
    return true;
}

/* Writes the parameters of `from`, replaced by the given ones, as a text that the caller frees. */
static bool merge_parameters(const char *of_base, json_t *given, char **out, serve_error *e) {
    serve_request trial;
    *out = NULL;
    if (!given && !of_base) return true;
    serve_request_init(&trial);
    const bool is_valid = !given || ollama_read_options(given, &trial, e);
    serve_request_free(&trial);
    if (!is_valid) return false;
    json_t *all = of_base ? json_loads(of_base, 0, NULL) : json_object();
    const bool ok = all && (!given || json_object_update(all, given) == 0);
    char *text = ok ? json_dumps(all, JSON_COMPACT) : NULL;
    json_decref(all);
    /* The list outlives the request, whose account counts what JSON allocates. */
    *out = text ? strdup(text) : NULL;
    account_free(text);
    return *out || reject_no_memory(e);
}

static bool create_model(serve_http_request *http, serve_error *e) {
    const char *given = NULL, *from = NULL, *system = NULL;
    json_t *parameters = NULL;
    const json_t *body = http_body(http);
    if (!ollama_read_name(body, &given, e) || !field_string(body, "from", &from, e) ||
        !field_string(body, "system", &system, e) ||
        !field_object(body, "parameters", &parameters, e) || !check_supported(body, e))
        return false;
    if (!from) return reject_field(e, "from", "missing: name the model to start from");
    const model_entry *base = find_stored(http, from, e);
    char *name = base ? read_new_name("model", given, e) : NULL;
    char *text = NULL;
    if (!name) return false;
    model_entry made = name_of(http_models(http), base, MODEL_DERIVED, name);
    if (system) made.system = *system ? system : NULL;
    bool ok = merge_parameters(base->parameters, parameters, &text, e);
    made.parameters = text;
    ok = ok && derive(http, &made, e);
    free(text);
    free(name);
    return ok;
}

static void manage_create(serve_http_request *http) {
    serve_error e;
    if (!make_change(create_model, http, &e)) {
        http_reply_error(http, &e);
        return;
    }
    const json_t *stream = json_object_get(http_body(http), "stream");
    static const char lines[] = "{\"status\":\"using the files of the base model\"}\n"
                                "{\"status\":\"success\"}\n";
    if (json_is_false(stream))
        http_reply_json(http, 200, JSON_OBJECT({"status", json_string("success")}));
    else http_reply_text(http, 200, "application/x-ndjson", lines, sizeof lines - 1);
}

/* ---- delete ---- */

/* Writes the names of models that use the files of `base`. Returns whether there are any. */
static bool list_users(const model_list *l, const model_entry *base, char *names, size_t size) {
    size_t n = 0;
    for (const model_entry *e = NULL; (e = model_list_next(l, e));)
        if (e->kind == MODEL_DERIVED && e->model == base->model && n < size)
            n += (size_t)snprintf(names + n, size - n, "%s%s", n ? ", " : "", e->name);
    return n > 0;
}

/* Removes the files of a model and its aliases. The caller holds `changing`. */
static bool delete_files(served_models *s, const model_entry *base, serve_error *e) {
    char names[300], reason[REASON_SIZE];
    model_store store;
    size_t found;
    if (list_users(s->list, base, names, sizeof names))
        return reject_request(e, 409, "model", "%.100s: delete the models of its files first: %s",
                              base->name, names);
    int error = store_open_at(&store, s->store) == EXIT_DONE ? 0 : EIO;
    for (found = 0; found < store.n; found++)
        if (!strcmp(store.entries[found].file, base->file)) break;
    if (!error && found == store.n) error = ENOENT;
    if (!error) error = store_remove(&store, &store.entries[found]);
    store_close(&store);
    if (error && error != ENOENT)
        return reject_request(e, 500, NULL, "%.100s: cannot be deleted: %s", base->name,
                              strerror(error));
    ag_serving_remove_model(s->engine, base->model);
    model_list_remove(s->list, base);
    return model_names_save(s, reason) || reject_request(e, 500, NULL, "%s", reason);
}

static bool delete_model(serve_http_request *http, serve_error *e) {
    char reason[REASON_SIZE];
    const char *given = NULL;
    served_models *s = models_of(http);
    if (!ollama_read_name(http_body(http), &given, e)) return false;
    char *name = given ? without_latest(given) : NULL;
    if (given && !name) return reject_no_memory(e);
    /* Never by a shortened name. */
    const model_entry *m = name ? model_list_exact(s->list, name) : NULL;
    if (!m && given) m = model_list_exact(s->list, given);
    free(name);
    if (!m)
        return reject_request(e, 404, "model", "model '%.200s' not found; give its full name",
                              given ? given : "");
    if (!find_stored(http, m->name, e)) return false;
    if (m->kind != MODEL_DERIVED) return delete_files(s, model_list_of(s->list, m->model), e);
    model_list_remove(s->list, m);
    if (model_names_save(s, reason)) return true;
    model_list_restore(s->list, m);
    return reject_request(e, 500, NULL, "%s", reason);
}

static void manage_delete(serve_http_request *http) {
    serve_error e;
    if (make_change(delete_model, http, &e)) http_reply_text(http, 200, NULL, "", 0);
    else http_reply_error(http, &e);
}

const serve_route management_routes[] = {
    {"POST", "/api/pull", .handle = manage_pull, .error = ollama_error, .changes_models = true},
    {"POST", "/api/create", .handle = manage_create, .error = ollama_error, .changes_models = true},
    {"POST", "/api/copy", .handle = manage_copy, .error = ollama_error, .changes_models = true},
    {"DELETE", "/api/delete", .handle = manage_delete, .error = ollama_error,
     .changes_models = true},
    {0},
};
