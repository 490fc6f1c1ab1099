/* SPDX-License-Identifier: Apache-2.0 */
/* Access log: one line of JSON for each request, without its text and without keys. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_ACCESS_LOG_H
#define ANTIGRAVITY_SERVE_REQUEST_ACCESS_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct access_log {
    FILE *file; /* NULL: no log */
} access_log;

typedef struct access_entry {
    const char *id, *method, *path; /* NULL if the head could not be parsed */
    const char *protocol, *model;   /* NULL: none */
    int status;                     /* 0: the client left before the response */
    bool complete;                  /* all bytes of the response were sent */
    size_t n_received, n_sent;      /* bytes of the bodies */
    double seconds;
    const char *key;                        /* digits of the key's hash */
    size_t n_prompt, n_cached, n_generated; /* tokens */
    double queue_s, first_token_s;
    const char *ignored; /* NULL, or names of ignored fields: "user, metadata" */
    const char *error;   /* NULL, or the status and the invalid field: "400 messages" */
} access_entry;

/* Opens the log. path: "-" is standard output; NULL: no log. Fails with a message on standard
 * error. */
bool access_log_open(access_log *log, const char *path);
/* Writes a line for one request. Does nothing without a log. */
void access_log_write(access_log *log, const access_entry *e);
void access_log_close(access_log *log);

#endif
