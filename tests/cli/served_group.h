/* SPDX-License-Identifier: Apache-2.0 */
/* The server of a group of tests: its process, the group's teardown, and functions that read and
 * await metrics. */
#ifndef AG_TESTS_SERVED_GROUP_H
#define AG_TESTS_SERVED_GROUP_H

#include "serve_client.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static serve_process server;

static inline int stop_server(void **state) {
    (void)state;
    assert_int_equal(serve_stop(&server, SIGTERM), 0);
    return 0;
}

static inline void pause_ms(long ms) {
    const struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    nanosleep(&t, NULL);
}

/* Returns the value of a metric. */
static inline double metric(const char *name) {
    char line[128];
    serve_reply r = serve_fetch(&server, "GET /metrics", "", NULL);
    snprintf(line, sizeof line, "\nantigravity_%s ", name);
    const char *at = strstr(r.body, line);
    assert_non_null(at);
    const double value = strtod(at + strlen(line), NULL);
    serve_reply_free(&r);
    return value;
}

/* Waits until the metric is in [min, max]. Fails the test after two minutes. */
static inline void wait_metric(const char *name, double min, double max) {
    double value = metric(name);
    for (int i = 0; i < 24000 && (value < min || value > max); i++) {
        pause_ms(5);
        value = metric(name);
    }
    if (value < min || value > max) fail_msg("%s is %g, not in [%g, %g]", name, value, min, max);
}

#endif
