/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include "../command.h"
#include "progress.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *command_name;
static int write_error; /* errno of the first failed write */

void output_command(const char *name) { command_name = name; }

void output_keep_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0) continue;
        /* Reading closed input and writing closed output must still fail. */
        int mode = fd == STDIN_FILENO ? O_WRONLY : fd == STDOUT_FILENO ? O_RDONLY : O_RDWR;
        if (open("/dev/null", mode) != fd) return; /* not the lowest free number */
    }
    /* A full buffer makes printf() write and lose errno: a large one avoids that. */
    static char buffer[1 << 16];
    if (!isatty(STDOUT_FILENO)) setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
}

void output_survive_limits(void) { signal(SIGXFSZ, SIG_IGN); }

/* Returns the length of the UTF-8 sequence at s, 0 if invalid. Accepts overlong sequences, which
 * are harmless here. */
static size_t sequence(const unsigned char *s) {
    size_t n = s[0] >= 0xf5 ? 0 : s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    return n;
}

char *make_printable(char *text) {
    unsigned char *c = (unsigned char *)text;
    while (*c) {
        if (*c < 0x80) {
            if (*c < 0x20 || *c == 0x7f) *c = '?';
            c++;
            continue;
        }
        size_t n = sequence(c);
        bool control = n == 2 && c[0] == 0xc2 && c[1] < 0xa0; /* U+0080 to U+009F */
        if (!n || control) memset(c, '?', n ? n : 1);
        c += n ? n : 1;
    }
    return text;
}

static void complain_list(const char *fmt, va_list args) __attribute__((format(printf, 1, 0)));
static void complain_list(const char *fmt, va_list args) {
    char line[2 * PATH_MAX + 64];
    const size_t room = sizeof line - 1; /* one byte for the end of the line */
    const int start = snprintf(line, room, "antigravity%s%s: ", command_name ? " " : "",
                               command_name ? command_name : "");
    vsnprintf(line + start, room - (size_t)start, fmt, args);
    /* Repeated input must not end the line or control the terminal. */
    make_printable(line + start);
    progress_end();
    output_flush(); /* Keeps the order of output and messages on a terminal. */
    strcat(line, "\n");
    fputs(line, stderr); /* one write: lines of several processes are not mixed */
}

void complain(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    complain_list(fmt, args);
    va_end(args);
}

int complain_usage(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    complain_list(fmt, args);
    va_end(args);
    return EXIT_USAGE;
}

int complain_failure(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    complain_list(fmt, args);
    va_end(args);
    return EXIT_FAILED;
}

int complain_error(const ag_error *err) {
    if (err->status == AG_CANCELLED) {
        complain("interrupted");
        return EXIT_INTERRUPTED;
    }
    complain("%s", err->msg[0] ? err->msg : ag_status_text(err->status));
    return EXIT_FAILED;
}

int complain_settings(const ag_error *err) {
    int code = complain_error(err);
    return err->status == AG_INVALID ? EXIT_USAGE : code;
}

int complain_no_memory(void) { return complain_failure("out of memory"); }

bool output_flush(void) {
    errno = 0;
    if (fflush(stdout) != 0 && !write_error) write_error = errno ? errno : EIO;
    return !write_error;
}

bool output_write(const char *text, size_t len) {
    if (write_error) return false;
    errno = 0;
    if (fwrite(text, 1, len, stdout) != len) write_error = errno ? errno : EIO;
    return output_flush();
}

/* Returns the length of a C0 or C1 control character at s[0..n), except newline and tab; 0 if
 * none. */
static size_t control_bytes(const char *s, size_t n) {
    const unsigned char first = (unsigned char)s[0];
    if (first == 0xc2 && n > 1 && (unsigned char)s[1] >= 0x80 && (unsigned char)s[1] < 0xa0)
        return 2;
    return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7f;
}

bool output_show(const char *text, size_t len) {
    size_t from = 0;
    if (!isatty(STDOUT_FILENO)) return output_write(text, len);
    for (size_t i = 0; i < len;) {
        const size_t n = control_bytes(text + i, len - i);
        if (n && i > from && !output_write(text + from, i - from)) return false;
        i += n ? n : 1;
        if (n) from = i;
    }
    return len > from ? output_write(text + from, len - from) : !write_error;
}

bool output_failed(void) { return write_error != 0; }

int output_finish(int code) {
    if (output_flush() && ferror(stdout)) write_error = EIO;
    if (!write_error) return code;
    complain("standard output: %s", strerror(write_error));
    return code == EXIT_DONE ? EXIT_FAILED : code;
}

const char *format_bytes(double bytes, char *buf, size_t cap) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (bytes >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1024;
        unit++;
    }
    snprintf(buf, cap, unit ? "%.2f %s" : "%.0f %s", bytes, units[unit]);
    return buf;
}
