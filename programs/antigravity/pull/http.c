/* SPDX-License-Identifier: Apache-2.0 */
#include "http.h"

#include "../command.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"
#include "clock.h"
#include "curl_api.h"
#include "http_rate.h"

#include <antigravity/status.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

enum {
    MAX_REDIRECTS = 10,
    MAX_IGNORED = 1 << 16, /* bytes of the body of an error response */
    MAX_HEADERS = 1 << 18, /* bytes of headers per response */
    CONNECT_S = 30,
    MAX_WAIT_S = 120,
};

struct http {
    http_params params;
    curl_api api;
    CURL *curl;
    uint64_t n_received;
};

/* One request and its response. */
typedef struct exchange {
    http *h;
    const http_request *r;
    http_answer *a;
    char *message;
    bool has_range;    /* the request has a Range header */
    bool begun, ended; /* ended: begin() or put() set the result */
    int result;        /* http_result, or a RESULT_ constant */
    http_rate rate;
    bool is_slow;
    size_t n_ignored, n_headers;
    char error[CURL_ERROR_SIZE];
} exchange;

int http_open(const http_params *p, http **out) {
    char message[HTTP_MESSAGE];
    http *h = calloc(1, sizeof *h);
    *out = h;
    if (!h) return complain_no_memory();
    h->params = *p;
    if (!curl_api_load(&h->api, message, sizeof message)) {
        complain("%s", message);
    } else if (h->api.curl_global_init(CURL_GLOBAL_DEFAULT) ||
               !(h->curl = h->api.curl_easy_init())) {
        complain("libcurl: cannot start");
    } else {
        return EXIT_DONE;
    }
    return EXIT_FAILED;
}

void http_close(http *h) {
    if (h && h->curl) h->api.curl_easy_cleanup(h->curl);
    free(h);
}

/* ---- one answer ---- */

/* Internal results in addition to http_result. */
enum { RESULT_TEMPORARY = 100, RESULT_REDIRECT };

/* Clears the response headers except those of the hub. */
static void clear_answer(http_answer *a) {
    http_answer fresh = {.status = 0};
    strcpy(fresh.linked_etag, a->linked_etag);
    strcpy(fresh.linked_size, a->linked_size);
    *a = fresh;
}

/* Stores a header. Drops a value that is too long: checks must not use a truncated one. */
static void set_header(char *to, size_t cap, const char *value, size_t n) {
    while (n && (*value == ' ' || *value == '\t')) value++, n--;
    while (n && strchr(" \t\r\n", value[n - 1])) n--;
    if (n >= cap) n = 0;
    memcpy(to, value, n);
    to[n] = '\0';
}

static size_t on_header(char *line, size_t one, size_t n, void *user) {
    (void)one;
    exchange *x = user;
    http_answer *a = x->a;
    char transfer[32] = "";
    const struct {
        const char *name;
        char *to;
        size_t cap;
    } known[] = {
        {"content-length:", a->length, sizeof a->length},
        {"content-range:", a->range, sizeof a->range},
        {"content-encoding:", a->encoding, sizeof a->encoding},
        {"transfer-encoding:", transfer, sizeof transfer},
        {"etag:", a->etag, sizeof a->etag},
        {"last-modified:", a->modified, sizeof a->modified},
        {"x-linked-etag:", a->linked_etag, sizeof a->linked_etag},
        {"x-linked-size:", a->linked_size, sizeof a->linked_size},
        {"x-error-message:", a->error, sizeof a->error},
        {"retry-after:", a->retry_after, sizeof a->retry_after},
    };
    x->n_headers += n;
    if (x->n_headers > MAX_HEADERS) return 0;
    if (n > 5 && !strncmp(line, "HTTP/", 5)) {
        clear_answer(a); /* an interim response (1xx) may have preceded */
        a->framed = line[5] >= '2';
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t k = strlen(known[i].name);
        if (n > k && !strncasecmp(line, known[i].name, k))
            set_header(known[i].to, known[i].cap, line + k, n - k);
    }
    a->framed = a->framed || a->length[0] || !strcasecmp(transfer, "chunked");
    return n;
}

static void end_exchange(exchange *x, int result) {
    x->ended = true;
    x->result = result;
}

