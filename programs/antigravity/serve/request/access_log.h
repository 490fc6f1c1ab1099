/* SPDX-License-Identifier: Apache-2.0 */
/* One line of JSON for each request. What was asked and answered is not in it, and no key. */
#ifndef ANTIGRAVITY_SERVE_REQUEST_ACCESS_LOG_H
#define ANTIGRAVITY_SERVE_REQUEST_ACCESS_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct access_log {
    FILE *file; /* NULL: no log */
} access_log;

typedef struct access_entry {
    const char *id, *method, *path; /* NULL where the head could not be read */
    const char *protocol, *model;   /* NULL: none */
    int status;                     /* 0: the client went before there was a response */
    bool complete;                  /* the response has left whole */
    size_t n_received, n_sent;      /* bytes of the bodies */
    double seconds;
    const char *key;                        /* digits that stand for the key */
    size_t n_prompt, n_cached, n_generated; /* tokens */
    double queue_s, first_token_s;
    const char *error; /* NULL, or what was wrong: "invalid_request_error" and its field */
} access_entry;

/* path: "-" is standard output. Says what is wrong. */
bool access_log_open(access_log *log, const char *path);
void access_log_write(access_log *log, const access_entry *e);
void access_log_close(access_log *log);

#endif
