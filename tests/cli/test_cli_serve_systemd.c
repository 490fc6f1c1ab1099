/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of antigravity serve as systemd runs it: inherited sockets and notifications. */
#include "serve_client.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct manager {
    int listens, port;   /* the socket to inherit */
    bool is_for_another; /* LISTEN_PID names another process */
    int notify;          /* receives the server's notifications */
    char notify_path[108];
} manager;

static serve_process server;

static void pass_socket(void *user) {
    const manager *m = user;
    char pid[24];
    snprintf(pid, sizeof pid, "%ld", m->is_for_another ? 1L : (long)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "1", 1);
    setenv("NOTIFY_SOCKET", m->notify_path, 1);
    if (m->listens == 3) fcntl(3, F_SETFD, 0); /* dup2() would not change its flags */
    else dup2(m->listens, 3);
}

static manager make_manager(const char *dir) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_un hears = {.sun_family = AF_UNIX};
    socklen_t size = sizeof at;
    const struct timeval patience = {.tv_sec = 120};
    manager m = {.listens = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                 .notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(bind(m.listens, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(m.listens, 8), 0);
    assert_int_equal(getsockname(m.listens, (struct sockaddr *)&at, &size), 0);
    m.port = ntohs(at.sin_port);
    snprintf(m.notify_path, sizeof m.notify_path, "%s/notify", dir);
    memcpy(hears.sun_path, m.notify_path, sizeof hears.sun_path);
    assert_int_equal(bind(m.notify, (struct sockaddr *)&hears, sizeof hears), 0);
    setsockopt(m.notify, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return m;
}

static void close_manager(manager *m) {
    close(m->listens);
    close(m->notify);
}

static void expect_word(const manager *m, const char *word) {
    char text[256];
    const ssize_t n = recv(m->notify, text, sizeof text - 1, 0);
    assert_true(n > 0);
    text[n] = '\0';
    if (strncmp(text, word, strlen(word)) != 0) fail_msg("'%s' in place of '%s'", text, word);
}

static void serves_on_an_inherited_socket(void **state) {
    (void)state;
    char dir[96] = "serve_systemd";
    make_directory(dir);
    manager m = make_manager(dir);
    /* A client that connects before the server starts must wait for it. */
    const serve_process early = {.port = m.port};
    const int fd = serve_connect(&early);
    static const char ask[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    serve_send(fd, ask, sizeof ask - 1);
    serve_start_prepared(&server, CLI_ARGS("-q", "--port", "1"), pass_socket, &m);
    assert_int_equal(server.port, m.port);
    serve_reply r = serve_receive(fd);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"status\":\"ok\""));
    serve_reply_free(&r);
    close(fd);
    json_decref(serve_json(&server, "GET /v1/models", NULL, 200));
    expect_word(&m, "READY=1");
    kill(server.pid, SIGHUP);
    expect_word(&m, "RELOADING=1\nMONOTONIC_USEC=");
    expect_word(&m, "READY=1");
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
    expect_word(&m, "STOPPING=1");
    close_manager(&m);
    remove_directory(dir);
}

static void ignores_sockets_of_another_process(void **state) {
    (void)state;
    char dir[96] = "serve_systemd";
    make_directory(dir);
    manager m = make_manager(dir);
    m.is_for_another = true;
    serve_start_prepared(&server, CLI_ARGS("-q"), pass_socket, &m);
    assert_int_not_equal(server.port, m.port);
    json_decref(serve_json(&server, "GET /health", NULL, 200));
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
    close_manager(&m);
    remove_directory(dir);
}

/* ---- invalid environments ---- */

typedef struct environment {
    const char *pid; /* LISTEN_PID; NULL: not set; "self": the server's own */
    const char *count;
    int third; /* becomes descriptor 3; -1: none */
} environment;

/* Runs the server in the environment until it ends or listens. */
static cli_result run_in(const environment *e) {
    char line[1024];
    snprintf(line, sizeof line, "%s%s%s%s%s exec '%s' serve %s", e->pid ? "LISTEN_PID=" : "",
             !e->pid                   ? ""
             : !strcmp(e->pid, "self") ? "$$"
                                       : e->pid,
             e->pid ? " " : "", e->count ? "LISTEN_FDS=" : "", e->count ? e->count : "", AG_PROGRAM,
             "-q --load-later --weights bf16 --port 0");
    int ends[2];
    int status = 0;
    cli_result r = {.err = calloc(1, 4096)};
    assert_non_null(r.err);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], 2);
        if (e->third == 3) fcntl(3, F_SETFD, 0);
        else if (e->third >= 0) dup2(e->third, 3);
        else close(3);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t k; r.n_err < 4095 && (k = read(ends[0], r.err + r.n_err, 4095 - r.n_err)) > 0;) {
        r.n_err += (size_t)k;
        if (strstr(r.err, "listening on ")) kill(pid, SIGTERM);
    }
    close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    r.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    r.out = calloc(1, 1);
    return r;
}

static void rejects_malformed_listen_fds(void **state) {
    static const char *const bad[] = {"-1",   "0",  "x", "''",        "1x",
                                      "' 1'", "+1", "9", "999999999", "99999999999999999999"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cli_result r = run_in(&(environment){"self", bad[i], -1});
        assert_refused(&r, 1, "is not a number from 1 to 8");
        assert_says(r.err, "LISTEN_FDS: '");
        cli_free(&r);
    }
    cli_result r = run_in(&(environment){NULL, "x", -1});
    assert_refused(&r, 1, "LISTEN_FDS: 'x' is not a number from 1 to 8");
    cli_free(&r);
    static const char *const pids[] = {"x", "-1", "''", "1x", "0"};
    for (size_t i = 0; i < sizeof pids / sizeof pids[0]; i++) {
        r = run_in(&(environment){pids[i], "1", -1});
        assert_refused(&r, 1, "LISTEN_PID: '");
        cli_free(&r);
    }
}

static void rejects_descriptors_that_do_not_listen(void **state) {
    (void)state;
    const int idle = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int bad[] = {-1, idle, file};
    for (size_t i = 0; i < 3; i++) {
        cli_result r = run_in(&(environment){"self", "1", bad[i]});
        assert_refused(&r, 1, "LISTEN_FDS: descriptor 3 is not a listening socket");
        cli_free(&r);
    }
    close(idle);
    close(file);
}

/* The process inherits the variables from its parent, not from a service manager. */
static void ignores_the_environment_of_another_process(void **state) {
    static const environment all[] = {{"1", "1", -1}, {"1", "x", -1}, {NULL, "1", -1}};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        cli_result r = run_in(&all[i]);
        assert_code(&r, 0);
        assert_says(r.err, "listening on ");
        cli_free(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(serves_on_an_inherited_socket),
        cmocka_unit_test(ignores_sockets_of_another_process),
        cmocka_unit_test(rejects_malformed_listen_fds),
        cmocka_unit_test(rejects_descriptors_that_do_not_listen),
        cmocka_unit_test(ignores_the_environment_of_another_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
