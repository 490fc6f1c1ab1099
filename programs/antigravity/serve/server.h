/* SPDX-License-Identifier: Apache-2.0 */
/* The server: sockets, the event loop, and what requests share. */
#ifndef ANTIGRAVITY_SERVE_SERVER_H
#define ANTIGRAVITY_SERVE_SERVER_H

#include "serve/http/connection.h"
#include "serve/http/listener.h"
#include "serve/job/answer_memory.h"
#include "serve/request/access_log.h"
#include "serve/request/api_keys.h"
#include "serve/request/origin.h"
#include "serve/request/route.h"
#include "serve/work/account.h"
#include "serve/work/loop_queue.h"
#include "serve/work/worker.h"

#include <stdatomic.h>
#include <stdint.h>

typedef struct server_settings {
    connection_limits limits;
    origin_rules origins;
    const char *key_file; /* NULL: none */
    tls_files *tls;       /* NULL: none */
    const char *log;      /* NULL: none; "-": standard output */
    bool any_model, share_prefixes;
    json_t *template_variables; /* NULL, or an object: what a request does not set itself */
    const char *const *names;   /* [n_names] of models, aliases included */
    size_t n_names;
    uint64_t memory_limit; /* the engine's; 0: none */
    size_t max_bytes;      /* of connections and requests together */
    atomic_size_t *bytes;  /* resident bytes of both; the engine reads it */
    size_t answer_bytes;   /* that answers may be remembered with */
    const char *answers;   /* NULL, or the file in which they stay */
    uint32_t max_running;  /* answers at a time */
    uint32_t n_workers;
    double prepare_limit_s; /* seconds of processor time to prepare a request */
    uint32_t grace_s;       /* how long requests may go on after SIGTERM */
    uint32_t timeout_s;     /* seconds for a request; 0: no limit */
} server_settings;

/* What has been replied since the start, for /metrics. */
typedef struct server_counts {
    uint64_t n_by_class[6];     /* 2: statuses from 200 to 299 */
    uint64_t n_streams, n_gone; /* responses that the client did not wait for */
} server_counts;

typedef struct server {
    const server_settings *settings;
    ag_serving *engine;
    struct event_base *base;
    connection_set *connections;
    listeners *listeners;
    loop_queue *queue;
    workers *workers;
    api_keys keys;
    access_log log;
    answer_memory *answers;
    server_counts counts;
    serve_job *first_job;  /* requests that are with the model */
    account_pool accounts; /* one account for each request */
    size_t n_requests;     /* requests that are not over */
    int64_t started;
    unsigned n_stops; /* signals that asked for the end */
    double stop_at;   /* then what is still running is cancelled */
} server;

#endif
