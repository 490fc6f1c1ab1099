/* SPDX-License-Identifier: Apache-2.0 */
#include "http_rate.h"

#include <string.h>

static void add_sample(http_rate *r, double now_s, uint64_t bytes) {
    r->time_s[r->n] = now_s;
    r->bytes[r->n++] = bytes;
}

static void drop_oldest(http_rate *r) {
    r->n--;
    memmove(r->time_s, r->time_s + 1, r->n * sizeof r->time_s[0]);
    memmove(r->bytes, r->bytes + 1, r->n * sizeof r->bytes[0]);
}

void http_rate_begin(http_rate *r, double window_s, double now_s) {
    *r = (http_rate){.window_s = window_s};
    add_sample(r, now_s, 0);
}

bool http_rate_is_low(http_rate *r, double now_s, uint64_t bytes) {
    /* Keep the last sample that is at least as old as the window. */
    while (r->n > 1 && now_s - r->time_s[1] >= r->window_s) drop_oldest(r);
    const double age_s = now_s - r->time_s[0];
    const bool low =
        age_s >= r->window_s && (double)(bytes - r->bytes[0]) < (double)HTTP_RATE_MIN * age_s;
    if (now_s - r->time_s[r->n - 1] >= r->window_s / HTTP_RATE_STEPS) add_sample(r, now_s, bytes);
    return low;
}
