/* SPDX-License-Identifier: Apache-2.0 */
/* Transfer rate over a sliding window: finds connections that are open but too slow to be useful.
 * libcurl's own limit looks at the last few seconds, so one burst a minute resets it. */
#ifndef ANTIGRAVITY_HTTP_RATE_H
#define ANTIGRAVITY_HTTP_RATE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    HTTP_RATE_MIN = 1024, /* bytes per second */
    HTTP_RATE_STEPS = 12, /* samples per window */
};

typedef struct http_rate {
    double window_s;
    /* Samples of (time, bytes since the start), oldest first. */
    double time_s[HTTP_RATE_STEPS + 2];
    uint64_t bytes[HTTP_RATE_STEPS + 2];
    unsigned n;
} http_rate;

/* Starts a transfer of 0 bytes at now_s. window_s must be positive. */
void http_rate_begin(http_rate *r, double window_s, double now_s);
/* Adds a sample: `bytes` in all at now_s. Call it about once a second, also without new bytes.
 * Returns whether the average over the last window is below HTTP_RATE_MIN; false before the first
 * window has passed. */
bool http_rate_is_low(http_rate *r, double now_s, uint64_t bytes);

#endif