/* Calls begin() once per response. Returns false if the body is not wanted. */
static bool begin_body(exchange *x) {
    if (x->begun) return !x->ended;
    x->begun = true;
    static const int results[] = {
        [HTTP_ENOUGH] = HTTP_DONE,
        [HTTP_REFUSE] = HTTP_FAILED,
        [HTTP_AGAIN] = RESULT_TEMPORARY,
    };
    http_go go = x->r->begin(x->r->user, x->a, x->message);
    if (go != HTTP_GO) end_exchange(x, results[go]);
    return go == HTTP_GO;
}

static long status_of(const exchange *x) {
    long status = 0;
    x->h->api.curl_easy_getinfo(x->h->curl, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

/* Returns whether the status matches the request; 206 only for a range. */
static bool is_expected(const exchange *x) {
    const int status = x->a->status;
    return status == 200 || status == 203 || (status == 206 && x->has_range);
}

static size_t on_body(char *data, size_t one, size_t n, void *user) {
    (void)one;
    exchange *x = user;
    x->a->status = (int)status_of(x);
    if (!is_expected(x)) {
        x->n_ignored += n;
        return x->n_ignored > MAX_IGNORED ? 0 : n;
    }
    if (!begin_body(x)) return 0;
    x->h->n_received += n;
    if (x->r->put(x->r->user, data, n, x->message)) return n;
    end_exchange(x, interrupted() ? HTTP_INTERRUPTED : HTTP_FAILED);
    return 0;
}

/* libcurl calls this about once a second, also while no bytes arrive. */
static int on_progress(void *user, curl_off_t total, curl_off_t received, curl_off_t to_send,
                       curl_off_t sent) {
    (void)total, (void)to_send, (void)sent;
    exchange *x = user;
    x->is_slow = http_rate_is_low(&x->rate, clock_s(), (uint64_t)received);
    return interrupted() || x->is_slow;
}

static bool is_resuming(const http_request *r) { return r->resumes && r->offset && *r->offset; }

/* Returns the request headers; NULL if out of memory. The token is sent only to its own origin. */
static struct curl_slist *request_headers(const http *h, const http_request *r, const char *url) {
    char line[1024];
    const char *origin = h->params.origin;
    const size_t n = http_origin_length(url);
    struct curl_slist *list = h->api.curl_slist_append(NULL, "Accept: */*"), *more;
    if (list && h->params.token && strlen(origin) == n && !strncasecmp(url, origin, n)) {
        snprintf(line, sizeof line, "Authorization: Bearer %s", h->params.token);
        more = h->api.curl_slist_append(list, line);
        if (!more) h->api.curl_slist_free_all(list);
        list = more;
    }
    if (list && is_resuming(r) && r->if_range && r->if_range[0]) {
        snprintf(line, sizeof line, "If-Range: %s", r->if_range);
        more = h->api.curl_slist_append(list, line);
        if (!more) h->api.curl_slist_free_all(list);
        list = more;
    }
    return list;
}

static CURLcode exchange_run(exchange *x, const char *url, const struct curl_slist *headers) {
    const curl_api *api = &x->h->api;
    CURL *c = x->h->curl;
    char range[32] = "";
    x->has_range = is_resuming(x->r);
    if (x->has_range) snprintf(range, sizeof range, "%llu-", (unsigned long long)*x->r->offset);
    api->curl_easy_reset(c); /* keeps connections */
    api->curl_easy_setopt(c, CURLOPT_URL, url);
    api->curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
    api->curl_easy_setopt(c, CURLOPT_USERAGENT, "antigravity/" AG_VERSION_STRING);
    api->curl_easy_setopt(c, CURLOPT_RANGE, range[0] ? range : NULL);
    api->curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L); /* redirect() checks scheme and origin */
    api->curl_easy_setopt(c, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    api->curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    api->curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_S);
    /* Requests no encoding, but decodes one that a server uses nevertheless. */
    api->curl_easy_setopt(c, CURLOPT_ACCEPT_ENCODING, "identity");
    api->curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 1L << 18);
    api->curl_easy_setopt(c, CURLOPT_ERRORBUFFER, x->error);
    api->curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    api->curl_easy_setopt(c, CURLOPT_HEADERDATA, x);
    api->curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    api->curl_easy_setopt(c, CURLOPT_WRITEDATA, x);
    api->curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, on_progress);
    api->curl_easy_setopt(c, CURLOPT_XFERINFODATA, x);
    api->curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    http_rate_begin(&x->rate, x->h->params.slow_s, clock_s());
    CURLcode code = api->curl_easy_perform(c);
    api->curl_easy_setopt(c, CURLOPT_ERRORBUFFER, NULL);
    return code;
}

