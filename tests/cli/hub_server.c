/* SPDX-License-Identifier: Apache-2.0 */
#include "hub_server.h"

#include "loopback_http.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

hub_faults hub_fault;

static const hub_object *objects;
static size_t n_objects;
static int port;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char log_text[1 << 16];
static size_t n_log;
static atomic_size_t n_sent;
static atomic_uint generation; /* connections accepted before hub_forget() are no longer counted */

typedef struct request {
    int fd;
    char path[2048], host[128], range[64], if_range[128], token[128];
} request;

void hub_forget(void) {
    pthread_mutex_lock(&lock);
    n_log = 0;
    log_text[0] = '\0';
    n_sent = 0;
    generation++;
    pthread_mutex_unlock(&lock);
}

const char *hub_log(void) { return log_text; }
size_t hub_bytes_sent(void) { return n_sent; }

static bool send_all(int fd, const void *bytes, size_t n) {
    const char *p = bytes;
    while (n) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0) return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

/* Decrements *left. Returns false if it was 0. */
static bool use_up(unsigned *left) {
    pthread_mutex_lock(&lock);
    const bool had = *left > 0;
    if (had) --*left;
    pthread_mutex_unlock(&lock);
    return had;
}

/* Sends the body up to `end`, where the connection breaks. */
static void send_body(int fd, const char *data, size_t end) {
    const hub_faults f = hub_fault;
    const unsigned connection_generation = generation;
    const size_t piece = f.pause_every ? f.pause_every : 16384;
    for (size_t at = 0; at < end; at += piece) {
        const size_t k = end - at < piece ? end - at : piece;
        if (!send_all(fd, data + at, k) || connection_generation != generation) return;
        const size_t sent = atomic_fetch_add(&n_sent, k) + k;
        if (f.kill_after && sent >= f.kill_after && hub_fault.victim > 0)
            kill(hub_fault.victim, SIGKILL);
        const struct timespec pause = {.tv_nsec = 1000000};
        if (f.pause_every) nanosleep(&pause, NULL);
    }
}

static void answer_text(const request *q, const char *status, const char *headers,
                        const char *body) {
    char head[4096];
    snprintf(head, sizeof head, "HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: %zu\r\n%s\r\n",
             status, strlen(body), headers);
    send_all(q->fd, head, strlen(head));
    send_all(q->fd, body, strlen(body));
}

/* Sends a file, or the requested range of it. etag "": none. */
static void answer_file(const request *q, const hub_object *o, const char *etag) {
    char head[1024], extra[512] = "";
    unsigned long long first = 0;
    const bool same = !q->if_range[0] || !strcmp(q->if_range, etag);
    const bool part = !hub_fault.no_ranges && same && sscanf(q->range, "bytes=%llu-", &first) == 1;
    if (!part) first = 0;
    if (part && (first >= o->n || hub_fault.unsatisfiable)) {
        snprintf(extra, sizeof extra, "Content-Range: bytes */%zu\r\n", o->n);
        answer_text(q, "416 Range Not Satisfiable", extra, "");
        return;
    }
    if (part)
        snprintf(extra, sizeof extra, "Content-Range: bytes %llu-%zu/%zu\r\n", first, o->n - 1,
                 o->n);
    char length[64] = "";
    if (!hub_fault.no_length)
        snprintf(length, sizeof length, "Content-Length: %llu\r\n",
                 (unsigned long long)o->n - first);
    snprintf(head, sizeof head, "HTTP/1.1 %s\r\nConnection: close\r\n%s%s%s%s%s\r\n",
             part ? "206 Partial Content" : "200 OK", length, extra, etag[0] ? "ETag: " : "", etag,
             etag[0] ? "\r\n" : "");
    const size_t n = o->n - (size_t)first;
    const bool cut = hub_fault.cut_after && hub_fault.cut_after < n && use_up(&hub_fault.cuts);
    send_all(q->fd, head, strlen(head));
    send_body(q->fd, (const char *)o->data + first, cut ? hub_fault.cut_after : n);
}

static const hub_object *find_object(const char *repo, size_t n_repo, const char *path) {
    const size_t n_path = strcspn(path, "?");
    for (size_t i = 0; i < n_objects; i++) {
        const hub_object *o = &objects[i];
        if (strlen(o->path) == n_path && !strncmp(o->path, path, n_path) &&
            (!repo || (strlen(o->repo) == n_repo && !strncmp(o->repo, repo, n_repo))))
            return o;
    }
    return NULL;
}

/* Answers /api/models/REPO/revision/REV?blobs=true. */
static void answer_list(const request *q) {
    char body[8192];
    const char *repo = q->path + strlen("/api/models/"),
               *revision_path = strstr(repo, "/revision/");
    const size_t n_repo = revision_path ? (size_t)(revision_path - repo) : 0;
    const char *known[] = {"main?", "v2%2Fx?", HUB_COMMIT "?"};
    bool revision = false;
    for (size_t i = 0; revision_path && i < 3; i++)
        revision = revision || !strncmp(revision_path + 10, known[i], strlen(known[i]));
    size_t n = (size_t)snprintf(body, sizeof body, "{\"sha\":\"%s\",\"siblings\":[", HUB_COMMIT);
    size_t found = 0;
    for (size_t i = 0; i < n_objects; i++) {
        const hub_object *o = &objects[i];
        if (strlen(o->repo) != n_repo || strncmp(o->repo, repo, n_repo) != 0) continue;
        n += (size_t)snprintf(body + n, sizeof body - n,
                              "%s{\"rfilename\":\"%s\",\"size\":%zu,\"blobId\":\"%zu\"",
                              found++ ? "," : "", o->path, o->n, o->n);
        if (o->sha256)
            n += (size_t)snprintf(body + n, sizeof body - n,
                                  ",\"lfs\":{\"sha256\":\"%s\",\"size\":%zu}", o->sha256, o->n);
        n += (size_t)snprintf(body + n, sizeof body - n, "}");
    }
    snprintf(body + n, sizeof body - n, "]}");
    if (found && revision) answer_text(q, "200 OK", "Content-Type: application/json\r\n", body);
    else
        answer_text(q, "404 Not Found",
                    found ? "X-Error-Message: Invalid rev id\r\n"
                          : "X-Error-Message: Repository not found\r\n",
                    "{}");
}

