/* SPDX-License-Identifier: Apache-2.0 */
#include "access_log.h"

#include "../../support/json_out.h"
#include "../../terminal/output.h"
#include "../system.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool access_log_open(access_log *log, const char *path) {
    *log = (access_log){.file = NULL};
    if (!path) return true;
    if (!strcmp(path, "-")) {
        log->file = stdout;
        return true;
    }
    log->file = system_append_file(path);
    if (!log->file) complain("--log %s: %s", path, strerror(errno));
    return log->file != NULL;
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
    char text[80];
    const double now = system_wall_clock();
    system_format_time(text, sizeof text, "%Y-%m-%dT%H:%M:%S", now);
    const size_t n = strlen(text);
    snprintf(text + n, sizeof text - n, ".%03dZ", (int)((now - floor(now)) * 1e3));
    return json_string(text);
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
        {"bytes_in", json_integer(e->n_received)},
        {"bytes_out", json_integer(e->n_sent)},
        {"key", e->key && e->key[0] ? json_stringn(e->key, strnlen(e->key, 8)) : json_null()},
        {"protocol", text_or_null(e->protocol)},
        {"model", text_or_null(e->model)},
        {"prompt_tokens", json_integer(e->n_prompt)},
        {"cached_tokens", json_integer(e->n_cached)},
        {"completion_tokens", json_integer(e->n_generated)},
        {"queue_ms", milliseconds(e->queue_s)},
        {"first_token_ms", milliseconds(e->first_token_s)},
        {"ignored", text_or_null(e->ignored)},
        {"error", text_or_null(e->error)},
    };
    json_t *line = JSON_FIELDS(fields);
    if (line && json_dumpf(line, log->file, JSON_COMPACT | JSON_REAL_PRECISION(12)) == 0)
        fputc('\n', log->file);
    fflush(log->file);
    json_decref(line);
}