/* ---- what an answer means ---- */

static const struct {
    int status;
    bool temporary;
    const char *text;
} statuses[] = {
    {400, false, "the server does not understand the request"},
    {401, false, "access denied: it does not exist, or needs a token in HF_TOKEN"},
    {403, false,
     "access denied: request it on the model's page, and set HF_TOKEN to a token that may read it"},
    {404, false, "not found: no such repository, revision or file"},
    {408, true, "the request timed out"},
    {410, false, "it was removed"},
    {425, true, "too early"},
    {429, true, "too many requests"},
    {500, true, "internal server error"},
    {502, true, "the gateway got no answer"},
    {503, true, "the server is busy or down"},
    {504, true, "the gateway got no answer"},
};

static int refuse_status(const exchange *x, const char *url) {
    const char *text = "unexpected answer";
    bool temporary = false;
    char error[sizeof x->a->error];
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        if (statuses[i].status != x->a->status) continue;
        text = statuses[i].text;
        temporary = statuses[i].temporary;
    }
    strcpy(error, x->a->error);
    snprintf(x->message, HTTP_MESSAGE, "%.*s: HTTP %d: %s%s%s%s", http_shown_length(url), url,
             x->a->status, text, error[0] ? " (" : "", make_printable(error), error[0] ? ")" : "");
    return temporary ? RESULT_TEMPORARY : HTTP_FAILED;
}

/* Returns whether a retry may succeed. An unreachable host is temporary only after data was
 * received. */
static bool is_temporary(const http *h, CURLcode code) {
    switch (code) {
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
        return true;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR:
        return h->n_received > 0;
    default:
        return false;
    }
}

static int refuse_code(const exchange *x, CURLcode code, const char *url) {
    const char *text = x->error[0] ? x->error : x->h->api.curl_easy_strerror(code);
    snprintf(x->message, HTTP_MESSAGE, "%.*s: %s", http_shown_length(url), url, text);
    return is_temporary(x->h, code) ? RESULT_TEMPORARY : HTTP_FAILED;
}

static int refuse_headers(const exchange *x, const char *url) {
    snprintf(x->message, HTTP_MESSAGE, "%.*s: the headers of the answer exceed %d KiB",
             http_shown_length(url), url, MAX_HEADERS >> 10);
    return HTTP_FAILED;
}

static int refuse_slow(const exchange *x, const char *url) {
    snprintf(x->message, HTTP_MESSAGE,
             "%.*s: the connection is too slow: less than %d bytes/s for %g s",
             http_shown_length(url), url, HTTP_RATE_MIN, x->h->params.slow_s);
    return RESULT_TEMPORARY;
}

/* Without length or chunks a broken connection looks like the end of the body. */
static int refuse_short(const exchange *x, const char *url) {
    snprintf(x->message, HTTP_MESSAGE,
             "%.*s: the server ended it after %" PRIu64 " of %" PRId64 " bytes",
             http_shown_length(url), url, *x->r->offset, *x->r->size);
    return RESULT_TEMPORARY;
}

static bool is_short(const http_request *r) {
    return r->offset && r->size && *r->size >= 0 && *r->offset < (uint64_t)*r->size;
}

/* Replaces *url by the redirect's target. */
static int redirect(const exchange *x, char **url) {
    char *next = NULL;
    x->h->api.curl_easy_getinfo(x->h->curl, CURLINFO_REDIRECT_URL, &next);
    if (!next) return refuse_status(x, *url);
    bool downgrade = !strncasecmp(*url, "https:", 6) && strncasecmp(next, "https:", 6) != 0;
    if (!http_is_url(next) || downgrade) {
        snprintf(x->message, HTTP_MESSAGE, "%.*s: redirects to %.*s, which is not %s",
                 http_shown_length(*url), *url, http_shown_length(next), next,
                 downgrade ? "https" : "http or https");
        return HTTP_FAILED;
    }
    char *copy = strdup(next);
    if (!copy) snprintf(x->message, HTTP_MESSAGE, "%s", ag_status_text(AG_NOMEM));
    if (!copy) return HTTP_FAILED;
    free(*url);
    *url = copy;
    return RESULT_REDIRECT;
}

