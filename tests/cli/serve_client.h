/* SPDX-License-Identifier: Apache-2.0 */
/* Runs `antigravity serve` and sends it requests byte by byte. */
#ifndef AG_TESTS_SERVE_CLIENT_H
#define AG_TESTS_SERVE_CLIENT_H

#include "cli.h"

#include <sys/types.h>

typedef struct serve_process {
    pid_t pid;
    int port;       /* 0: a Unix socket */
    char path[108]; /* path of the Unix socket */
    int errors;     /* path of the Unix socket */
    char log[16384];
    size_t n_log;
} serve_process;

/* Starts the server with these additional arguments and waits until it listens. Fails the test
 * otherwise. */
void serve_start(serve_process *p, const char *const *args);
/* Does the same. Calls prepare(user) in the new process before exec(). */
void serve_start_prepared(serve_process *p, const char *const *args, void (*prepare)(void *user),
                          void *user);
#define SERVE_START(p, ...) serve_start(p, CLI_ARGS(__VA_ARGS__))
/* Waits for more of its standard error and appends it to `log`. Returns false at its end. */
bool serve_read_log(serve_process *p);
/* Sends a signal, waits for the end, and returns the exit code, or -1. */
int serve_stop(serve_process *p, int signal);

typedef struct serve_reply {
    int status;
    char *head, *body; /* owned; end in a NUL. The body is without chunk sizes */
    size_t n_body;
    bool closed; /* the server closed the connection after it */
} serve_reply;
void serve_reply_free(serve_reply *r);

int serve_connect(const serve_process *p); /* returns a socket */
void serve_send(int fd, const char *bytes, size_t n);
/* Receives one response. Its status is 0 if the connection ends first. */
serve_reply serve_receive(int fd);
/* Sends a request on its own connection and returns the reply. line: "GET /health"; headers:
 * further lines; body: NULL for none. */
serve_reply serve_fetch(const serve_process *p, const char *line, const char *headers,
                        const char *body);
/* Does the same and parses the body as JSON. The caller must call json_decref(). */
json_t *serve_json(const serve_process *p, const char *line, const char *body, int status);

/* Returns the value at "choices.0.text"; fails the test if there is none. */
const json_t *json_at(const json_t *value, const char *path);
/* Do the same for a string and for an integer. */
const char *json_string_at(const json_t *value, const char *path);
json_int_t json_number_at(const json_t *value, const char *path);

#endif
