/* SPDX-License-Identifier: Apache-2.0 */
/* HTTP GET with redirects and retries. The token is sent only to its own origin. Uses libcurl;
 * http_absent.c replaces this without libcurl. */
#ifndef ANTIGRAVITY_HTTP_H
#define ANTIGRAVITY_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_MESSAGE = 5120 }; /* size of a message, which may hold a path: "URL: HTTP 404: ..." */

/* The retry count restarts when *offset has grown by this many bytes beyond its highest value at
 * the last start. About what the slowest accepted connection delivers in a minute, so a server that
 * sends a few bytes per attempt cannot hold the client forever. */
enum { HTTP_PROGRESS = 1 << 16 };

typedef struct http http;

typedef struct http_params {
    const char *origin;   /* borrowed: "https://huggingface.co"; the token is sent only there */
    const char *token;    /* borrowed; NULL: none */
    uint32_t retries;     /* attempts after a failure without progress, see HTTP_PROGRESS */
    double retry_delay_s; /* before the first retry; doubles */
    double slow_s;        /* an attempt fails if less than 1 KiB/s arrives over this time */
    bool quiet;
} http_params;

/* Response headers, verbatim; "" if absent. linked_*: the hub's headers, also those of a redirect
 * to this response. */
typedef struct http_answer {
    int status;
    bool framed; /* the end of the body is marked: by length, chunks or HTTP/2 */
    char length[32], range[80], encoding[32];
    char etag[160], modified[64];
    char linked_etag[160], linked_size[32];
    char error[200], retry_after[32];
} http_answer;

/* Result of begin(): what to do with the body. */
typedef enum http_go {
    HTTP_GO,
    HTTP_ENOUGH, /* skip the body; the request is done */
    HTTP_REFUSE,
    HTTP_AGAIN, /* the attempt failed; retry */
} http_go;

typedef struct http_request {
    const char *url; /* http:// or https:// */
    /* Bytes received so far; begin() and put() update it. NULL: a failed attempt leaves nothing. */
    const uint64_t *offset;
    bool resumes;         /* attempts request the bytes after *offset; false: everything */
    const char *if_range; /* validator for If-Range; NULL or "": none */
    const int64_t *size;  /* expected size, a shorter body is incomplete; NULL or -1: unknown */
    void *user;           /* for the callbacks, which write errors to message[HTTP_MESSAGE] */
    /* Called before the body, and once without a body. With status 416, *offset is beyond the
     * server's file; then it must not return HTTP_GO. */
    http_go (*begin)(void *user, const http_answer *a, char *message);
    bool (*put)(void *user, const void *bytes, size_t n, char *message);
} http_request;

typedef enum http_result {
    HTTP_DONE,
    HTTP_FAILED,      /* the reason is in the message */
    HTTP_INTERRUPTED, /* by a signal */
} http_result;

/* Returns whether the text begins with http:// or https://. */
bool http_is_url(const char *text);
/* Returns the length of the URL's prefix "https://host:port". */
size_t http_origin_length(const char *url);
/* Returns the length without query and fragment, for messages: a query may hold a key. */
int http_shown_length(const char *url);

/* Opens the client. Reports a failure and returns an exit code; close *out in any case. */
int http_open(const http_params *p, http **out);
void http_close(http *h);
http_result http_get(http *h, const http_request *r, http_answer *a, char message[HTTP_MESSAGE]);

#endif
