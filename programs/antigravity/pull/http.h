/* SPDX-License-Identifier: Apache-2.0 */
/* GET over HTTP: redirects, repeated attempts, and a token that only its own host is sent. libcurl
 * does the work; http_absent.c stands in for a build without it. */
#ifndef ANTIGRAVITY_HTTP_H
#define ANTIGRAVITY_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HTTP_MESSAGE = 5120 }; /* space for a reason, which may name a path: "URL: HTTP 404: ..." */

/* The count of failed attempts starts again when *offset has grown by this many bytes beyond its
 * highest value at the last start. It is about what the slowest accepted line brings in a minute:
 * a server that sends a few bytes per attempt does not keep the client for ever. */
enum { HTTP_PROGRESS = 1 << 16 };

typedef struct http http;

typedef struct http_params {
    const char *origin;   /* borrowed: "https://huggingface.co", which alone is sent the token */
    const char *token;    /* borrowed; NULL: none */
    uint32_t retries;     /* further attempts without progress, see HTTP_PROGRESS */
    double retry_delay_s; /* before the first; doubles */
    double slow_s;        /* an attempt fails if less than 1 KiB/s arrives over this time */
    bool quiet;
} http_params;

/* What the answer's headers say, as they say it; "" where they do not. linked_*: those of the hub,
 * also of an answer that redirected to this one. */
typedef struct http_answer {
    int status;
    bool framed; /* the end of the body is told: by its length, by chunks, or by HTTP/2 */
    char length[32], range[80], encoding[32];
    char etag[160], modified[64];
    char linked_etag[160], linked_size[32];
    char error[200], retry_after[32];
} http_answer;

/* What begin() wants of the body. */
typedef enum http_go {
    HTTP_GO,
    HTTP_ENOUGH, /* nothing; the request is done */
    HTTP_REFUSE,
    HTTP_AGAIN, /* nothing; the attempt has failed, and another one may succeed */
} http_go;

typedef struct http_request {
    const char *url; /* http:// or https:// */
    /* Bytes that are there, which begin() and put() keep up to date. NULL: a failed attempt leaves
     * nothing. */
    const uint64_t *offset;
    bool resumes; /* each attempt asks for what follows *offset bytes; else for everything */
    const char *if_range; /* validator under which a part may be added to; NULL or "": none */
    const int64_t *size;  /* a body that ends before *size bytes is incomplete; NULL, -1: unknown */
    void *user;           /* of the calls below, which leave the reason in why[HTTP_MESSAGE] */
    /* Before the body, and once where there is none. Also with status 416 if *offset is beyond the
     * server's file: it must not return HTTP_GO then. */
    http_go (*begin)(void *user, const http_answer *a, char *message);
    bool (*put)(void *user, const void *bytes, size_t n, char *message);
} http_request;

typedef enum http_result {
    HTTP_DONE,
    HTTP_FAILED,      /* why is in why[] */
    HTTP_INTERRUPTED, /* Ctrl-C */
} http_result;

/* Whether the text begins with http:// or https://. */
bool http_is_url(const char *text);
/* Length of "https://host:port", which the URL begins with. */
size_t http_origin_length(const char *url);
/* Length without the query: what may be shown, since a query may hold a key. */
int http_shown_length(const char *url);

/* An exit code; it says why there is no client. */
int http_open(const http_params *p, http **out);
void http_close(http *h);
http_result http_get(http *h, const http_request *r, http_answer *a, char message[HTTP_MESSAGE]);

#endif
