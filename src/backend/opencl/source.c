/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of kernels: embedded, or from a directory for tuning. */
#include "backend/opencl/program.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "platform/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { FILES_MAX = 16, NAME_MAX_BYTES = 64, SOURCE_MAX = 1 << 20 };

/* A text in preparation, and the files that it includes. */
typedef struct assembly {
    char *text; /* owned */
    size_t len, cap;
    char names[FILES_MAX][NAME_MAX_BYTES];
    size_t n_names;
    const char *directory; /* directory of replacements; may be NULL */
    ag_error *err;
} assembly;

static ag_status append_text(assembly *a, const char *text, size_t len) {
    if (len > SOURCE_MAX - a->len) {
        return AG_FAIL(a->err, LIMIT, "%s: more than %d bytes with what it includes", a->names[0],
                       SOURCE_MAX);
    }
    AG_TRY(AG_GROW(a->text, &a->cap, a->len + len + 1, a->err));
    memcpy(a->text + a->len, text, len);
    a->len += len;
    a->text[a->len] = '\0';
    return AG_OK;
}

/* ---- one file ---- */

/* Sets *text to a buffer of SOURCE_MAX + 1 bytes with the file's bytes. */
static ag_status read_file(int fd, const char *path, char **text, size_t *len, ag_error *err) {
    ag_file_info info;
    if (!ag_fd_stat(fd, &info)) return AG_FAIL(err, IO, "%s: %s", path, strerror(errno));
    if (info.kind != AG_FILE_REGULAR) return AG_FAIL(err, IO, "%s: is not a regular file", path);
    char *buf = ag_malloc(SOURCE_MAX + 1);
    if (!buf) return AG_FAIL(err, NOMEM, "source text of %s", path);
    const bool ok = ag_fd_read_at(fd, 0, buf, SOURCE_MAX + 1, len);
    if (ok && *len <= SOURCE_MAX) {
        *text = buf;
        return AG_OK;
    }
    ag_free(buf);
    if (!ok) return AG_FAIL(err, IO, "%s: %s", path, strerror(errno));
    return AG_FAIL(err, LIMIT, "%s: more than %d bytes", path, SOURCE_MAX);
}

/* Reads a file of the directory. *text stays NULL if there is no such file. */
static ag_status read_override(const char *dir, const char *file, char **text, size_t *len,
                               ag_error *err) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s", dir, file);
    if (n < 0 || (size_t)n >= sizeof path) {
        return AG_FAIL(err, INVALID, "AG_OPENCL_KERNELS: a path of more than %zu bytes",
                       sizeof path);
    }
    const int fd = ag_fd_open(path);
    if (fd < 0 && errno == ENOENT) {
        ag_file_info info;
        if (ag_file_stat(dir, &info)) return AG_OK;
        return AG_FAIL(err, NOT_FOUND, "AG_OPENCL_KERNELS: %s: %s", dir, strerror(errno));
    }
    if (fd < 0) return AG_FAIL(err, IO, "%s: %s", path, strerror(errno));
    const ag_status st = read_file(fd, path, text, len, err);
    ag_fd_close(fd);
    return st;
}

static const ag_cl_source *find_embedded(const char *file) {
    for (size_t i = 0; i < ag_cl_n_sources; i++) {
        if (strcmp(ag_cl_sources[i].file, file) == 0) return &ag_cl_sources[i];
    }
    return NULL;
}

/* ---- with what it includes ---- */

static ag_status append_file(assembly *a, const char *file);

/* Returns whether the line is `#include "name"`, and copies the name. */
static bool include_name(const char *line, size_t len, char name[NAME_MAX_BYTES]) {
    static const char start[] = "#include \"";
    const size_t n_start = sizeof start - 1;
    if (len < n_start || memcmp(line, start, n_start) != 0) return false;
    const char *from = line + n_start, *end = memchr(from, '"', len - n_start);
    if (!end || (size_t)(end - from) >= NAME_MAX_BYTES) return false;
    memcpy(name, from, (size_t)(end - from));
    name[end - from] = '\0';
    return true;
}

static ag_status append_place(assembly *a, size_t line, const char *file) {
    char text[NAME_MAX_BYTES + 32];
    int n = snprintf(text, sizeof text, "#line %zu \"%s\"\n", line, file);
    return append_text(a, text, (size_t)n);
}

static ag_status append_lines(assembly *a, const char *file, const char *text, size_t len) {
    AG_TRY(append_place(a, 1, file));
    size_t line = 1;
    for (const char *p = text, *end = text + len; p < end; line++) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t n = newline ? (size_t)(newline - p) + 1 : (size_t)(end - p);
        char name[NAME_MAX_BYTES];
        if (include_name(p, n, name)) {
            AG_TRY(append_file(a, name));
            AG_TRY(append_place(a, line + 1, file));
        } else {
            AG_TRY(append_text(a, p, n));
            if (!newline) AG_TRY(append_text(a, "\n", 1));
        }
        p += n;
    }
    return AG_OK;
}

static ag_status append_file(assembly *a, const char *file) {
    for (size_t i = 0; i < a->n_names; i++) {
        if (strcmp(a->names[i], file) == 0) return AG_OK;
    }
    if (a->n_names == FILES_MAX || strlen(file) >= NAME_MAX_BYTES) {
        return AG_FAIL(a->err, LIMIT, "%s: more than %d files, or a name of more than %d bytes",
                       file, FILES_MAX, NAME_MAX_BYTES - 1);
    }
    memcpy(a->names[a->n_names++], file, strlen(file) + 1);
    const char *dir = a->directory;
    char *text = NULL;
    size_t len = 0;
    if (dir) AG_TRY(read_override(dir, file, &text, &len, a->err));
    if (text) {
        ag_status st = append_lines(a, file, text, len);
        ag_free(text);
        return st;
    }
    const ag_cl_source *s = find_embedded(file);
    if (!s) return AG_FAIL(a->err, NOT_FOUND, "kernel file %s is not in this build", file);
    return append_lines(a, file, (const char *)s->text, s->len);
}

ag_status ag_cl_source_load(const char *directory, const char *file, char **text, size_t *len,
                            ag_error *err) {
    *text = NULL;
    assembly a = {.directory = directory, .err = err};
    ag_status st = append_file(&a, file);
    if (st == AG_OK) st = append_text(&a, "", 0);
    if (st != AG_OK) {
        ag_free(a.text);
        return st;
    }
    *text = a.text;
    *len = a.len;
    return AG_OK;
}
