/* SPDX-License-Identifier: Apache-2.0 */
#include "serve_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ARGS = 64, PATIENCE_MS = 120000 };

/* ---- the process ---- */

static void run_server(const char *const *args, int errors, void (*prepare)(void *user),
                       void *user) {
    const char *argv[MAX_ARGS] = {"antigravity", "serve", "--weights", "bf16"};
    size_t n = 4;
    bool places = false;
    for (size_t i = 0; args[i] && n + 3 < MAX_ARGS; i++) {
        places = places || !strcmp(args[i], "--unix") || !strcmp(args[i], "--port");
        argv[n++] = args[i];
    }
    if (!places) {
        argv[n++] = "--port";
        argv[n++] = "0";
    }
    /* Without a model it serves the bundled one, even if the user has a store. */
    setenv("ANTIGRAVITY_MODELS", AG_SOURCE_DIR "/no-models", 0);
    const int nothing = open("/dev/null", O_RDWR);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(nothing, 0);
    dup2(nothing, 1);
    dup2(errors, 2);
    if (prepare) prepare(user);
    execv(AG_PROGRAM, (char *const *)(uintptr_t)argv);
    _exit(127);
}

bool serve_read_log(serve_process *p) {
    struct pollfd wait = {.fd = p->errors, .events = POLLIN};
    assert_true(poll(&wait, 1, PATIENCE_MS) > 0);
    const ssize_t n = read(p->errors, p->log + p->n_log, sizeof p->log - 1 - p->n_log);
    if (n <= 0) return false;
    p->n_log += (size_t)n;
    p->log[p->n_log] = '\0';
    return true;
}

void serve_start(serve_process *p, const char *const *args) {
    serve_start_prepared(p, args, NULL, NULL);
}

void serve_start_prepared(serve_process *p, const char *const *args, void (*prepare)(void *user),
                          void *user) {
    int pipes[2];
    *p = (serve_process){.port = 0};
    for (size_t i = 0; args[i]; i++)
        if (!strcmp(args[i], "--unix")) snprintf(p->path, sizeof p->path, "%s", args[i + 1]);
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (!p->pid) run_server(args, pipes[1], prepare, user);
    close(pipes[1]);
    p->errors = pipes[0];
    const char *at = NULL;
    while (!(at = strstr(p->log, "listening on ")) || !strchr(at, '\n'))
        if (!serve_read_log(p)) fail_msg("the server ended: %s", p->log);
    const char *port = strstr(at, "127.0.0.1:");
    if (port) p->port = atoi(port + strlen("127.0.0.1:"));
    assert_true(p->port || p->path[0]);
}

