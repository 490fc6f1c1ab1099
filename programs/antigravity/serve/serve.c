/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity serve: opens sockets and models, then runs the server. */
#include "../command.h"
#include "../model/engine.h"
#include "../model/model_dir.h"
#include "../model/store.h"
#include "../terminal/output.h"
#include "models/model_names.h"
#include "serve_options.h"
#include "server_loop.h"
#include "system.h"
#include "threads/account.h"

#include <event2/event.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESERVED_FILES = 64 };

typedef struct serving_setup {
    serve_options options;
    ag_serving *engine;
    served_models models;
    const model_entry *first; /* model to load at the start; NULL: none */
    listeners listeners;
    char answers[PATH_MAX]; /* path of the file that keeps the answer memory */
    char device[8];         /* number of the device that -b auto chose */
    tls_files *tls;
} serving_setup;

static void log_message(void *user, ag_log_level level, const char *msg) {
    const model_options *o = user;
    if (level == AG_LOG_WARN || o->verbose) complain("%s", msg);
}

/* Adds what -m number i names: a model, or a directory of models. *out: the model. */
static int add_served(serving_setup *s, size_t i, const model_entry **out) {
    serve_options *o = &s->options;
    char *path = NULL;
    *out = NULL;
    int code = model_dir_find(o->served[i].path, o->model.quiet, &path);
    if (code == EXIT_DONE && served_models_is_directory(&s->models, path))
        code = served_models_add_directory(&s->models, path);
    else if (code == EXIT_DONE)
        code = served_models_add(&s->models, path, o->served[i].template_file,
                                 serve_keep_alive(o, false), out);
    free(path);
    return code;
}

static int add_models(serving_setup *s) {
    serve_options *o = &s->options;
    const model_entry *added[MAX_SERVED] = {NULL};
    int code =
        o->serves_store ? served_models_add_directory(&s->models, s->models.store) : EXIT_DONE;
    for (size_t i = 0; i < o->n_served && code == EXIT_DONE; i++)
        code = add_served(s, i, &added[i]);
    for (size_t i = 0; i < o->n_aliases && code == EXIT_DONE; i++) {
        const alias_option *a = &o->aliases[i];
        if (!added[a->model])
            return complain_usage(
                "--alias %s: it must follow the -m of a model, not of a directory", a->name);
        code = served_models_add_alias(&s->models, added[a->model], a->name);
    }
    model_names_load(&s->models);
    s->first = added[0];
    const bool may_grow = o->server.allow_pull && s->models.store[0];
    if (code != EXIT_DONE || may_grow || model_list_find(s->models.list, NULL)) return code;
    return complain_failure("no model to serve: none of the directory's models loads");
}

/* Selects the store if it has models and no other model was named, else the bundled model. The
 * store is the directory of models that was named, if one was. */
static int find_store(serving_setup *s) {
    serve_options *o = &s->options;
    served_models *m = &s->models;
    model_store store = {.n = 0};
    m->options = &o->model;
    m->store_limit = o->store_limit;
    pthread_mutex_init(&m->changing, NULL);
    m->keep_alive_s = serve_keep_alive(o, true);
    for (size_t i = 0; i < o->n_served && !m->store[0]; i++)
        if (o->served[i].path && served_models_is_directory(m, o->served[i].path))
            snprintf(m->store, sizeof m->store, "%s", o->served[i].path);
    if (!m->store[0] && !store_locate(m->store)) m->store[0] = '\0';
    if (o->n_served) return EXIT_DONE;
    const int code = m->store[0] ? store_open_at(&store, m->store) : EXIT_DONE;
    for (size_t i = 0; i < store.n; i++) o->serves_store |= !store.entries[i].is_part;
    store_close(&store);
    if (!o->serves_store) o->n_served = 1;
    return code;
}

/* Finds the model that -b auto chooses for: the first one, of -m or of the directory of models. */
static int find_first_model(const serving_setup *s, engine *e) {
    const serve_options *o = &s->options;
    model_store store = {.n = 0};
    char path[PATH_MAX];
    const ag_model_params params = model_params(&o->model);
    const char *named = o->n_served ? o->served[0].path : s->models.store;
    if (!named || !served_models_is_directory(&s->models, named)) {
        ag_error err;
        const int code = model_dir_find(named, true, &e->dir);
        if (code != EXIT_DONE) return code;
        return ag_model_inspect(e->dir, &params, &e->info, &err) == AG_OK ? EXIT_DONE
                                                                          : complain_error(&err);
    }
    int code = store_open_at(&store, named);
    for (size_t i = 0; i < store.n && code == EXIT_DONE && !e->dir; i++) {
        if (store.entries[i].is_part || !store_model_path(&store, &store.entries[i], path) ||
            ag_model_inspect(path, &params, &e->info, NULL) != AG_OK)
            continue;
        e->dir = strdup(path);
        if (!e->dir) code = complain_no_memory();
    }
    store_close(&store);
    return code;
}

