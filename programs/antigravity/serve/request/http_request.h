/* SPDX-License-Identifier: Apache-2.0 */
/* A request of a client from its head to the end of its response, inside of the server. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_HTTP_REQUEST_H
#define ANTIGRAVITY_SERVE_REQUEST_HTTP_REQUEST_H

#include "serve/server.h"

struct serve_http_request {
    work_item item;
    bool is_working; /* a worker owns run, reply and body; the loop must not read them */
    server *server;
    connection *connection; /* NULL: the client has gone, or has its response */
    account *account;       /* owned: what the request takes */
    unsigned n_holders;     /* the connection, a worker, and requests to the model */
    void (*released)(serve_http_request *http); /* called with the last release */
    char id[33];
    double began;
    char scope[KEY_SCOPE];
    bool lacks_header;  /* one did not fit: such a reply is not sent */
    char headers[1280]; /* of the response: what CORS wants to be said */

    request_head head;
    const serve_route *route; /* NULL: there is none, or it may not be used */
    const char *path_tail;
    char *body;
    size_t n_body, n_received;
    json_t *json; /* the body */

    /* The reply of a handler, or of a request that failed before it began. */
    int status;
    const char *type;
    char *reply;
    size_t n_reply;
    unsigned retry_after;

    serve_job *job; /* NULL: the model is not asked */
    char error[96];
    size_t n_sent;
    bool complete;
};

void http_request_retain(serve_http_request *http);
void http_request_release(serve_http_request *http);

/* Sends what http_reply_json() and others have left, unless the client has gone. */
void http_send_reply(serve_http_request *http);
/* Fills in the reply and sends it. */
void http_send_error(serve_http_request *http, const serve_error *e);

#endif
