/* SPDX-License-Identifier: Apache-2.0 */
/* What a protocol writes into its stream. */
#include "clock.h"
#include "job_impl.h"
#include "serve/work/account.h"

#include <stdio.h>
#include <string.h>

enum { DUMP_FLAGS = JSON_COMPACT | JSON_REAL_PRECISION(9) };

/* A serve_exchange is the first part of its run. */
static serve_run *run_of(serve_exchange *x) { return (serve_run *)x; }

void run_tell(serve_run *run, const serve_event *e) {
    if (!run->is_streaming || !run->call->connection) return;
    run->protocol->event(&run->x, e);
}

void serve_write(serve_exchange *x, const char *bytes, size_t n) {
    serve_run *run = run_of(x);
    connection *c = run->call->connection;
    if (!c) return;
    run->written = clock_s();
    connection_stream(c, bytes, n);
}

/* What cannot be said leaves the client with a stream that has no end, which it notices. */
static void cut_stream(serve_run *run) {
    if (run->call->connection) connection_cut(run->call->connection);
}

/* before VALUE after, at once: each write is a chunk of its own. */
static void write_value(serve_exchange *x, const char *before, json_t *value, const char *after) {
    char *text = value ? json_dumps(value, DUMP_FLAGS) : NULL;
    const size_t n_before = strlen(before), n = text ? strlen(text) : 0, n_after = strlen(after);
    char *whole = text ? account_malloc(n_before + n + n_after) : NULL;
    json_decref(value);
    if (whole) {
        memcpy(whole, before, n_before);
        memcpy(whole + n_before, text, n);
        memcpy(whole + n_before + n, after, n_after);
        serve_write(x, whole, n_before + n + n_after);
    } else {
        cut_stream(run_of(x));
    }
    account_free(text);
    account_free(whole);
}

void serve_write_line(serve_exchange *x, json_t *value) { write_value(x, "", value, "\n"); }

void serve_write_sse(serve_exchange *x, const char *name, json_t *value) {
    char before[128] = "data: ";
    if (name) snprintf(before, sizeof before, "event: %.80s\ndata: ", name);
    write_value(x, before, value, "\n\n");
}
