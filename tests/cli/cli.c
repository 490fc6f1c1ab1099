/* SPDX-License-Identifier: Apache-2.0 */
#include "cli.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ARGS = 64, PATIENCE_MS = 120000 };

typedef struct stream {
    int fd; /* -1: closed */
    char *data;
    size_t n;
} stream;

typedef struct child {
    pid_t pid;
    int input;
    size_t sent;
    stream out, err;
} child;

/* Opens both ends of a terminal. */
static void open_terminal(int ends[2], unsigned short columns) {
    const struct winsize size = {.ws_col = columns, .ws_row = 24};
    ends[0] = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(ends[0] >= 0 && grantpt(ends[0]) == 0 && unlockpt(ends[0]) == 0);
    ends[1] = open(ptsname(ends[0]), O_RDWR | O_NOCTTY);
    assert_true(ends[1] >= 0);
    if (columns) assert_int_equal(ioctl(ends[1], TIOCSWINSZ, &size), 0);
}

static void open_pipe(int ends[2]) { assert_int_equal(pipe(ends), 0); }

static void become_program(const cli_setup *s, int in, int out, int err) {
    const char *argv[MAX_ARGS] = {AG_PROGRAM};
    for (size_t i = 0; s->args[i] && i + 2 < MAX_ARGS; i++) argv[i + 1] = s->args[i];
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(126);
    for (int fd = s->no_errors ? 2 : 3; fd < 64; fd++) close(fd);
    signal(SIGPIPE, SIG_DFL);
    /* execv() does not write to the arguments. */
    execv(AG_PROGRAM, (char *const *)(uintptr_t)argv);
    _exit(127);
}

static child start(const cli_setup *s) {
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2];
    if (s->terminal_input) open_terminal(in, s->columns);
    else if (s->input) open_pipe(in);
    /* The test's end of standard input is the second of a pipe and the first of a terminal. */
    int child_in = s->terminal_input ? in[1] : s->input ? in[0] : open("/dev/null", O_RDONLY);
    int our_in = s->terminal_input ? in[0] : in[1];
    if (s->terminal_output) open_terminal(out, s->columns);
    else if (!s->output_path) open_pipe(out);
    int child_out = s->output_path ? open(s->output_path, O_WRONLY) : out[1];
    if (s->terminal_errors) open_terminal(err, s->columns);
    else open_pipe(err);
    assert_true(child_in >= 0 && child_out >= 0);
    child c = {.input = our_in, .out.fd = out[0], .err.fd = err[0]};
    c.pid = fork();
    assert_true(c.pid >= 0);
    if (c.pid == 0) become_program(s, child_in, child_out, err[1]);
    close(child_in);
    close(child_out);
    close(err[1]);
    return c;
}

