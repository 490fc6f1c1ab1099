/* SPDX-License-Identifier: Apache-2.0 */
#include "input.h"

#include "../command.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Limits an endless device; prompts are shorter. */
static const size_t max_bytes = (size_t)1 << 28;

static int read_all(int fd, const char *name, char **out, size_t *len) {
    size_t n = 0, cap = 1 << 16;
    char *data = malloc(cap);
    int code = data ? EXIT_DONE : complain_no_memory();
    while (code == EXIT_DONE) {
        if (n + 1 == cap) {
            char *grown = realloc(data, cap * 2);
            if (!grown) {
                code = complain_no_memory();
                break;
            }
            data = grown;
            cap *= 2;
        }
        ssize_t got = read(fd, data + n, cap - n - 1);
        if (got == 0) break;
        if (got > 0) n += (size_t)got;
        if (interrupted()) {
            complain("interrupted while reading %s", name);
            code = EXIT_INTERRUPTED;
        } else if (got < 0 && errno != EINTR) {
            code = complain_failure("%s: %s", name, strerror(errno));
        } else if (n > max_bytes) {
            code = complain_failure("%s: too long: more than %zu bytes", name, max_bytes);
        }
    }
    if (code != EXIT_DONE) {
        free(data);
        return code;
    }
    data[n] = '\0';
    *out = data;
    *len = n;
    return EXIT_DONE;
}

int input_read(const char *path, char **out, size_t *len) {
    *out = NULL;
    *len = 0;
    if (!path || !strcmp(path, "-")) return read_all(STDIN_FILENO, "standard input", out, len);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return complain_failure("%s: %s", path, strerror(errno));
    int code = read_all(fd, path, out, len);
    close(fd);
    return code;
}

int input_check(const char *option, const char *path, const char *advice) {
    if (!strcmp(path, "-") || access(path, R_OK) == 0) return EXIT_DONE;
    return complain_failure("--%s %s: %s%s%s", option, path, strerror(errno), advice ? "; " : "",
                            advice ? advice : "");
}

int input_refuse_nul(const char *name, const char *text, size_t len) {
    const char *at = memchr(text, '\0', len);
    size_t line = 1, first = 0;
    if (!at) return EXIT_DONE;
    for (size_t i = 0; text + i < at; i++)
        if (text[i] == '\n') line++, first = i + 1;
    return complain_failure("%s: not text: line %zu has a NUL byte at its byte %zu", name, line,
                            (size_t)(at - text) - first + 1);
}

int input_read_text(const char *path, char **out, size_t *len) {
    int code = input_read(path, out, len);
    if (code == EXIT_DONE)
        code =
            input_refuse_nul(path && strcmp(path, "-") != 0 ? path : "standard input", *out, *len);
    if (code == EXIT_DONE) return code;
    free(*out);
    *out = NULL;
    return code;
}
