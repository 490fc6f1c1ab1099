/* SPDX-License-Identifier: Apache-2.0 */
/* POST /api/pull: runs 'antigravity pull' as a process of its own and streams its progress. One
 * pull runs at a time. Functions run on the thread of the event loop unless they say otherwise. */
#include "pull_request.h"

#include "../../command.h"
#include "../../support/json_out.h"
#include "../../terminal/output.h"
#include "../ollama/ollama.h"
#include "../protocol/fields.h"
#include "../request/http_request.h"
#include "../system.h"
#include "management.h"
#include "model_names.h"

#include <errno.h>
#include <event2/event.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_SIZE = 8192, NAME_SIZE = 256, REASON_SIZE = 256 };

struct pull_request {
    work_item item; /* adds the model; must be first */
    serve_http_request *http;
    bool streams;
    char name[NAME_SIZE]; /* as the client wrote it, without ":latest" */
    char digest[SHA256_HEX];
    pid_t pid;
    int output;
    struct event *readable;
    char line[LINE_SIZE]; /* [n_line] of an incomplete line */
    size_t n_line;
    char path[PATH_MAX];     /* path of the model, after success */
    char error[REASON_SIZE]; /* "": none */
};

/* ---- the reply ---- */

/* Sends a line of the stream. The value is transferred. */
static void send_line(pull_request *p, json_t *value) {
    connection *c = p->http->connection;
    char *text = value ? json_dumps(value, JSON_COMPACT) : NULL;
    json_decref(value);
    if (text && c && p->streams && connection_stream(c, text, strlen(text)))
        (void)connection_stream(c, "\n", 1);
    account_free(text);
}

static void send_status(pull_request *p, const char *status) {
    send_line(p, JSON_OBJECT({"status", json_string(status)}));
}

static void begin_reply(pull_request *p) {
    serve_http_request *http = p->http;
    char headers[sizeof http->headers + 64];
    if (!p->streams) return;
    http->status = 200;
    http->server->counts.n_streams++;
    snprintf(headers, sizeof headers, "%sX-Request-Id: %s\r\n", http->headers, http->id);
    connection_begin_stream(http->connection, 200, "application/x-ndjson", headers);
    send_status(p, "pulling manifest");
}

static void reply_error(pull_request *p) {
    serve_error e;
    reject_request(&e, 500, NULL, "%s", p->error);
    if (p->streams) send_line(p, ollama_error(&e));
    else if (p->http->connection) http_send_error(p->http, &e);
}

/* Ends the reply and frees the pull. */
static void end_pull(pull_request *p) {
    serve_http_request *http = p->http;
    if (p->error[0]) reply_error(p);
    else if (p->streams) send_status(p, "success");
    else http_reply_json(http, 200, JSON_OBJECT({"status", json_string("success")}));
    if (p->streams && http->connection) connection_end_stream(http->connection);
    else if (!p->error[0]) http_send_reply(http);
    http->server->pull = NULL;
    free(p);
    http_request_release(http);
}

/* ---- the model ---- */

static const model_entry *find_path(const served_models *s, const char *path) {
    const char *slash = strrchr(path, '/'), *file = slash ? slash + 1 : path;
    const model_entry *e = NULL;
    while ((e = model_list_next(s->list, e)))
        if (e->file && !strcmp(e->file, file)) break;
    return e;
}

/* Adds the model that was fetched, with the name that the client knows. Runs on a worker's thread.
 */
static void add_model(work_item *item) {
    pull_request *p = (pull_request *)item;
    served_models *s = p->http->server->settings->models;
    const model_entry *m = find_path(s, p->path);
    if (m) served_models_refresh(s, m, p->path);
    if (!m && served_models_add(s, p->path, NULL, s->keep_alive_s, &m) != EXIT_DONE) {
        snprintf(p->error, sizeof p->error,
                 "the model was fetched, but it does not load; the server's log has the reason");
        return;
    }
    if (model_list_find(s->list, p->name) != m) manage_add_alias(s, m, p->name, p->error);
}

static void end_adding(work_item *item) { end_pull((pull_request *)item); }

/* ---- the process ---- */

static void read_progress(pull_request *p, const json_t *line) {
    const char *path = json_string_value(json_object_get(line, "path"));
    const char *step = json_string_value(json_object_get(line, "step"));
    const char *hash = json_string_value(json_object_get(line, "sha256"));
    char status[64], digest[sizeof "sha256:" + SHA256_HEX];
    if (path) snprintf(p->path, sizeof p->path, "%s", path);
    if (!step) return;
    if (hash && strlen(hash) == SHA256_HEX - 1) memcpy(p->digest, hash, SHA256_HEX);
    snprintf(status, sizeof status, "pulling %.12s", p->digest);
    snprintf(digest, sizeof digest, "sha256:%s", p->digest);
    if (!strcmp(step, "checking")) {
        send_status(p, "verifying sha256 digest");
        return;
    }
    send_line(p,
              JSON_OBJECT(
                  {"status", json_string(status)}, {"digest", json_string(digest)},
                  {"total", json_integer(json_integer_value(json_object_get(line, "total")))},
                  {"completed", json_integer(json_integer_value(json_object_get(line, "done")))}));
}

/* Reads a line of the process: progress as JSON, or a message. */
static void read_line(pull_request *p, const char *text) {
    static const char prefix[] = "antigravity pull: ";
    json_t *line = text[0] == '{' ? json_loads(text, 0, NULL) : NULL;
    if (line) {
        read_progress(p, line);
    } else {
        const size_t n = sizeof prefix - 1;
        snprintf(p->error, sizeof p->error, "%.*s", REASON_SIZE - 1,
                 !strncmp(text, prefix, n) ? text + n : text);
        complain("pull %s: %s", p->name, p->error);
    }
    json_decref(line);
}

