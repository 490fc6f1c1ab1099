/* SPDX-License-Identifier: Apache-2.0 */
/* State of the server that all requests share. */
#ifndef ANTIGRAVITY_SERVE_SERVER_H
#define ANTIGRAVITY_SERVE_SERVER_H

#include "http/connection.h"
#include "http/listener.h"
#include "job/answer_memory.h"
#include "job/presets.h"
#include "openai/response_store.h"
#include "request/access_log.h"
#include "request/api_keys.h"
#include "request/origin.h"
#include "request/route.h"
#include "threads/account.h"
#include "threads/loop_queue.h"
#include "threads/worker.h"

#include <stdatomic.h>
#include <stdint.h>

typedef struct server_settings {
    connection_limits limits;
    origin_rules origins;
    const char *key_file; /* NULL: none */
    tls_files *tls;       /* NULL: none */
    const char *log;      /* NULL: none; "-": standard output */
    bool any_model, share_prefixes;
    bool allow_pull;              /* admins may change the models of the store */
    const serve_presets *presets; /* may be NULL */
    json_t *template_variables;   /* NULL, or an object: defaults of template variables */
    struct served_models *models;
    uint64_t memory_limit; /* bytes, of the engine; 0: none */
    size_t max_bytes;      /* limit for connections and requests together */
    atomic_size_t *bytes;  /* resident bytes of connections and requests; the engine reads it */
    size_t answer_bytes;   /* limit of the answer memory */
    size_t response_bytes; /* limit of the store of responses */
    const char *answers;   /* NULL, or the file that keeps the answer memory */
    uint32_t max_running;  /* concurrent answers */
    uint32_t n_workers;
    double prepare_limit_s; /* seconds of processor time to prepare a request */
    uint32_t grace_s;       /* seconds that requests may take after SIGTERM */
    uint32_t timeout_s;     /* seconds for a request; 0: no limit */
} server_settings;

/* Response counters, for /metrics. */
typedef struct server_counts {
    uint64_t n_by_class[6];     /* [2]: statuses from 200 to 299 */
    uint64_t n_streams, n_gone; /* n_gone: the client left before the end */
} server_counts;

typedef struct server {
    const server_settings *settings;
    ag_serving *engine;
    struct event_base *base;
    connection_set *connections;
    listeners *listeners;
    loop_queue *queue;
    workers *workers;
    workers *cleaner; /* one thread, which frees the memory of large requests */
    api_keys keys;
    access_log log;
    answer_memory *answers;
    response_store *responses;
    server_counts counts;
    serve_job *first_job;      /* list of jobs in the engine */
    struct pull_request *pull; /* NULL: none runs */
    account_pool accounts;     /* one account for each request */
    size_t n_requests;         /* requests that have not ended */
    int64_t started;
    unsigned n_stops; /* stop signals received */
    double stop_at;   /* time at which running requests are cancelled */
} server;

#endif