int serve_stop(serve_process *p, int number) {
    int status = 0;
    kill(p->pid, number);
    while (p->n_log + 1 < sizeof p->log && serve_read_log(p)) continue;
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    close(p->errors);
    if (!WIFEXITED(status)) print_message("%s", p->log);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- connections ---- */

int serve_connect(const serve_process *p) {
    struct sockaddr_un local = {.sun_family = AF_UNIX};
    struct sockaddr_in net = {.sin_family = AF_INET,
                              .sin_port = htons((uint16_t)p->port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(p->port ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(local.sun_path, sizeof local.sun_path, "%s", p->path);
    const int failed = p->port ? connect(fd, (struct sockaddr *)&net, sizeof net)
                               : connect(fd, (struct sockaddr *)&local, sizeof local);
    assert_int_equal(failed, 0);
    const struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

/* Errors are ignored: the server may reject a request before it has read all of it. */
void serve_send(int fd, const char *bytes, size_t n) {
    while (n) {
        const ssize_t k = send(fd, bytes, n, MSG_NOSIGNAL);
        if (k <= 0) return;
        bytes += k;
        n -= (size_t)k;
    }
}

/* ---- responses ---- */

typedef struct received {
    char *data;
    size_t n, cap;
} received;

static bool receive_more(int fd, received *in) {
    if (in->n + 4096 + 1 > in->cap) {
        in->cap = in->cap ? 2 * in->cap : 16384;
        in->data = realloc(in->data, in->cap);
        assert_non_null(in->data);
    }
    const ssize_t k = recv(fd, in->data + in->n, in->cap - in->n - 1, 0);
    if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) fail_msg("no answer");
    if (k > 0) in->n += (size_t)k;
    in->data[in->n] = '\0';
    return k > 0;
}

static const char *head_value(const char *head, const char *name) {
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line + 2, "\r\n"))
        if (!strncasecmp(line + 2, name, strlen(name))) return line + 2 + strlen(name);
    return NULL;
}

/* Joins the chunks at `at`. Returns false if more chunks must arrive. */
static bool join_chunks(const char *at, const char *end, serve_reply *r) {
    r->n_body = 0;
    for (;;) {
        char *rest;
        const char *line_end = strstr(at, "\r\n");
        if (!line_end) return false;
        const unsigned long n = strtoul(at, &rest, 16);
        assert_ptr_equal(rest, line_end);
        at = line_end + 2;
        if (end - at < (ptrdiff_t)n + 2) return false;
        assert_memory_equal(at + n, "\r\n", 2);
        if (!n) return true;
        memcpy(r->body + r->n_body, at, n);
        r->n_body += n;
        at += n + 2;
    }
}

static void receive_body(int fd, received *in, size_t n_head, serve_reply *r) {
    const char *length = head_value(r->head, "Content-Length: ");
    const bool chunked = head_value(r->head, "Transfer-Encoding: chunked") != NULL;
    if (chunked) {
        for (;;) {
            r->body = realloc(r->body, in->n + 1);
            assert_non_null(r->body);
            if (join_chunks(in->data + n_head, in->data + in->n, r)) break;
            if (receive_more(fd, in)) continue;
            r->closed = true; /* within the body */
            break;
        }
    } else {
        r->n_body = length ? strtoul(length, NULL, 10) : 0;
        while (in->n < n_head + r->n_body && receive_more(fd, in)) continue;
        assert_true(in->n >= n_head + r->n_body);
        r->body = malloc(r->n_body + 1);
        assert_non_null(r->body);
        memcpy(r->body, in->data + n_head, r->n_body);
    }
    r->body[r->n_body] = '\0';
}

serve_reply serve_receive(int fd) {
    serve_reply r = {.status = 0};
    received in = {.n = 0};
    while (receive_more(fd, &in) && !strstr(in.data, "\r\n\r\n")) continue;
    const char *end = strstr(in.data, "\r\n\r\n");
    if (end) {
        const size_t n_head = (size_t)(end - in.data) + 4;
        r.head = strndup(in.data, n_head);
        assert_int_equal(sscanf(r.head, "HTTP/1.1 %d ", &r.status), 1);
        receive_body(fd, &in, n_head, &r);
    }
    free(in.data);
    return r;
}

void serve_reply_free(serve_reply *r) {
    free(r->head);
    free(r->body);
    *r = (serve_reply){.status = 0};
}

serve_reply serve_fetch(const serve_process *p, const char *line, const char *headers,
                        const char *body) {
    const size_t n = body ? strlen(body) : 0;
    const size_t cap = strlen(line) + strlen(headers) + n + 200;
    char *text = malloc(cap);
    assert_non_null(text);
    const bool has_host = !strncasecmp(headers, "Host:", 5);
    int k = snprintf(text, cap, "%s HTTP/1.1\r\n%s%sConnection: close\r\n", line,
                     has_host ? "" : "Host: localhost\r\n", headers);
    if (body) k += snprintf(text + k, cap - (size_t)k, "Content-Length: %zu\r\n", n);
    k += snprintf(text + k, cap - (size_t)k, "\r\n%s", body ? body : "");
    const int fd = serve_connect(p);
    serve_send(fd, text, (size_t)k);
    free(text);
    serve_reply r = serve_receive(fd);
    close(fd);
    return r;
}

json_t *serve_json(const serve_process *p, const char *line, const char *body, int status) {
    json_error_t where;
    serve_reply r = serve_fetch(p, line, "Content-Type: application/json\r\n", body);
    if (r.status != status) fail_msg("%s: status %d, %s", line, r.status, r.body ? r.body : "");
    json_t *value = json_loads(r.body, 0, &where);
    if (!value) fail_msg("%s: no JSON (%s): %s", line, where.text, r.body);
    serve_reply_free(&r);
    return value;
}

const json_t *json_at(const json_t *value, const char *path) {
    const json_t *found = json_find(value, path);
    if (!found) fail_msg("there is no '%s'", path);
    return found;
}

const char *json_string_at(const json_t *value, const char *path) {
    const char *text = json_string_value(json_at(value, path));
    assert_non_null(text);
    return text;
}

json_int_t json_number_at(const json_t *value, const char *path) {
    assert_true(json_is_integer(json_at(value, path)));
    return json_integer_value(json_at(value, path));
}