static int get_once(http *h, const http_request *r, http_answer *a, char **url, char *message) {
    exchange x = {.h = h, .r = r, .a = a, .message = message};
    clear_answer(a);
    struct curl_slist *headers = request_headers(h, r, *url);
    if (!headers) snprintf(message, HTTP_MESSAGE, "%s", ag_status_text(AG_NOMEM));
    if (!headers) return HTTP_FAILED;
    CURLcode code = exchange_run(&x, *url, headers);
    h->api.curl_slist_free_all(headers);
    a->status = (int)status_of(&x);
    if (x.ended) return x.result;
    if (interrupted()) return HTTP_INTERRUPTED;
    if (x.n_headers > MAX_HEADERS) return refuse_headers(&x, *url);
    if (x.is_slow) return refuse_slow(&x, *url);
    if (a->status / 100 == 3) return redirect(&x, url);
    if (a->status == 416 && x.has_range) return begin_body(&x) ? HTTP_FAILED : x.result;
    if (a->status && !is_expected(&x)) return refuse_status(&x, *url);
    if (code != CURLE_OK) return refuse_code(&x, code, *url);
    if (!begin_body(&x)) return x.result;
    return is_short(r) ? refuse_short(&x, *url) : HTTP_DONE;
}

static int follow_redirects(http *h, const http_request *r, http_answer *a, char *message) {
    char *url = strdup(r->url);
    int result = url ? RESULT_REDIRECT : HTTP_FAILED;
    if (!url) snprintf(message, HTTP_MESSAGE, "%s", ag_status_text(AG_NOMEM));
    *a = (http_answer){.status = 0};
    for (int i = 0; result == RESULT_REDIRECT; i++) {
        if (i <= MAX_REDIRECTS) {
            result = get_once(h, r, a, &url, message);
            continue;
        }
        snprintf(message, HTTP_MESSAGE, "%.*s: redirects more than %d times",
                 http_shown_length(r->url), r->url, MAX_REDIRECTS);
        result = HTTP_FAILED;
    }
    free(url);
    return result;
}

/* ---- attempts ---- */

/* Waits before a retry. Returns false after a signal. */
static bool wait_for_retry(const http *h, unsigned attempt, const http_answer *a,
                           const char *message) {
    double s = h->params.retry_delay_s;
    for (unsigned i = 1; i < attempt && s < MAX_WAIT_S; i++) s *= 2;
    const double requested_s = strtod(a->retry_after, NULL); /* 0 for a date */
    if (requested_s > s) s = requested_s;
    if (s > MAX_WAIT_S) s = MAX_WAIT_S;
    if (!h->params.quiet) complain("%s; retrying in %.3g s", message, s);
    struct timespec left = {.tv_sec = (time_t)s, .tv_nsec = (long)((s - (double)(time_t)s) * 1e9)};
    while (!interrupted() && nanosleep(&left, &left) != 0 && errno == EINTR) continue;
    return !interrupted();
}

http_result http_get(http *h, const http_request *r, http_answer *a, char message[HTTP_MESSAGE]) {
    unsigned failures = 0;
    uint64_t start_offset =
        r->offset ? *r->offset : 0; /* highest *offset at the last restart of the count */
    for (;;) {
        message[0] = '\0';
        int result = follow_redirects(h, r, a, message);
        if (result != RESULT_TEMPORARY) return (http_result)result;
        if (r->offset && *r->offset >= start_offset + HTTP_PROGRESS) {
            start_offset = *r->offset;
            failures = 0;
        }
        if (failures++ >= h->params.retries) {
            size_t n = strlen(message);
            snprintf(message + n, HTTP_MESSAGE - n, " (after %u attempts)", failures);
            return HTTP_FAILED;
        }
        if (!wait_for_retry(h, failures, a, message)) return HTTP_INTERRUPTED;
    }
}
