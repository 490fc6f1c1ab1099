/* SPDX-License-Identifier: Apache-2.0 */
#include "notify.h"

#include "clock.h"
#include "http/socket.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static void send_state(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    if (path) socket_send_datagram(path, state);
}

void notify_ready(void) { send_state("READY=1"); }
void notify_stopping(void) { send_state("STOPPING=1"); }

void notify_reloading(void) {
    char state[64];
    snprintf(state, sizeof state, "RELOADING=1\nMONOTONIC_USEC=%" PRId64,
             (int64_t)(clock_s() * 1e6));
    send_state(state);
}