static void close_stream(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Reads once. The end of a terminal is EIO, that of a pipe 0 bytes. */
static void receive(stream *s) {
    char chunk[4096];
    ssize_t got = read(s->fd, chunk, sizeof chunk);
    if (got <= 0) {
        close_stream(&s->fd);
        return;
    }
    s->data = realloc(s->data, s->n + (size_t)got + 1);
    assert_non_null(s->data);
    memcpy(s->data + s->n, chunk, (size_t)got);
    s->n += (size_t)got;
    s->data[s->n] = '\0';
}

static void send_input(child *c, const cli_setup *s) {
    const char *from = (const char *)s->input + c->sent;
    size_t n_due = s->n_input - c->sent;
    const char *line_end = s->pause_ms ? memchr(from, '\n', n_due) : NULL;
    if (line_end) n_due = (size_t)(line_end + 1 - from);
    ssize_t n = write(c->input, from, n_due);
    if (n > 0) c->sent += (size_t)n;
    /* A terminal hangs up when its other end is closed. */
    if (!s->terminal_input && (n < 0 || c->sent == s->n_input)) close_stream(&c->input);
    if (!line_end) return;
    const struct timespec pause = {.tv_sec = s->pause_ms / 1000,
                                   .tv_nsec = s->pause_ms % 1000 * 1000000L};
    nanosleep(&pause, NULL);
}

static bool contains(const stream *s, const char *part) {
    return part && s->data && strstr(s->data, part);
}

/* Sends the signals whose conditions hold; `sent` were sent before. Returns the new count. */
static int send_signals(const child *c, const cli_setup *s, int sent) {
    bool first = (s->interrupt_after_output && c->out.n >= s->interrupt_after_output) ||
                 (s->interrupt_after_errors && c->err.n >= s->interrupt_after_errors) ||
                 contains(&c->err, s->interrupt_when);
    bool second = sent == 1 && s->second_signal && contains(&c->err, "stopping ...");
    if (sent == 0 && first) return kill(c->pid, s->signal ? s->signal : SIGINT), 1;
    if (second) return kill(c->pid, s->second_signal), 2;
    return sent;
}

static void exchange(child *c, const cli_setup *s) {
    int n_signals = 0;
    while (c->out.fd >= 0 || c->err.fd >= 0) {
        bool sending = c->input >= 0 && (!s->terminal_input || c->sent < s->n_input);
        struct pollfd fds[] = {{.fd = c->out.fd, .events = POLLIN},
                               {.fd = c->err.fd, .events = POLLIN},
                               {.fd = sending ? c->input : -1, .events = POLLOUT}};
        if (sending && !s->n_input) close_stream(&c->input);
        if (poll(fds, 3, PATIENCE_MS) <= 0) {
            kill(c->pid, SIGKILL);
            fail_msg("the program says nothing and does not end");
        }
        if (fds[0].revents) receive(&c->out);
        if (fds[1].revents) receive(&c->err);
        if (fds[2].revents && c->input >= 0) send_input(c, s);
        if (s->close_output_after && c->out.n >= s->close_output_after) close_stream(&c->out.fd);
        n_signals = send_signals(c, s, n_signals);
    }
}

static char *terminate(stream *s) {
    s->data = realloc(s->data, s->n + 1);
    assert_non_null(s->data);
    s->data[s->n] = '\0';
    return s->data;
}

cli_result cli_run(const cli_setup *setup) {
    signal(SIGPIPE, SIG_IGN); /* the program may end before it has read its input */
    child c = start(setup);
    exchange(&c, setup);
    close_stream(&c.input);
    int status;
    while (waitpid(c.pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
    cli_result r = {.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                    .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                    .out = terminate(&c.out),
                    .err = terminate(&c.err),
                    .n_out = c.out.n,
                    .n_err = c.err.n};
    return r;
}

void cli_free(cli_result *r) {
    free(r->out);
    free(r->err);
    *r = (cli_result){0};
}

void assert_code(const cli_result *r, int code) {
    if (r->code != code)
        fail_msg("exit code %d (signal %d), not %d; it said:\n%s", r->code, r->signal, code,
                 r->err);
}

void skip_without_server(void) {
    cli_result help = CLI("serve", "--help");
    const bool has_server = help.code == 0;
    cli_free(&help);
    if (!has_server) skip();
}

void assert_says(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" is not in:\n%s", part, text);
}

void assert_does_not_say(const char *text, const char *part) {
    if (strstr(text, part)) fail_msg("\"%s\" is in:\n%s", part, text);
}

void assert_refused(const cli_result *r, int code, const char *part) {
    assert_code(r, code);
    assert_says(r->err, part);
    assert_int_equal(strncmp(r->err, "antigravity", strlen("antigravity")), 0);
    const char *newline = strchr(r->err, '\n');
    if (!newline || newline[1]) fail_msg("not one line:\n%s", r->err);
    assert_int_equal(r->n_out, 0);
}

json_t *cli_json(const cli_result *r) {
    json_error_t where;
    json_t *root = json_loadb(r->out, r->n_out, JSON_ALLOW_NUL, &where);
    if (!root) fail_msg("no JSON: %s at byte %d of:\n%s", where.text, where.position, r->out);
    return root;
}

const json_t *json_find(const json_t *value, const char *path) {
    char part[64];
    while (value && *path) {
        const size_t n = strcspn(path, ".");
        assert_true(n < sizeof part);
        memcpy(part, path, n);
        part[n] = '\0';
        path += n + (path[n] == '.');
        value = json_is_array(value) ? json_array_get(value, strtoul(part, NULL, 10))
                                     : json_object_get(value, part);
    }
    return value;
}

void make_directory(char *path) {
    strcpy(path, "/tmp/antigravity-cli-XXXXXX");
    assert_non_null(mkdtemp(path));
}

void write_file(const char *dir, const char *name, const void *data, size_t n) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

void link_file(const char *dir, const char *target, const char *name) {
    char from[512], to[512];
    snprintf(from, sizeof from, "%s/%s", dir, name);
    snprintf(to, sizeof to, "%s/%s", target, name);
    assert_int_equal(symlink(to, from), 0);
}

void remove_directory(const char *dir) {
    char path[512];
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%.200s", dir, e->d_name);
        unlink(path);
    }
    closedir(d);
    assert_int_equal(rmdir(dir), 0);
}
