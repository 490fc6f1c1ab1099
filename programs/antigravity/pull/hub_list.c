/* SPDX-License-Identifier: Apache-2.0 */
#include "hub_list.h"

#include "../command.h"
#include "../support/text_buffer.h"
#include "../terminal/output.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two million parsed values use at most about 500 MB. Lists of large repositories and indices of
 * large models have about 200,000. */
enum { MAX_TEXT_BYTES = 1 << 26, MAX_VALUES = 2000000 };

void hub_encode(char *to, size_t cap, const char *from, const char *also) {
    size_t n = 0;
    for (; *from && n + 4 < cap; from++) {
        const unsigned char c = (unsigned char)*from;
        const bool plain = c < 0x80 && (isalnum(c) || strchr("-._~", c) || strchr(also, c));
        n += (size_t)snprintf(to + n, cap - n, plain ? "%c" : "%%%02X", c);
    }
    to[n] = '\0';
}

/* ---- JSON ---- */

static http_go begin_text(void *user, const http_answer *a, char *message) {
    (void)a, (void)message;
    text_empty(user); /* discard an earlier attempt */
    return HTTP_GO;
}

static bool put_text(void *user, const void *bytes, size_t n, char *message) {
    text_buffer *t = user;
    if (n > MAX_TEXT_BYTES - t->len) {
        snprintf(message, HTTP_MESSAGE, "the answer of the hub is too long: it exceeds %d MiB",
                 MAX_TEXT_BYTES >> 20);
        return false;
    }
    text_append(t, bytes, n);
    if (t->failed) snprintf(message, HTTP_MESSAGE, "out of memory: answer of the hub");
    return !t->failed;
}

/* Returns whether the text has at most MAX_VALUES values. Each value except the first follows one
 * of these characters outside of a string. */
static bool has_few_values(const char *text, size_t n) {
    size_t count = 0;
    bool in_string = false;
    for (size_t i = 0; i < n && count <= MAX_VALUES; i++) {
        if (in_string && text[i] == '\\') i++;
        else if (text[i] == '"') in_string = !in_string;
        else count += !in_string && (text[i] == ',' || text[i] == '[' || text[i] == '{');
    }
    return count <= MAX_VALUES;
}

int hub_get_json(const hub *h, const char *url, json_t **out) {
    char message[HTTP_MESSAGE];
    http_answer a;
    json_error_t error = {.text = ""};
    text_buffer t = {0};
    const http_request r = {.url = url, .user = &t, .begin = begin_text, .put = put_text};
    http_result result = http_get(h->client, &r, &a, message);
    *out = NULL;
    if (result == HTTP_DONE && !has_few_values(t.data, t.len)) {
        snprintf(error.text, sizeof error.text, "more than %d values", MAX_VALUES);
    } else if (result == HTTP_DONE) {
        *out = json_loadb(t.data ? t.data : "", t.len, JSON_REJECT_DUPLICATES, &error);
    }
    if (result == HTTP_DONE && !*out)
        snprintf(message, sizeof message, "%.*s: the answer is not valid JSON: %s",
                 http_shown_length(url), url, error.text);
    text_release(&t);
    if (result == HTTP_INTERRUPTED) return EXIT_INTERRUPTED;
    if (!*out) complain("%s", message);
    return *out ? EXIT_DONE : EXIT_FAILED;
}

const char *hub_type_name(const json_t *value) {
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "an array",  [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number", [JSON_REAL] = "a fraction", [JSON_TRUE] = "a boolean",
        [JSON_FALSE] = "a boolean",  [JSON_NULL] = "null",
    };
    return value ? names[json_typeof(value)] : "missing";
}

/* ---- one file of the list ---- */

static bool report_field(const char *file, const char *field, const char *reason, const char *is) {
    complain("the hub's list: file '%.200s': %s %s; it is %.200s", file, field, reason, is);
    return false;
}

/* Reads the optional string field `key`; messages call it `shown`. Prints a message and returns
 * false for another type. *out is NULL if the field is missing. */
static bool read_text(const json_t *item, const char *file, const char *key, const char *shown,
                      const char **out) {
    const json_t *value = json_object_get(item, key);
    *out = json_string_value(value);
    if (!value || *out) return true;
    return report_field(file, shown, "must be a string", hub_type_name(value));
}

static bool read_size(const json_t *item, const char *file, int64_t *out) {
    char text[32];
    const json_t *value = json_object_get(item, "size");
    *out = value ? json_integer_value(value) : -1;
    if (!value) return true;
    if (!json_is_integer(value))
        return report_field(file, "size", "must be an integer", hub_type_name(value));
    if (*out >= 0 && *out <= PULL_MAX_BYTES) return true;
    snprintf(text, sizeof text, "%" PRId64, *out);
    return report_field(file, "size", "must be between 0 and 256 TiB", text);
}

