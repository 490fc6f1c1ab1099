/* SPDX-License-Identifier: Apache-2.0 */
/* Writing: responses and streams. */
#include "connection_impl.h"

#include "../system.h"
#include "socket.h"

#include <stdio.h>

enum { MAX_PIECE = 32 << 20 };

static const char *phrase_of(int status) {
    static const struct {
        int status;
        const char *phrase;
    } all[] = {
        {200, "OK"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i].status == status) return all[i].phrase;
    return "Unknown";
}

/* Fails without memory. */
static bool write_head(connection *c, int status, const char *type, const char *headers) {
    struct evbuffer *out = bufferevent_get_output(c->events);
    char date[64];
    system_format_time(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", system_wall_clock());
    /* The rest of the body must not be read as a request. */
    if (c->has_unread_body) c->close_after = true;
    return evbuffer_add_printf(out, "HTTP/1.1 %d %s\r\nDate: %s\r\n", status, phrase_of(status),
                               date) > 0 &&
           (!type || evbuffer_add_printf(out, "Content-Type: %s\r\n", type) > 0) &&
           evbuffer_add_printf(out, "%sConnection: %s\r\nX-Content-Type-Options: nosniff\r\n",
                               headers, c->close_after ? "close" : "keep-alive") > 0;
}

/* Ends a complete response. on_written() is triggered, because the buffer may be empty already. */
static void flush_response(connection *c) {
    connection_enter(c, CONNECTION_FLUSHING);
    c->is_reading = false;
    connection_set_deadline(c, 0);
    bufferevent_trigger(c->events, EV_WRITE, BEV_TRIG_DEFER_CALLBACKS);
}

/* Ends the connection in the next turn of the loop: there is no memory for a response. */
static void abort_reply(connection *c) {
    struct evbuffer *out = bufferevent_get_output(c->events);
    evbuffer_drain(out, evbuffer_get_length(out));
    socket_shutdown(connection_socket(c));
}

void connection_reply(connection *c, int status, const char *type, const char *headers,
                      const char *body, size_t n) {
    struct evbuffer *out = bufferevent_get_output(c->events);
    bool ok = write_head(c, status, type, headers);
    const bool has_no_body = status == 204 || status == 304;
    if (has_no_body) ok = ok && evbuffer_add(out, "\r\n", 2) == 0;
    else ok = ok && evbuffer_add_printf(out, "Content-Length: %zu\r\n\r\n", n) > 0;
    if (!c->is_head && n && !has_no_body) ok = ok && evbuffer_add(out, body, n) == 0;
    c->n_sent = n;
    if (ok) flush_response(c);
    else abort_reply(c);
}

bool connection_write_now(connection *c) {
    struct evbuffer *out = bufferevent_get_output(c->events);
    evbuffer_unfreeze(out, 1); /* otherwise only the bufferevent may write from it */
    if (c->is_tls) return tls_write_now(c->events);
    evbuffer_write(out, connection_socket(c));
    return !evbuffer_get_length(out);
}

void connection_begin_stream(connection *c, int status, const char *type, const char *headers) {
    c->is_chunked = !c->is_http_1_0;
    if (!c->is_chunked) c->close_after = true;
    const bool ok = write_head(c, status, type, headers);
    struct evbuffer *out = bufferevent_get_output(c->events);
    connection_enter(c, CONNECTION_STREAMING);
    if (!ok ||
        evbuffer_add_printf(out, "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n%s\r\n",
                            c->is_chunked ? "Transfer-Encoding: chunked\r\n" : "") < 0)
        abort_reply(c);
}

bool connection_stream(connection *c, const char *bytes, size_t n) {
    struct evbuffer *out = bufferevent_get_output(c->events);
    const size_t n_unread = evbuffer_get_length(out);
    if (!n) return true;
    const bool ok = (!c->is_chunked || evbuffer_add_printf(out, "%zx\r\n", n) > 0) &&
                    evbuffer_add(out, bytes, n) == 0 &&
                    (!c->is_chunked || evbuffer_add(out, "\r\n", 2) == 0);
    c->n_sent += n;
    /* The new bytes do not count: the client cannot have read them yet. */
    if (ok && n_unread <= c->set->limits.max_unread && n <= MAX_PIECE) return true;
    connection_close(c, false);
    return false;
}

void connection_end_stream(connection *c) {
    struct evbuffer *out = bufferevent_get_output(c->events);
    if (c->is_chunked && evbuffer_add(out, "0\r\n\r\n", 5) != 0) connection_close(c, false);
    else flush_response(c);
}

void connection_abort(connection *c) { connection_close(c, false); }
