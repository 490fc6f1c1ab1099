/* SPDX-License-Identifier: Apache-2.0 */
#include "pull_bench.h"

#include "../../programs/antigravity/support/sha256.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

unsigned char data[2][3 * SIZE];
char hash[HASH_SIZE], url[128], list[4096];

int before_each(void **state) {
    (void)state;
    empty_store();
    return 0;
}

/* ---- lists ---- */

void answer_list(const raw_request *q) {
    raw_print(q, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(list), list);
}

void serve_file(const char *fields, raw_answer answer) {
    snprintf(list, sizeof list, "{\"sha\":\"abc\",\"siblings\":[{\"rfilename\":\"m.gguf\"%s}]}",
             fields);
    raw_set(answer_list, answer);
}

void serve_megabyte(raw_answer answer) {
    char fields[64];
    snprintf(fields, sizeof fields, ",\"size\":%d", SIZE);
    serve_file(fields, answer);
}

/* ---- answers ---- */

void send_head(const raw_request *q, const char *extra) {
    if (q->has_range)
        raw_print(q,
                  "HTTP/1.1 206 Partial Content\r\nContent-Length: %llu\r\n"
                  "Content-Range: bytes %llu-%d/%d\r\n%s\r\n",
                  SIZE - q->first, q->first, SIZE - 1, SIZE, extra);
    else raw_print(q, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n", SIZE, extra);
}

void send_gone(const raw_request *q) {
    raw_print(q, "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n");
}

void send_version(const raw_request *q, int version, const char *extra, size_t n) {
    const size_t rest = SIZE - (size_t)q->first;
    if (q->number > GIVE_UP) {
        send_gone(q);
        return;
    }
    send_head(q, extra);
    raw_send(q, data[version] + q->first, n < rest ? n : rest);
}

void all_of_it(const raw_request *q) { send_version(q, 0, "", SIZE); }

/* ---- processes in the background ---- */

pid_t start_pull(const char *source, const char *errors) {
    const char *const argv[] = {AG_PROGRAM, "pull", "-q", "--retry-delay", "0.01", source, NULL};
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (!freopen("/dev/null", "w", stdout) || !freopen(errors, "w", stderr)) _exit(126);
        execv(AG_PROGRAM, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    return pid;
}

int wait_for(pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0) assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* ---- set-up ---- */

int prepare(void **state) {
    (void)state;
    uint64_t x = 88172645463325252;
    sha256 sum;
    for (size_t i = 0; i < sizeof data; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        ((unsigned char *)data)[i] = (unsigned char)x;
    }
    for (size_t i = 0; i < 2; i++) memcpy(data[i], "GGUF", 4);
    sha256_begin(&sum);
    sha256_add(&sum, data[0], SIZE);
    sha256_hex(&sum, hash);
    const int port = raw_start();
    make_directory(store);
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", port);
    snprintf(url, sizeof url, "http://localhost:%d/m.gguf", port);
    setenv("HF_ENDPOINT", endpoint, 1);
    setenv("ANTIGRAVITY_MODELS", store, 1);
    setenv("no_proxy", "*", 1);
    unsetenv("HF_TOKEN");
    return 0;
}

int clean_up(void **state) {
    (void)state;
    remove_store();
    return 0;
}
