/* SPDX-License-Identifier: Apache-2.0 */
#include "request_head.h"

#include "../threads/account.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Returns whether c may be in a method or the name of a header (RFC 9110, 5.6.2). */
static bool is_name_char(unsigned char c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
    return c && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool is_value_char(unsigned char c) { return c == '\t' || (c >= ' ' && c != 0x7f); }

int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Decodes "%2F" to "/", in place. Fails for malformed escapes and for NUL. */
static bool decode_path(char *path) {
    char *to = path;
    for (const char *at = path; *at; at++) {
        if (*at != '%') {
            *to++ = *at;
            continue;
        }
        const int high = hex_digit(at[1]), low = high < 0 ? -1 : hex_digit(at[2]);
        if (low < 0 || (high == 0 && low == 0)) return false;
        *to++ = (char)(high * 16 + low);
        at += 2;
    }
    *to = '\0';
    return true;
}

/* Returns the next line of [*at, end), without its CR LF. NULL if it does not end so, or contains
 * LF or NUL. */
static char *next_line(char **at, char *end) {
    char *line = *at, *cr = memchr(line, '\r', (size_t)(end - line));
    if (!cr || cr + 1 >= end || cr[1] != '\n') return NULL;
    if (memchr(line, '\n', (size_t)(cr - line)) || memchr(line, '\0', (size_t)(cr - line)))
        return NULL;
    *cr = '\0';
    *at = cr + 2;
    return line;
}

/* Parses "/path?query", "http://host/path?query", or "*" with OPTIONS. `host` is a buffer for the
 * host. */
static bool read_target(request_head *h, char *target, char *host) {
    for (const char *c = target; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f || *c == '#') return false;
    if (!strncasecmp(target, "http://", 7) || !strncasecmp(target, "https://", 8)) {
        char *authority = strstr(target, "//") + 2;
        const size_t n = strcspn(authority, "/?");
        if (!n || memchr(authority, '@', n)) return false;
        memmove(host, authority, n);
        host[n] = '\0';
        h->host = host;
        target = authority + n;
        if (*target != '/') return false;
    }
    if (!strcmp(target, "*")) {
        h->path = target;
        h->query = "";
        return !strcmp(h->method, "OPTIONS");
    }
    if (target[0] != '/') return false;
    char *query = strchr(target, '?');
    if (query) *query++ = '\0';
    h->query = query ? query : "";
    if (!decode_path(target)) return false;
    h->path = target;
    return true;
}

static int read_first_line(request_head *h, char *line, char *host, const char **reason) {
    char *target = strchr(line, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;
    *reason = "malformed request line; expected METHOD TARGET HTTP/1.1";
    if (!version || target == line) return 400;
    *target++ = '\0';
    *version++ = '\0';
    for (const char *c = line; *c; c++)
        if (!is_name_char((unsigned char)*c)) return 400;
    h->method = line;
    if (strncmp(version, "HTTP/", 5) != 0) return 400;
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) {
        *reason = "unsupported HTTP version; use HTTP/1.1 or HTTP/1.0";
        return 505;
    }
    h->is_http_1_0 = version[7] == '0';
    *reason = "malformed request target";
    return read_target(h, target, host) ? 0 : 400;
}

static int read_field(request_head *h, char *line, const char **reason) {
    char *colon = strchr(line, ':');
    *reason = "malformed header; expected NAME: VALUE";
    if (!colon || colon == line) return 400;
    if (h->n_fields == HEAD_MAX_FIELDS) {
        *reason = "too many headers: at most 100";
        return 431;
    }
    for (char *c = line; c < colon; c++) {
        if (!is_name_char((unsigned char)*c)) return 400;
        if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    }
    *colon = '\0';
    char *value = colon + 1 + strspn(colon + 1, " \t"), *end = value + strlen(value);
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) end--;
    *end = '\0';
    for (const char *c = value; *c; c++)
        if (!is_value_char((unsigned char)*c)) return 400;
    h->fields[h->n_fields++] = (head_field){line, value};
    return 0;
}

