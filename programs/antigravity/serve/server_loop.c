/* SPDX-License-Identifier: Apache-2.0 */
#include "server_loop.h"

#include "../command.h"
#include "../terminal/output.h"
#include "clock.h"
#include "job/job.h"
#include "models/pull_request.h"
#include "models/served_models.h"
#include "notify.h"
#include "request/dispatch.h"

#include <signal.h>
#include <time.h>

enum { MAX_WAITING_ITEMS = 256, SIGNALS = 3 };

/* ---- memory ---- */

enum { CONNECTION_BYTES = 8192 }; /* bytes of an idle connection, approximately */

/* Publishes the memory of connections to the accounts, and the certainly resident bytes to the
 * engine. The engine keeps its reserve for the difference. */
static void publish_bytes(server *s) {
    const size_t n_tls = connection_tls_count(s->connections);
    atomic_store(&s->accounts.others,
                 connection_count(s->connections) * CONNECTION_BYTES + n_tls * TLS_MAX_BYTES);
    atomic_store(s->settings->bytes,
                 atomic_load(&s->accounts.resident) + answer_memory_bytes(s->answers) +
                     response_store_bytes(s->responses) + n_tls * TLS_MIN_BYTES);
}

/* ---- requests ---- */

static bool on_head(void *user, connection *c) {
    serve_error e;
    serve_http_request *http = http_request_create(user, c);
    if (!http) {
        static const char body[] = "{\"error\":{\"message\":\"out of memory\"}}";
        connection_reply(c, 503, "application/json", "", body, sizeof body - 1);
        return false;
    }
    if (!http_request_admit(http, &e)) {
        http_send_error(http, &e);
        return false;
    }
    if (http->route) return true;
    http_send_reply(http);
    return false;
}

static void on_request(void *user, connection *c) {
    (void)user;
    http_request_start(connection_owner(c));
}

static void on_malformed(void *user, connection *c, int status, const char *reason) {
    serve_error e;
    serve_http_request *http = connection_owner(c);
    if (!http) http = http_request_create(user, c);
    if (!http) {
        connection_reply(c, status, NULL, "", "", 0);
        return;
    }
    reject_request(&e, status, NULL, "%s", reason);
    http_send_error(http, &e);
}

static void on_end(void *user, connection *c, bool complete) {
    (void)user;
    serve_http_request *http = connection_owner(c);
    if (http) http_request_end(http, complete);
}

static void on_accepted(void *user, evutil_socket_t fd, bool is_local) {
    server *s = user;
    connection_accept(s->connections, fd, is_local);
    publish_bytes(s);
}

/* ---- signals and time ---- */

static void load_keys(server *s) {
    char reason[256];
    if (api_keys_load(&s->keys, s->settings->key_file, reason)) {
        complain("loaded %zu API keys", s->keys.n);
        return;
    }
    complain("cannot reload the API keys: %s; keeping the old ones", reason);
}

static void load_certificate(server *s) {
    char reason[TLS_REASON_SIZE];
    if (!s->settings->tls) return;
    if (tls_reload(s->settings->tls, reason)) complain("reloaded the certificate");
    else complain("cannot reload the certificate: %s; keeping the old one", reason);
}

static void begin_stop(server *s) {
    if (s->n_stops++) {
        s->stop_at = clock_s();
        return;
    }
    s->stop_at = clock_s() + s->settings->grace_s;
    notify_stopping();
    complain("stopping: running requests have %u s to end", s->settings->grace_s);
    listeners_close(s->listeners);
    pull_cancel(s->pull);
    connection_set_drain(s->connections);
}

static void on_signal(evutil_socket_t number, short what, void *user) {
    (void)what;
    if (number != SIGHUP) {
        begin_stop(user);
        return;
    }
    notify_reloading();
    load_keys(user);
    load_certificate(user);
    notify_ready();
}

static void on_tick(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    server *s = user;
    const double now = clock_s();
    publish_bytes(s);
    const bool cancel = s->n_stops && now >= s->stop_at;
    if (cancel) {
        atomic_store(&s->accounts.is_closing, true);
        connection_set_reject_unread(s->connections);
    }
    for (serve_job *job = s->first_job, *next; job; job = next) {
        next = job_next(job);
        if (cancel) job_cancel(job);
        else job_tick(job, now);
    }
    if (!s->n_stops) return;
    const bool is_done = !s->n_requests && !connection_count(s->connections);
    /* Clients that do not read their response and lingering connections may delay the stop by 5
     * s. */
    if (is_done || now > s->stop_at + 5) event_base_loopbreak(s->base);
}

/* ---- start and end ---- */

/* Creates the memory of answers and the store of responses, and loads the saved answers. A file
 * that cannot be read is reported and ignored. */
static bool open_answers(server *s) {
    char reason[ANSWER_REASON_SIZE];
    const char *path = s->settings->answers;
    s->responses = response_store_create(s->settings->response_bytes);
    /* Last: close_answers() saves it, so it must have been loaded. */
    s->answers = s->responses ? answer_memory_create(s->settings->answer_bytes) : NULL;
    if (!s->answers) {
        complain_no_memory();
        return false;
    }
    if (path && !answer_memory_load(s->answers, path, reason)) complain("%s", reason);
    return true;
}

