/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the events of a protocol to the stream of the response. */
#include "../threads/account.h"
#include "clock.h"
#include "job_impl.h"

#include <stdio.h>
#include <string.h>

enum { DUMP_FLAGS = JSON_COMPACT | JSON_REAL_PRECISION(9) };

/* A serve_job_view is the first member of its job. */
static serve_job *job_of(serve_job_view *view) { return (serve_job *)view; }

void job_write_event(serve_job *job, const serve_event *e) {
    if (!job->is_streaming || !job->http->connection) return;
    job->protocol->event(&job->view, e);
}

void serve_write(serve_job_view *view, const char *bytes, size_t n) {
    serve_job *job = job_of(view);
    connection *c = job->http->connection;
    if (!c) return;
    job->last_write = clock_s();
    connection_stream(c, bytes, n);
}

/* Writes prefix, value and suffix at once, because each write is a chunk of its own. */
static void write_json(serve_job_view *view, const char *prefix, json_t *value,
                       const char *suffix) {
    char *text = value ? json_dumps(value, DUMP_FLAGS) : NULL;
    const size_t n_prefix = strlen(prefix), n = text ? strlen(text) : 0, n_suffix = strlen(suffix);
    char *line = text ? account_malloc(n_prefix + n + n_suffix) : NULL;
    json_decref(value);
    if (line) {
        memcpy(line, prefix, n_prefix);
        memcpy(line + n_prefix, text, n);
        memcpy(line + n_prefix + n, suffix, n_suffix);
        serve_write(view, line, n_prefix + n + n_suffix);
    } else if (job_of(view)->http->connection) {
        /* A stream without its end shows the client that data is missing. */
        connection_abort(job_of(view)->http->connection);
    }
    account_free(text);
    account_free(line);
}

void serve_write_line(serve_job_view *view, json_t *value) { write_json(view, "", value, "\n"); }

void serve_write_sse(serve_job_view *view, const char *name, json_t *value) {
    char prefix[128] = "data: ";
    if (name) snprintf(prefix, sizeof prefix, "event: %.80s\ndata: ", name);
    write_json(view, prefix, value, "\n\n");
}