/* Answers /REPO/resolve/COMMIT/PATH. */
static void answer_resolve(const request *q, const char *resolve) {
    char headers[2048], expected[160] = "";
    const char *path = resolve + strlen("/resolve/") + strlen(HUB_COMMIT) + 1;
    const bool commit = !strncmp(resolve + strlen("/resolve/"), HUB_COMMIT "/", 41);
    const hub_object *o =
        commit ? find_object(q->path + 1, (size_t)(resolve - q->path - 1), path) : NULL;
    if (hub_fault.token) snprintf(expected, sizeof expected, "Bearer %s", hub_fault.token);
    if (expected[0] && strcmp(q->token, expected) != 0) {
        answer_text(q, "401 Unauthorized", "X-Error-Message: Access to it is restricted\r\n", "no");
    } else if (!o) {
        answer_text(q, "404 Not Found", "X-Error-Message: Entry not found\r\n", "no");
    } else if (!o->sha256) {
        answer_file(q, o, "\"small\"");
    } else {
        snprintf(headers, sizeof headers,
                 "Location: http://localhost:%d/far/%.300s?signature=confidential\r\n"
                 "X-Linked-Size: %zu\r\nX-Linked-Etag: \"%s\"\r\nX-Repo-Commit: " HUB_COMMIT "\r\n",
                 port, o->path, o->n, o->sha256);
        answer_text(q, "302 Found", headers, "Found. Redirecting");
    }
}

static void answer(const request *q) {
    char status[64];
    const char *resolve = strstr(q->path, "/resolve/");
    const char *file = strchr(q->path + 1, '/');
    const hub_object *o = file ? find_object(NULL, 0, file + 1) : NULL;
    char byte;
    if (use_up(&hub_fault.silent)) {
        (void)recv(q->fd, &byte, 1, 0);
    } else if (use_up(&hub_fault.busy)) {
        answer_text(q, "503 Service Unavailable", "", "busy");
    } else if (!strncmp(q->path, "/api/models/", 12)) {
        answer_list(q);
    } else if (resolve) {
        answer_resolve(q, resolve);
    } else if (!strncmp(q->path, "/far/", 5) && o) {
        answer_file(q, o, "\"far\"");
    } else if (!strncmp(q->path, "/plain/", 7) && o) {
        const bool old = use_up(&hub_fault.old_etags) || !hub_fault.etag;
        answer_file(q, o, old ? "\"one\"" : hub_fault.etag);
    } else if (!strncmp(q->path, "/weak/", 6) && o) {
        answer_file(q, o, "");
    } else if (!strncmp(q->path, "/status/", 8)) {
        snprintf(status, sizeof status, "%.3s Some Reason", q->path + 8);
        answer_text(q, status, "", "<html>a page that explains</html>");
    } else if (!strncmp(q->path, "/loop", 5)) {
        answer_text(q, "302 Found", "Location: /loop.gguf?key=confidential\r\n", "");
    } else if (!strncmp(q->path, "/elsewhere", 10)) {
        answer_text(q, "302 Found", "Location: ftp://127.0.0.1/x.gguf\r\n", "");
    } else if (!strncmp(q->path, "/page", 5)) {
        answer_text(q, "200 OK", "Content-Type: text/html\r\n", "<html>please log in</html>");
    } else {
        answer_text(q, "404 Not Found", "", "nothing here");
    }
}

static void read_value(const char *text, const char *name, char *to, size_t cap) {
    const char *value = loopback_value(text, name);
    if (value) snprintf(to, cap, "%.*s", (int)strcspn(value, "\r"), value);
}

static void serve(int fd, const char *text) {
    request q = {.fd = fd};
    char method[16] = "";
    if (sscanf(text, "%15s %2047s", method, q.path) != 2) return;
    read_value(text, "Host: ", q.host, sizeof q.host);
    read_value(text, "Range: ", q.range, sizeof q.range);
    read_value(text, "If-Range: ", q.if_range, sizeof q.if_range);
    read_value(text, "Authorization: ", q.token, sizeof q.token);
    pthread_mutex_lock(&lock);
    n_log += (size_t)snprintf(log_text + n_log, sizeof log_text - n_log,
                              "%s %s %s range=%s if=%s token=%s\n", method, q.host, q.path, q.range,
                              q.if_range, q.token);
    if (n_log > sizeof log_text / 2) n_log = 0;
    pthread_mutex_unlock(&lock);
    answer(&q);
}

int hub_start(const hub_object *o, size_t n) {
    objects = o;
    n_objects = n;
    port = loopback_start(serve);
    return port;
}