const char *request_head_field(const request_head *h, const char *name) {
    for (size_t i = 0; i < h->n_fields; i++)
        if (!strcmp(h->fields[i].name, name)) return h->fields[i].value;
    return NULL;
}

/* Returns whether the list "a, b" of a header contains the word. Case is ignored. */
static bool list_has(const char *list, const char *word) {
    const size_t n = strlen(word);
    while (list && *list) {
        list += strspn(list, ", \t");
        const size_t k = strcspn(list, ", \t");
        if (k == n && !strncasecmp(list, word, n)) return true;
        list += k;
    }
    return false;
}

static size_t count_fields(const request_head *h, const char *name) {
    size_t n = 0;
    for (size_t i = 0; i < h->n_fields; i++) n += !strcmp(h->fields[i].name, name);
    return n;
}

static bool read_length(request_head *h, const char *value) {
    h->has_length = true;
    if (!value[0] || strlen(value) > 18 || strspn(value, "0123456789") != strlen(value))
        return false;
    h->length = strtoull(value, NULL, 10);
    return true;
}

/* Reads how the body is framed. Ambiguous framing would allow request smuggling, so it is
 * rejected. */
static int read_framing(request_head *h, const char **reason) {
    const char *length = request_head_field(h, "content-length");
    const char *encoding = request_head_field(h, "transfer-encoding");
    *reason = "Content-Length and Transfer-Encoding: only one of them may be sent, and only once";
    if (count_fields(h, "content-length") > 1 || count_fields(h, "transfer-encoding") > 1)
        return 400;
    if (length && encoding) return 400;
    *reason = "Content-Length must be a number";
    if (length && !read_length(h, length)) return 400;
    if (!encoding) return 0;
    *reason = "Transfer-Encoding: not allowed in HTTP/1.0";
    if (h->is_http_1_0) return 400;
    *reason = "Transfer-Encoding: only 'chunked' is supported";
    h->chunked = !strcasecmp(encoding, "chunked");
    return h->chunked ? 0 : 501;
}

static int read_connection(request_head *h, const char **reason) {
    const char *host = request_head_field(h, "host");
    *reason = "Host: exactly one header is required";
    if (count_fields(h, "host") > 1 || (!host && !h->is_http_1_0)) return 400;
    if (!h->host) h->host = host;
    const char *connection = request_head_field(h, "connection");
    h->keep_alive =
        h->is_http_1_0 ? list_has(connection, "keep-alive") : !list_has(connection, "close");
    const char *expect = request_head_field(h, "expect");
    *reason = "Expect: only '100-continue' is supported";
    if (expect && strcasecmp(expect, "100-continue") != 0) return 417;
    h->expects_continue = expect && !h->is_http_1_0;
    return 0;
}

int request_head_read(request_head *h, const char *text, size_t n, const char **reason) {
    *h = (request_head){.text = account_malloc(2 * n + 2)};
    *reason = "out of memory";
    if (!h->text) return 503;
    memcpy(h->text, text, n);
    h->text[n] = '\0';
    char *at = h->text, *end = h->text + n, *host = h->text + n + 1;
    *reason = "malformed head: lines must end with CR LF and must not contain NUL";
    char *line = next_line(&at, end);
    int status = line ? read_first_line(h, line, host, reason) : 400;
    while (!status) {
        *reason = "malformed head: lines must end with CR LF and must not contain NUL";
        line = next_line(&at, end);
        if (!line) return 400;
        if (!line[0]) break;
        status = read_field(h, line, reason);
    }
    if (!status) status = read_framing(h, reason);
    if (!status) status = read_connection(h, reason);
    return status;
}

void request_head_free(request_head *h) {
    account_free(h->text);
    *h = (request_head){.text = NULL};
}