/* Chooses the backend of -b auto. */
static int choose_backend(serving_setup *s, ag_backend_params *backend) {
    engine e = {.dir = NULL};
    const model_options *m = &s->options.model;
    int code = find_first_model(s, &e);
    backend->name = "cpu";
    if (code == EXIT_DONE && e.dir) {
        const engine_sessions one = {session_params(m, context_length(m, &e.info)), 1};
        code = engine_open_backend(&e, m, NULL, &one);
    } else if (code == EXIT_DONE && !m->quiet) {
        complain("backend: cpu; there is no model yet to choose for");
    }
    if (code == EXIT_DONE && e.device[0]) {
        snprintf(s->device, sizeof s->device, "%s", e.device);
        backend->name = "opencl";
        backend->device = s->device;
    }
    engine_close(&e);
    return code;
}

/* Called on the engine's thread. */
static uint64_t count_bytes(void *user) {
    const serve_options *o = user;
    return atomic_load(&o->bytes);
}

static int open_engine(serving_setup *s) {
    ag_error err;
    serve_options *o = &s->options;
    const model_options *m = &o->model;
    o->engine.backend = (ag_backend_params){
        .name = m->backend                  ? m->backend
                : m->wants_gpu || m->device ? "opencl"
                                            : NULL,
        .n_threads = m->threads,
        .log = m->quiet ? NULL : log_message,
        .log_user = (void *)(uintptr_t)m,
        .device = m->device,
        .zero_copy = m->zero_copy,
        .host_attention = m->host_attention,
    };
    int code = find_store(s);
    if (code == EXIT_DONE && chooses_backend(m)) code = choose_backend(s, &o->engine.backend);
    if (code != EXIT_DONE) return code;
    o->engine.caller_bytes = count_bytes;
    o->engine.caller_user = o;
    o->server.bytes = &o->bytes;
    if (o->engine.prefix_dir) {
        snprintf(s->answers, sizeof s->answers, "%s/answers", o->engine.prefix_dir);
        o->server.answers = s->answers;
    }
    o->server.max_running = o->engine.max_running;
    if (ag_serving_create(&o->engine, &s->engine, &err) != AG_OK) return complain_settings(&err);
    s->models.engine = s->engine;
    s->models.list = model_list_create();
    if (!s->models.list) return complain_no_memory();
    code = add_models(s);
    if (code != EXIT_DONE || o->load_later || !s->first) return code;
    if (ag_serving_load_model(s->engine, s->first->model, &err) != AG_OK)
        return complain_error(&err);
    return EXIT_DONE;
}

static bool open_tls(serving_setup *s) {
    char reason[TLS_REASON_SIZE];
    const serve_options *o = &s->options;
    if (!o->tls_cert) return true;
    s->tls = tls_open(o->tls_cert, o->tls_key, reason);
    if (!s->tls) complain("%s", reason);
    s->listeners.use_tls = s->tls != NULL;
    return s->tls != NULL;
}

/* Opens sockets and checks keys before models are loaded, so that errors appear at once. */
static int open_sockets(serving_setup *s) {
    size_t n_inherited;
    api_keys keys = {.n = 0};
    char reason[256];
    const serve_options *o = &s->options;
    if (!open_tls(s)) return EXIT_USAGE;
    if (!listen_inherited(&s->listeners, &n_inherited)) return EXIT_FAILED;
    if (o->unix_path && !listen_unix(&s->listeners, o->unix_path)) return EXIT_FAILED;
    if (o->host && !n_inherited && !listen_tcp(&s->listeners, o->host, o->port)) return EXIT_FAILED;
    if (s->tls && listeners_are_local(&s->listeners))
        return complain_usage(
            "--tls-cert: Unix sockets do not use TLS; give --host for a TCP socket");
    if (!api_keys_load(&keys, o->server.key_file, reason)) return complain_usage("%s", reason);
    const bool has_keys = keys.n > 0;
    api_keys_free(&keys);
    if (has_keys || o->insecure || !listeners_are_public(&s->listeners)) return EXIT_DONE;
    return complain_usage(
        "refusing to listen on a public address without API keys: give --api-key-file, set "
        "ANTIGRAVITY_API_KEY, or pass --insecure");
}

/* Every connection is a file: lowers *max_connections to the limit on open files. */
static void limit_connections(uint32_t *max_connections) {
    const size_t limit = system_raise_file_limit();
    const size_t max = limit > 2 * RESERVED_FILES ? limit - RESERVED_FILES : RESERVED_FILES;
    if (*max_connections > max) *max_connections = (uint32_t)max;
}

int command_serve(int argc, char **argv) {
    serving_setup s = {.first = NULL};
    account_install();
    event_set_mem_functions(account_malloc, account_realloc, account_free);
    int code = serve_options_read(&s.options, argc, argv);
    if (code != OPTIONS_RUN) return code;
    serve_presets *presets = serve_presets_read();
    s.options.server.presets = presets;
    system_limit_heap();
    limit_connections(&s.options.server.limits.max_connections);
    code = open_sockets(&s);
    s.options.server.tls = s.tls;
    if (code == EXIT_DONE) code = open_engine(&s);
    if (code == EXIT_DONE) {
        s.options.server.models = &s.models;
        code = server_run(&s.options.server, s.engine, &s.listeners);
    }
    listeners_close(&s.listeners);
    ag_serving_destroy(s.engine);
    model_list_destroy(s.models.list);
    tls_close(s.tls);
    json_decref(s.options.server.template_variables);
    serve_presets_free(presets);
    return code;
}