static void close_answers(server *s) {
    char reason[ANSWER_REASON_SIZE];
    const char *path = s->settings->answers;
    if (s->answers && path && !answer_memory_save(s->answers, path, reason)) complain("%s", reason);
    answer_memory_destroy(s->answers);
    response_store_destroy(s->responses);
}

static bool open_server(server *s, const server_settings *settings) {
    char reason[256];
    const connection_events events = {
        .head = on_head,
        .request = on_request,
        .malformed = on_malformed,
        .ended = on_end,
        .user = s,
    };
    if (!api_keys_load(&s->keys, settings->key_file, reason)) {
        complain("%s", reason);
        return false;
    }
    if (!access_log_open(&s->log, settings->log)) return false;
    if (!open_answers(s)) return false;
    s->base = event_base_new();
    s->connections = s->base ? connection_set_create(s->base, &settings->limits, &events,
                                                     settings->tls, &s->accounts)
                             : NULL;
    s->queue = s->connections ? loop_queue_create(s->base) : NULL;
    s->workers = s->queue ? workers_create(s->queue, settings->n_workers, MAX_WAITING_ITEMS) : NULL;
    s->cleaner = s->workers ? workers_create(s->queue, 1, SIZE_MAX) : NULL;
    s->listeners->accepted = on_accepted;
    s->listeners->user = s;
    if (s->cleaner && listeners_start(s->listeners, s->base)) return true;
    complain_no_memory();
    return false;
}

/* Waits until the engine has ended every request, since its callbacks use the server's state. A
 * further signal ends the process at once. */
static void wait_for_requests(server *s) {
    while (s->n_requests) {
        const struct timeval interval = {.tv_usec = 10000};
        for (serve_job *job = s->first_job; job; job = job_next(job)) job_cancel(job);
        if (event_base_loopexit(s->base, &interval) != 0) return;
        event_base_dispatch(s->base);
    }
}

static void close_server(server *s) {
    connection_set_destroy(s->connections);
    s->connections = NULL;
    workers_destroy(s->workers);
    wait_for_requests(s);
    workers_destroy(s->cleaner);
    s->cleaner = NULL;
    loop_queue_destroy(s->queue);
    listeners_close(s->listeners);
    if (s->base) event_base_free(s->base);
    access_log_close(&s->log);
    api_keys_free(&s->keys);
    close_answers(s);
}

/* Reports where the page is, and the models; of a long list the first names and a number. */
static void announce_models(const server *s) {
    enum { MAX_NAMES = 300 };
    char names[MAX_NAMES + 256] = "", page[200] = "", address[160];
    size_t n = 0, n_more = 0;
    const model_list *models = s->settings->models->list;
    for (const model_entry *e = NULL; (e = model_list_next_shown(models, e));) {
        if (n < MAX_NAMES)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", e->name);
        else n_more++;
    }
    if (n_more) snprintf(names + n, sizeof names - n, " and %zu more", n_more);
    if (s->listeners->n && !listeners_are_local(s->listeners))
        snprintf(page, sizeof page, "page: %s/; ",
                 listener_name(s->listeners, 0, address, sizeof address));
    complain("%smodels: %s", page, names);
}

static void announce(const server *s) {
    char name[160];
    for (size_t i = 0; i < s->listeners->n; i++)
        complain("listening on %s", listener_name(s->listeners, i, name, sizeof name));
    if (!s->settings->models->options->quiet) announce_models(s);
    notify_ready();
}

static int run_loop(server *s) {
    static const int numbers[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
    struct event *events[SIGNALS + 1] = {NULL};
    const struct timeval tick = {.tv_usec = 200000};
    bool ok = true;
    for (size_t i = 0; i < SIGNALS; i++) {
        events[i] = evsignal_new(s->base, numbers[i], on_signal, s);
        ok = ok && events[i] && event_add(events[i], NULL) == 0;
    }
    events[SIGNALS] = event_new(s->base, -1, EV_PERSIST, on_tick, s);
    ok = ok && events[SIGNALS] && event_add(events[SIGNALS], &tick) == 0;
    if (ok) {
        announce(s); /* signals are handled now */
        event_base_dispatch(s->base);
    }
    for (size_t i = 0; i <= SIGNALS; i++)
        if (events[i]) event_free(events[i]);
    return ok ? EXIT_DONE : complain_no_memory();
}

int server_run(const server_settings *settings, ag_serving *engine, listeners *l) {
    server s = {
        .settings = settings,
        .engine = engine,
        .listeners = l,
        .accounts = {.limit = settings->max_bytes},
        .started = (int64_t)time(NULL),
    };
    int code = EXIT_FAILED;
    signal(SIGPIPE, SIG_IGN);
    if (open_server(&s, settings)) code = run_loop(&s);
    close_server(&s);
    return code;
}
