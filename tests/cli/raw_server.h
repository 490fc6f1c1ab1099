/* SPDX-License-Identifier: Apache-2.0 */
/* Web server on 127.0.0.1 whose answers a test writes byte by byte, valid or not. Runs in threads
 * of the test. */
#ifndef AG_TESTS_RAW_SERVER_H
#define AG_TESTS_RAW_SERVER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct raw_request {
    int fd;
    unsigned number;     /* 1: the first request for a file since raw_set() */
    unsigned generation; /* number of the raw_set() call */
    char path[2048];
    bool has_range;
    unsigned long long first; /* first byte of the range */
    char if_range[128];       /* "": none */
} raw_request;

/* Writes the answer to one request. The connection is closed afterwards. */
typedef void (*raw_answer)(const raw_request *q);

/* Starts the server. Returns its port. */
int raw_start(void);
/* Sets the answers to paths that begin with /api/ and to all others. Threads of earlier requests
 * can no longer send. */
void raw_set(raw_answer api, raw_answer file);
/* Returns the number of requests for files since raw_set(). */
unsigned raw_count(void);

/* Return false after the client closed the connection, or after raw_set(). */
bool raw_send(const raw_request *q, const void *bytes, size_t n);
bool raw_print(const raw_request *q, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
