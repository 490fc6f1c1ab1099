/* SPDX-License-Identifier: Apache-2.0 */
/* State of an HTTP request, from its head to the end of its response. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_HTTP_REQUEST_H
#define ANTIGRAVITY_SERVE_REQUEST_HTTP_REQUEST_H

#include "../server.h"

struct serve_http_request {
    work_item item;
    bool is_working; /* a worker uses job, reply and body; the event loop must not */
    server *server;
    connection *connection; /* NULL: the client has gone, or has its response */
    account *account;       /* owned: memory and time of the request */
    unsigned n_holders;     /* references: the connection, a worker, and each engine request */
    void (*released)(serve_http_request *http); /* called by the last release; frees it */
    char id[33];
    double began;
    char scope[KEY_SCOPE];
    bool is_admin;      /* the client may change the models of the server */
    bool lacks_header;  /* a header did not fit: the reply becomes a 500 */
    char headers[1280]; /* lines of the response, each ended by CR LF */

    request_head head;
    const serve_route *route; /* NULL: none, or not admitted */
    const char *path_tail;
    char *body;
    size_t n_body, n_received;
    json_t *json; /* the parsed body */

    /* The reply of a handler, or an error before a stream began. */
    int status;
    const char *type;
    char *reply;
    size_t n_reply;

    serve_job *job;            /* NULL: the model is not used */
    struct pull_request *pull; /* owned until it starts; NULL: none */
    char error[96];
    unsigned retry_after_s; /* seconds that an error names; 0: 1 */
    char ignored[256];      /* members of the body that were not read: "user, metadata" */
    size_t n_sent;
    bool complete;
};

/* Add and drop a reference. The last release frees the request. */
void http_request_retain(serve_http_request *http);
void http_request_release(serve_http_request *http);

/* Sends the reply that http_reply_json() or a similar function set, unless the client has gone. */
void http_send_reply(serve_http_request *http);
/* Sets an error reply and sends it. */
void http_send_error(serve_http_request *http, const serve_error *e);

#endif
