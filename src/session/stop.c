/* SPDX-License-Identifier: Apache-2.0 */
#include "session/stop.h"

#include <string.h>

/* Returns where the stop string begins, or where a start of it ends the text. *complete: it is the
 * full string. */
static size_t first_match(const char *stop, const char *text, size_t len, bool *complete) {
    size_t n = strlen(stop);
    for (size_t at = 0; at < len; at++) {
        size_t n_compared = len - at < n ? len - at : n;
        if (!memcmp(text + at, stop, n_compared)) {
            *complete = n_compared == n;
            return at;
        }
    }
    *complete = false;
    return len;
}

size_t ag_stop_scan(const ag_stop_list *stop, const char *text, size_t len, bool *found) {
    *found = false;
    size_t show = len;
    for (size_t i = 0; i < stop->n; i++) {
        bool complete;
        size_t at = first_match(stop->strings[i], text, len, &complete);
        /* A complete match counts before partial ones. */
        bool better = complete == *found ? at < show : complete;
        if (better) {
            show = at;
            *found = complete;
        }
    }
    return show;
}
