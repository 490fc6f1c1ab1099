/* SPDX-License-Identifier: Apache-2.0 */
#include "access_log.h"

#include "json_out.h"
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

bool access_log_open(access_log *log, const char *path) {
    *log = (access_log){.file = NULL};
    if (!path) return true;
    if (!strcmp(path, "-")) {
        log->file = stdout;
        return true;
    }
    const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    log->file = fd < 0 ? NULL : fdopen(fd, "a");
    if (log->file) return true;
    complain("--log %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return false;
}

void access_log_close(access_log *log) {
    if (log->file && log->file != stdout) fclose(log->file);
    *log = (access_log){.file = NULL};
}

static json_t *text_or_null(const char *text) {
    return text ? json_text(text, strlen(text)) : json_null();
}

static json_t *milliseconds(double seconds) { return json_real(round(seconds * 1e6) / 1e3); }

static json_t *time_now(void) {
    char text[64] = "", whole[80];
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    if (gmtime_r(&now.tv_sec, &utc)) strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(whole, sizeof whole, "%s.%03ldZ", text, now.tv_nsec / 1000000);
    return json_string(whole);
}

void access_log_write(access_log *log, const access_entry *e) {
    if (!log->file) return;
    const json_field fields[] = {
        {"time", time_now()},
        {"id", text_or_null(e->id)},
        {"method", text_or_null(e->method)},
        {"path", text_or_null(e->path)},
        {"status", e->status ? json_integer(e->status) : json_null()},
        {"complete", json_boolean(e->complete)},
        {"ms", milliseconds(e->seconds)},
        {"bytes_in", json_integer((json_int_t)e->n_received)},
        {"bytes_out", json_integer((json_int_t)e->n_sent)},
        {"key", e->key && e->key[0] ? json_stringn(e->key, strnlen(e->key, 8)) : json_null()},
        {"protocol", text_or_null(e->protocol)},
        {"model", text_or_null(e->model)},
        {"prompt_tokens", json_integer((json_int_t)e->n_prompt)},
        {"cached_tokens", json_integer((json_int_t)e->n_cached)},
        {"completion_tokens", json_integer((json_int_t)e->n_generated)},
        {"queue_ms", milliseconds(e->queue_s)},
        {"first_token_ms", milliseconds(e->first_token_s)},
        {"error", text_or_null(e->error)},
    };
    json_t *line = JSON_OBJECT(fields);
    if (line && json_dumpf(line, log->file, JSON_COMPACT | JSON_REAL_PRECISION(12)) == 0)
        fputc('\n', log->file);
    fflush(log->file);
    json_decref(line);
}
