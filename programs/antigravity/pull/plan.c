/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include "../command.h"
#include "../support/user_files.h"
#include "../terminal/output.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

pull_file *pull_plan_add(pull_plan *p, const char *url, const char *name, int64_t size) {
    pull_file *grown = realloc(p->files, (p->n + 1) * sizeof *grown);
    pull_file f = {.url = strdup(url), .name = strdup(name), .size = size};
    if (grown) p->files = grown;
    if (grown && f.url && f.name) {
        p->files[p->n] = f;
        return &p->files[p->n++];
    }
    free(f.url);
    free(f.name);
    complain_no_memory();
    return NULL;
}

void pull_plan_free(pull_plan *p) {
    for (size_t i = 0; i < p->n; i++) {
        free(p->files[i].url);
        free(p->files[i].name);
    }
    free(p->files);
    *p = (pull_plan){.n = 0};
}

bool pull_read_hash(const char *text, char hex[SHA256_HEX]) {
    const size_t quote = text[0] == '"';
    hex[0] = '\0';
    if (strspn(text + quote, "0123456789abcdefABCDEF") != SHA256_HEX - 1) return false;
    const char *end = text + quote + SHA256_HEX - 1;
    if (strcmp(end, quote ? "\"" : "") != 0) return false;
    for (size_t i = 0; i + 1 < SHA256_HEX; i++)
        hex[i] = (char)tolower((unsigned char)text[quote + i]);
    hex[SHA256_HEX - 1] = '\0';
    return true;
}

int64_t pull_read_size(const char *text) {
    int64_t size = 0;
    for (const char *c = text; *c; c++) {
        if (*c < '0' || *c > '9') return -1;
        size = 10 * size + (*c - '0');
        if (size > PULL_MAX_BYTES) return -1;
    }
    return text[0] ? size : -1;
}

const char *pull_validator(const http_answer *a) {
    return a->etag[0] == '"' ? a->etag : a->modified;
}

void pull_make_name(char name[NAME_MAX + 1], const char *from, size_t n) {
    size_t k = 0;
    while (n && (*from == '.' || *from == '-')) from++, n--;
    for (size_t i = 0; i < n && k < NAME_MAX; i++) {
        const unsigned char c = (unsigned char)from[i];
        const bool known = c < 0x80 && (isalnum(c) || strchr("._-", c));
        name[k++] = known ? (char)c : '-';
    }
    name[k] = '\0';
}

/* ---- one URL ---- */

/* Stops after the headers. */
static http_go begin_probe(void *user, const http_answer *a, char *message) {
    (void)user, (void)a, (void)message;
    return HTTP_ENOUGH;
}

static bool put_nothing(void *user, const void *bytes, size_t n, char *message) {
    (void)user, (void)bytes, (void)n, (void)message;
    return true;
}

/* Makes a name from the last path segment of the URL. */
static void name_from_url(const char *url, char name[NAME_MAX + 1]) {
    const size_t n = (size_t)http_shown_length(url), origin = http_origin_length(url);
    size_t at = n;
    while (at > origin && url[at - 1] != '/') at--;
    pull_make_name(name, url + at, n - at);
}

static void set_version(pull_file *f, const http_answer *a) {
    const bool hash = pull_read_hash(a->linked_etag, f->sha256);
    if (hash) return;
    snprintf(f->version, sizeof f->version, "%s", pull_validator(a));
    snprintf(f->validator, sizeof f->validator, "%s", pull_validator(a));
}

int pull_plan_url(const hub *h, const char *url, pull_plan *out) {
    char message[HTTP_MESSAGE], name[NAME_MAX + 1];
    http_answer a;
    const http_request r = {.url = url, .begin = begin_probe, .put = put_nothing};
    if (memchr(url, '@', http_origin_length(url)))
        return complain_usage("the URL must not hold a user name or password");
    http_result result = http_get(h->client, &r, &a, message);
    if (result == HTTP_INTERRUPTED) return EXIT_INTERRUPTED;
    if (result != HTTP_DONE) return complain_failure("%s", message);
    name_from_url(url, name);
    if (path_ends_in(name, ".gguf")) name[strlen(name) - strlen(".gguf")] = '\0';
    snprintf(out->name, sizeof out->name, "%s", name);
    const bool encoded = a.encoding[0] && strcasecmp(a.encoding, "identity") != 0;
    const char *length = a.linked_size[0] ? a.linked_size : encoded ? "" : a.length;
    const int64_t size = pull_read_size(length);
    if (length[0] && size < 0)
        return complain_failure("%.*s: the server's length '%s' is not a size of at most 256 TiB",
                                http_shown_length(url), url, length);
    pull_file *f = pull_plan_add(out, url, "model.gguf", size);
    if (!f) return EXIT_FAILED;
    set_version(f, &a);
    return EXIT_DONE;
}
