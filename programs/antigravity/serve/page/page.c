/* SPDX-License-Identifier: Apache-2.0 */
/* GET / and the files of the page. They are embedded in the program, and the page loads nothing
 * from other servers. */
#include "../request/routes.h"
#include "page_files.h"

#include <string.h>

/* Allows no other origins, no inline scripts and no embedding in frames. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static const char *media_type(const char *name) {
    static const struct {
        const char *ending, *type;
    } all[] = {
        {".html", "text/html; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".svg", "image/svg+xml"},
    };
    const char *ending = strrchr(name, '.');
    for (size_t i = 0; ending && i < sizeof all / sizeof all[0]; i++)
        if (!strcmp(ending, all[i].ending)) return all[i].type;
    return "application/octet-stream";
}

/* Returns whether If-None-Match contains the etag: a list of tags, possibly weak, or "*". */
static bool etag_matches(const char *tags, const char *etag) {
    return tags && (!strcmp(tags, "*") || strstr(tags, etag));
}

static void reply_file(serve_http_request *http, const page_file *f) {
    http_reply_header(http, "Content-Security-Policy", policy);
    http_reply_header(http, "ETag", f->etag);
    http_reply_header(http, "Cache-Control", "no-cache"); /* stored, but revalidated */
    http_reply_header(http, "Vary", "Accept");
    if (etag_matches(http_header(http, "if-none-match"), f->etag))
        http_reply_text(http, 304, NULL, "", 0);
    else http_reply_text(http, 200, media_type(f->name), (const char *)f->data, f->n);
}

static void reply_named(serve_http_request *http, const char *name) {
    serve_error e;
    for (size_t i = 0; i < n_page_files; i++) {
        if (strcmp(page_files[i].name, name) != 0) continue;
        reply_file(http, &page_files[i]);
        return;
    }
    reject_request(&e, 404, NULL, "page file '%.100s' not found", name);
    http_reply_error(http, &e);
}

static void reply_page_file(serve_http_request *http) { reply_named(http, http_path_tail(http)); }

/* Replies with the page to browsers. Other programs ask here whether an ollama server runs. */
static void reply_root(serve_http_request *http) {
    static const char running[] = "Ollama is running";
    const char *accepted = http_header(http, "accept");
    if (accepted && strstr(accepted, "text/html")) {
        reply_named(http, "index.html");
        return;
    }
    http_reply_header(http, "Vary", "Accept");
    http_reply_text(http, 200, "text/plain; charset=utf-8", running, sizeof running - 1);
}

const serve_route page_routes[] = {
    {"GET", "/", .handle = reply_root, .is_public = true},
    {"GET", "/page/*", .handle = reply_page_file, .is_public = true},
    {0},
};
