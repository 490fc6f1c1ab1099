/* SPDX-License-Identifier: Apache-2.0 */
/* Runs `antigravity serve` and speaks to it byte by byte. */
#ifndef AG_TESTS_SERVE_CLIENT_H
#define AG_TESTS_SERVE_CLIENT_H

#include "cli.h"

#include <sys/types.h>

typedef struct serve_process {
    pid_t pid;
    int port;       /* 0: a Unix socket */
    char path[108]; /* of the Unix socket */
    int errors;     /* its standard error */
    char log[16384];
    size_t n_log;
} serve_process;

/* Starts with these further arguments and waits until it listens. Fails the test otherwise. */
void serve_start(serve_process *p, const char *const *args);
/* The same; prepare(user) is called in the new process before it becomes the program. */
void serve_start_prepared(serve_process *p, const char *const *args, void (*prepare)(void *user),
                          void *user);
#define SERVE_START(p, ...) serve_start(p, CLI_ARGS(__VA_ARGS__))
/* Waits for more of its standard error in `said`; false at its end. */
bool serve_read_log(serve_process *p);
/* Sends the signal, waits for the end, and returns the exit code, or -1. */
int serve_stop(serve_process *p, int signal);

typedef struct serve_reply {
    int status;
    char *head, *body; /* owned; ended by a NUL. The body is without its chunks */
    size_t n_body;
    bool closed; /* the server ended the connection behind it */
} serve_reply;
void serve_reply_free(serve_reply *r);

int serve_connect(const serve_process *p); /* a socket */
void serve_send(int fd, const char *bytes, size_t n);
/* One response; with status 0 if the connection ends before there is one. */
serve_reply serve_receive(int fd);
/* A request of its own connection: "GET /health", further header lines, body (NULL: none). */
serve_reply serve_fetch(const serve_process *p, const char *line, const char *headers,
                        const char *body);
/* The same, whose body must be JSON: json_decref() it. */
json_t *serve_json(const serve_process *p, const char *line, const char *body, int status);

/* The value at "choices.0.text"; fails the test if there is none. */
const json_t *json_at(const json_t *value, const char *path);
/* The same of a string, and of a whole number. */
const char *json_string_at(const json_t *value, const char *path);
json_int_t json_number_at(const json_t *value, const char *path);

#endif
