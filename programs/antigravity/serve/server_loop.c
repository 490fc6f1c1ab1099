/* SPDX-License-Identifier: Apache-2.0 */
#include "server_loop.h"

#include "clock.h"
#include "command.h"
#include "notify.h"
#include "output.h"
#include "serve/job/job.h"
#include "serve/request/dispatch.h"

#include <signal.h>
#include <time.h>

enum { MAX_JOBS = 256, SIGNALS = 3 };

/* ---- memory ---- */

enum { CONNECTION_COST = 8192 }; /* bytes, about, of one that does nothing */

/* Publishes what connections take, for accounts, and what is resident for certain, for the engine:
 * of the rest it sets aside what it was told to. */
static void publish_bytes(server *s) {
    const size_t n_tls = connection_tls_count(s->connections);
    atomic_store(&s->accounts.others,
                 connection_count(s->connections) * CONNECTION_COST + n_tls * TLS_COST);
    atomic_store(s->settings->bytes, atomic_load(&s->accounts.resident) +
                                         answer_memory_bytes(s->answers) + n_tls * TLS_LEAST);
}

/* ---- requests ---- */

static bool on_head(void *user, connection *c) {
    serve_error e;
    serve_call *call = call_create(user, c);
    if (!call) {
        static const char sorry[] = "{\"error\":{\"message\":\"out of memory\"}}";
        connection_reply(c, 503, "application/json", "", sorry, sizeof sorry - 1);
        return false;
    }
    if (!call_admit(call, &e)) {
        call_send_error(call, &e);
        return false;
    }
    if (call->route) return true;
    call_send_reply(call);
    return false;
}

static void on_request(void *user, connection *c) {
    (void)user;
    call_start(connection_owner(c));
}

static void on_malformed(void *user, connection *c, int status, const char *why) {
    serve_error e;
    serve_call *call = connection_owner(c);
    if (!call) call = call_create(user, c);
    if (!call) {
        connection_reply(c, status, NULL, "", "", 0);
        return;
    }
    serve_refuse(&e, status, NULL, "%s", why);
    call_send_error(call, &e);
}

static void on_over(void *user, connection *c, bool complete) {
    (void)user;
    serve_call *call = connection_owner(c);
    if (call) call_over(call, complete);
}

static void on_accepted(void *user, evutil_socket_t fd, bool is_local) {
    server *s = user;
    connection_accept(s->connections, fd, is_local);
    publish_bytes(s);
}

/* ---- signals and time ---- */

static void load_keys(server *s) {
    char why[256];
    if (api_keys_load(&s->keys, s->settings->key_file, why)) {
        complain("%zu API keys", s->keys.n);
        return;
    }
    complain("the API keys stay as they were: %s", why);
}

static void load_certificate(server *s) {
    char why[TLS_WHY];
    if (!s->settings->tls) return;
    if (tls_reload(s->settings->tls, why)) complain("the certificate was read again");
    else complain("the certificate stays as it was: %s", why);
}

static void begin_stop(server *s) {
    if (s->n_stops++) {
        s->stop_at = clock_s();
        return;
    }
    s->stop_at = clock_s() + s->settings->grace_s;
    notify_stopping();
    complain("stopping: requests that are running have %u s to end", s->settings->grace_s);
    listeners_close(s->listeners);
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
        connection_set_give_up(s->connections);
    }
    for (serve_run *run = s->first_run, *next; run; run = next) {
        next = run_next(run);
        if (cancel) run_cancel(run);
        else run_tick(run, now);
    }
    if (!s->n_stops) return;
    const bool is_done = !s->n_calls && !connection_count(s->connections);
    /* A client that does not take its response, and connections that linger, are not waited for. */
    if (is_done || now > s->stop_at + 5) event_base_loopbreak(s->base);
}

/* ---- its life ---- */

/* What could not be read is not there: it was a help, no more. */
static bool open_answers(server *s) {
    char why[ANSWER_WHY_SIZE];
    const char *path = s->settings->answers;
    s->answers = answer_memory_create(s->settings->answer_bytes);
    if (!s->answers) {
        complain_no_memory();
        return false;
    }
    if (path && !answer_memory_load(s->answers, path, why)) complain("%s", why);
    return true;
}

static void close_answers(server *s) {
    char why[ANSWER_WHY_SIZE];
    const char *path = s->settings->answers;
    if (s->answers && path && !answer_memory_save(s->answers, path, why)) complain("%s", why);
    answer_memory_destroy(s->answers);
}

static bool open_server(server *s, const server_settings *settings) {
    char why[256];
    const connection_events events = {
        .head = on_head,
        .request = on_request,
        .malformed = on_malformed,
        .over = on_over,
        .user = s,
    };
    if (!api_keys_load(&s->keys, settings->key_file, why)) {
        complain("%s", why);
        return false;
    }
    if (!access_log_open(&s->log, settings->log)) return false;
    if (!open_answers(s)) return false;
    s->base = event_base_new();
    s->connections = s->base ? connection_set_create(s->base, &settings->limits, &events,
                                                     settings->tls, &s->accounts)
                             : NULL;
    s->queue = s->connections ? loop_queue_create(s->base) : NULL;
    s->workers = s->queue ? workers_create(s->queue, settings->n_workers, MAX_JOBS) : NULL;
    s->listeners->accepted = on_accepted;
    s->listeners->user = s;
    if (s->workers && listeners_start(s->listeners, s->base)) return true;
    complain_no_memory();
    return false;
}

/* The engine ends every request that it was given: that is waited for, since what answers are read
 * by belongs to it. One more signal ends the process at once. */
static void wait_for_calls(server *s) {
    while (s->n_calls) {
        const struct timeval short_while = {.tv_usec = 10000};
        for (serve_run *run = s->first_run; run; run = run_next(run)) run_cancel(run);
        if (event_base_loopexit(s->base, &short_while) != 0) return;
        event_base_dispatch(s->base);
    }
}

static void close_server(server *s) {
    connection_set_destroy(s->connections);
    s->connections = NULL;
    workers_destroy(s->workers);
    wait_for_calls(s);
    loop_queue_destroy(s->queue);
    listeners_close(s->listeners);
    if (s->base) event_base_free(s->base);
    access_log_close(&s->log);
    api_keys_free(&s->keys);
    close_answers(s);
}

static void announce(const server *s) {
    char name[160];
    for (size_t i = 0; i < s->listeners->n; i++)
        complain("listening on %s", listener_name(s->listeners, i, name, sizeof name));
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
        announce(s); /* once signals are heeded */
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
