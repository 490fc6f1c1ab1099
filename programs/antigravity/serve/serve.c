/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity serve: opens sockets and models, then runs the server. */
#include "../chat/transcript.h"
#include "../chat/transcript_options.h"
#include "../command.h"
#include "../model/head_file.h"
#include "../model/model_dir.h"
#include "../terminal/output.h"
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
    ag_served_model *models[MAX_SERVED];
    const char *names[MAX_SERVED + MAX_ALIASES];
    size_t n_names;
    char digests[MAX_SERVED][SHA256_HEX];
    listeners listeners;
    char answers[PATH_MAX]; /* path of the file that keeps the answer memory */
    tls_files *tls;
} serving_setup;

static void log_message(void *user, ag_log_level level, const char *msg) {
    const model_options *o = user;
    if (level == AG_LOG_WARN || o->verbose) complain("%s", msg);
}

/* Writes "Qwen3-0.6B-Q8_0" for ".../Qwen3-0.6B-Q8_0.gguf". */
static void name_model(const char *path, char *name, size_t cap) {
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t begin = n;
    while (begin && path[begin - 1] != '/') begin--;
    n -= begin;
    if (n > 5 && !strncmp(path + begin + n - 5, ".gguf", 5)) n -= 5;
    snprintf(name, cap, "%.*s", (int)n, path + begin);
}

/* Finds a template to use instead of the model's own. *out NULL: the model's own. */
static int find_template(const served_option *m, const char *dir, bool quiet, char **out) {
    ag_error err;
    ag_text own = {0};
    *out = NULL;
    if (m->template_file) return transcript_template_read(m->template_file, out);
    const ag_status st = ag_chat_template_load(dir, &own, &err);
    ag_text_free(&own);
    if (st != AG_NOT_FOUND) return EXIT_DONE;
    if (!quiet) complain("%s: no chat template found; chats use a plain text template", dir);
    *out = strdup(transcript_plain_template());
    return *out ? EXIT_DONE : complain_no_memory();
}

static void report_unprobed(const ag_served_model *m, const char *name) {
    const ag_chat_format *f = ag_served_model_format(m);
    const char *reason = f ? ag_chat_format_not_probed(f) : NULL;
    if (reason) complain("%s: chat template: not probed: %s", name, reason);
}

/* Writes a digest that changes with the file: of path, size and time of change. The file itself is
 * not read. */
static void make_digest(const char *path, uint64_t n_bytes, char digest[SHA256_HEX]) {
    char stamp[64];
    sha256 sum;
    snprintf(stamp, sizeof stamp, "\n%llu\n%.9f", (unsigned long long)n_bytes,
             system_change_time(path));
    sha256_begin(&sum);
    sha256_add(&sum, path, strlen(path));
    sha256_add(&sum, stamp, strlen(stamp));
    sha256_hex(&sum, digest);
}

static int add_model_at(serving_setup *s, size_t i, const char *dir) {
    char name[256];
    char *jinja = NULL;
    ag_error err;
    ag_model_info info;
    serve_options *o = &s->options;
    const ag_model_params params = model_params(&o->model);
    if (ag_model_inspect(dir, &params, &info, &err) != AG_OK) return complain_error(&err);
    int code = head_file_fits(&o->model.eviction.params, &info);
    if (code != EXIT_DONE) return code;
    code = find_template(&o->served[i], dir, o->model.quiet, &jinja);
    if (code != EXIT_DONE) return code;
    name_model(dir, name, sizeof name);
    const ag_served_model_params served = {
        .name = name,
        .path = dir,
        .model = params,
        .session = session_params(&o->model, context_length(&o->model, &info)),
        .chat_template = jinja,
    };
    if (ag_serving_add_model(s->engine, &served, &s->models[i], &err) != AG_OK)
        code = complain_settings(&err);
    else s->names[s->n_names++] = ag_served_model_name(s->models[i]);
    make_digest(dir, info.file_bytes, s->digests[i]);
    if (code == EXIT_DONE) report_unprobed(s->models[i], name);
    free(jinja);
    return code;
}

static int add_models(serving_setup *s) {
    serve_options *o = &s->options;
    for (size_t i = 0; i < o->n_served; i++) {
        char *dir = NULL;
        int code = model_dir_find(o->served[i].path, o->model.quiet, &dir);
        if (code == EXIT_DONE) code = add_model_at(s, i, dir);
        free(dir);
        if (code != EXIT_DONE) return code;
    }
    for (size_t i = 0; i < o->n_aliases; i++) {
        ag_error err;
        const alias_option *a = &o->aliases[i];
        if (ag_serving_add_alias(s->engine, s->models[a->model], a->name, &err) != AG_OK)
            return complain_settings(&err);
        s->names[s->n_names++] = a->name;
    }
    return EXIT_DONE;
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
    o->engine.caller_bytes = count_bytes;
    o->engine.caller_user = o;
    o->server.bytes = &o->bytes;
    if (o->engine.prefix_dir) {
        snprintf(s->answers, sizeof s->answers, "%s/answers", o->engine.prefix_dir);
        o->server.answers = s->answers;
    }
    o->server.max_running = o->engine.max_running;
    if (ag_serving_create(&o->engine, &s->engine, &err) != AG_OK) return complain_settings(&err);
    int code = add_models(s);
    if (code != EXIT_DONE || o->load_later) return code;
    if (ag_serving_load_model(s->engine, s->models[0], &err) != AG_OK) return complain_error(&err);
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
    serving_setup s = {.n_names = 0};
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
        s.options.server.names = s.names;
        s.options.server.n_names = s.n_names;
        s.options.server.digests = (const char(*)[SHA256_HEX])s.digests;
        code = server_run(&s.options.server, s.engine, &s.listeners);
    }
    listeners_close(&s.listeners);
    ag_serving_destroy(s.engine);
    tls_close(s.tls);
    json_decref(s.options.server.template_variables);
    serve_presets_free(presets);
    return code;
}