static void read_lines(pull_request *p) {
    char *begin = p->line, *end;
    p->line[p->n_line] = '\0';
    while ((end = strchr(begin, '\n'))) {
        *end = '\0';
        read_line(p, begin);
        begin = end + 1;
    }
    p->n_line -= (size_t)(begin - p->line);
    if (p->n_line + 1 == LINE_SIZE) p->n_line = 0; /* no line of the program is so long */
    memmove(p->line, begin, p->n_line);
}

/* Waits for the process and frees what reads from it. Returns its exit code. */
static int end_process(pull_request *p) {
    const int code = system_wait(p->pid);
    p->pid = 0; /* the number may be another process's now */
    if (p->readable) event_free(p->readable);
    close(p->output);
    return code;
}

/* Continues after the end of the process. */
static void after_process(pull_request *p) {
    server *s = p->http->server;
    const int code = end_process(p);
    if (code == 0 && p->path[0]) p->error[0] = '\0';
    else if (s->n_stops) snprintf(p->error, sizeof p->error, "the server is shutting down");
    else if (!p->error[0]) snprintf(p->error, sizeof p->error, "the pull failed (status %d)", code);
    p->item.work = add_model;
    p->item.done = end_adding;
    p->item.is_large = true;
    if (!p->error[0] && !s->n_stops && workers_add(s->workers, &p->item)) return;
    if (!p->error[0])
        snprintf(p->error, sizeof p->error, "the server is busy; pull the model again");
    end_pull(p);
}

static void on_output(evutil_socket_t fd, short what, void *user) {
    pull_request *p = user;
    (void)what;
    const ssize_t n = read(fd, p->line + p->n_line, sizeof p->line - 1 - p->n_line);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        after_process(p);
        return;
    }
    p->n_line += (size_t)n;
    read_lines(p);
}

void pull_cancel(pull_request *p) {
    if (p && p->pid > 0) kill(p->pid, SIGTERM);
}

void pull_client_gone(const serve_http_request *http) {
    pull_request *p = http->server->pull;
    if (p && p->http == http) pull_cancel(p);
}

/* Starts the process. Returns false with p->error. */
static bool start_process(pull_request *p) {
    server *s = p->http->server;
    const served_models *models = s->settings->models;
    char limit[32], store[PATH_MAX + 32];
    snprintf(limit, sizeof limit, "%" PRIu64, models->store_limit);
    snprintf(store, sizeof store, "ANTIGRAVITY_MODELS=%s", models->store);
    const char *const args[] = {
        "antigravity", "pull", p->name, "--json", models->store_limit ? "--store-limit" : NULL,
        limit,         NULL};
    p->pid = system_run_self(args, store, &p->output);
    if (p->pid < 0) {
        snprintf(p->error, sizeof p->error, "cannot start 'antigravity pull': %s", strerror(errno));
        return false;
    }
    p->readable = event_new(s->base, p->output, EV_READ | EV_PERSIST, on_output, p);
    if (p->readable && event_add(p->readable, NULL) == 0) return true;
    snprintf(p->error, sizeof p->error, "out of memory");
    pull_cancel(p);
    (void)end_process(p);
    return false;
}

void pull_start(serve_http_request *http) {
    pull_request *p = http->pull;
    server *s = http->server;
    serve_error e;
    http->pull = NULL;
    if (s->pull || s->n_stops || !http->connection) {
        free(p);
        reject_request(&e, 503, NULL,
                       s->n_stops ? "the server is shutting down"
                                  : "another pull is running; retry later");
        http_send_error(http, &e);
        return;
    }
    http_request_retain(http);
    s->pull = p;
    begin_reply(p);
    /* The reply may end the connection: then no client can cancel the process. */
    if (!http->connection || !start_process(p)) end_pull(p);
}

/* Reads the request. Runs on a worker's thread. */
static bool read_request(serve_http_request *http, serve_error *e) {
    static const char latest[] = ":latest";
    const char *name = NULL;
    bool streams = true;
    const served_models *s = http->server->settings->models;
    if (!ollama_read_name(http_body(http), &name, e) ||
        !field_bool(http_body(http), "stream", &streams, e))
        return false;
    if (!name || !model_name_is_valid(name))
        return reject_field(e, "model",
                            "'%.100s' is not the name of a model of the hub: use ORG/NAME or "
                            "ORG/NAME:QUANT",
                            name ? name : "");
    if (!s->store[0])
        return reject_request(e, 500, NULL, "no directory for models: set ANTIGRAVITY_MODELS");
    pull_request *p = calloc(1, sizeof *p);
    if (!p) return reject_no_memory(e);
    size_t n = strlen(name);
    const size_t k = sizeof latest - 1;
    if (n > k && !strcmp(name + n - k, latest)) n -= k;
    snprintf(p->name, sizeof p->name, "%.*s", (int)n, name);
    sha256 sum;
    sha256_begin(&sum);
    sha256_add(&sum, p->name, strlen(p->name));
    sha256_hex(&sum, p->digest);
    p->streams = streams;
    p->http = http;
    http->pull = p;
    return true;
}

void manage_pull(serve_http_request *http) {
    serve_error e;
    if (!read_request(http, &e)) http_reply_error(http, &e);
}