static bool read_checksum(const json_t *item, const char *file, const char **out) {
    char hex[SHA256_HEX];
    const json_t *lfs = json_object_get(item, "lfs");
    *out = NULL;
    if (!lfs || json_is_null(lfs)) return true;
    if (!json_is_object(lfs))
        return report_field(file, "lfs", "must be an object", hub_type_name(lfs));
    if (!read_text(lfs, file, "sha256", "lfs.sha256", out)) return false;
    if (!*out || (pull_read_hash(*out, hex) && (*out)[0] != '"')) return true;
    return report_field(file, "lfs.sha256", "must be 64 hexadecimal digits", *out);
}

/* Returns the fault of a path, or NULL. */
static const char *find_path_fault(const char *path) {
    if (!path[0]) return "must not be empty";
    if (path[0] == '/') return "must not be absolute";
    for (const char *c = path; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) return "must not hold control characters";
    for (const char *segment = path;; segment += strcspn(segment, "/") + 1) {
        const size_t n = strcspn(segment, "/");
        if (!n || (n == 1 && segment[0] == '.') || (n == 2 && !strncmp(segment, "..", 2)))
            return "must not hold the parts '', '.' or '..'";
        if (!segment[n]) return NULL;
    }
}

static bool read_file(const json_t *item, size_t i, hub_file *f) {
    char number[32];
    snprintf(number, sizeof number, "siblings[%zu]", i);
    if (!json_is_object(item))
        return report_field(number, "the entry", "must be an object", hub_type_name(item));
    f->path = json_string_value(json_object_get(item, "rfilename"));
    if (!f->path)
        return report_field(number, "rfilename", "must be a string",
                            hub_type_name(json_object_get(item, "rfilename")));
    const char *fault = find_path_fault(f->path);
    if (fault) return report_field(number, "rfilename", fault, f->path);
    return read_size(item, f->path, &f->size) && read_checksum(item, f->path, &f->sha256) &&
           read_text(item, f->path, "blobId", "blobId", &f->blob);
}

/* ---- the list ---- */

static int compare_paths(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_unique(const hub_list *l) {
    const char **paths = malloc((l->n + 1) * sizeof *paths);
    int code = EXIT_DONE;
    if (!paths) return complain_no_memory();
    for (size_t i = 0; i < l->n; i++) paths[i] = l->files[i].path;
    qsort(paths, l->n, sizeof *paths, compare_paths);
    for (size_t i = 1; i < l->n && code == EXIT_DONE; i++) {
        if (strcmp(paths[i - 1], paths[i]) != 0) continue;
        (void)report_field(paths[i], "rfilename", "must be unique", "listed twice");
        code = EXIT_FAILED;
    }
    free(paths);
    return code;
}

/* Reads the commit; it must be safe in URLs. */
static int read_commit(const char *repo, const char *revision, hub_list *out) {
    const json_t *sha = json_object_get(out->answer, "sha");
    const char *text = sha ? json_string_value(sha) : revision;
    const size_t n = text ? strlen(text) : 0;
    if (n && n < sizeof out->commit && (!sha || strspn(text, "0123456789abcdefABCDEF") == n)) {
        memcpy(out->commit, text, n + 1);
        return EXIT_DONE;
    }
    return complain_failure(
        "%s: the hub's list: sha must be a commit in hexadecimal digits; it is %.200s", repo,
        text ? text : hub_type_name(sha));
}

static int read_list(const char *repo, const json_t *siblings, hub_list *out) {
    if (!json_is_array(siblings))
        return complain_failure("%s: the hub's list: siblings must be an array; it is %s", repo,
                                hub_type_name(siblings));
    const size_t n = json_array_size(siblings);
    out->files = calloc(n + 1, sizeof *out->files);
    if (!out->files) return complain_no_memory();
    for (; out->n < n; out->n++)
        if (!read_file(json_array_get(siblings, out->n), out->n, &out->files[out->n]))
            return EXIT_FAILED;
    if (n) return check_unique(out);
    return complain_failure("%s: the hub lists no files", repo);
}

int hub_list_get(const hub *h, const char *repo, const char *revision, hub_list *out) {
    char url[HUB_URL_SIZE], encoded[3 * HUB_REVISION_SIZE];
    *out = (hub_list){.n = 0};
    hub_encode(encoded, sizeof encoded, revision, "");
    snprintf(url, sizeof url, "%s/api/models/%s/revision/%s?blobs=true", h->endpoint, repo,
             encoded);
    int code = hub_get_json(h, url, &out->answer);
    if (code != EXIT_DONE) return code;
    if (!json_is_object(out->answer))
        return complain_failure("%s: the hub's list must be an object; it is %s", repo,
                                hub_type_name(out->answer));
    code = read_commit(repo, revision, out);
    return code == EXIT_DONE ? read_list(repo, json_object_get(out->answer, "siblings"), out)
                             : code;
}

void hub_list_free(hub_list *l) {
    json_decref(l->answer);
    free(l->files);
    *l = (hub_list){.n = 0};
}
