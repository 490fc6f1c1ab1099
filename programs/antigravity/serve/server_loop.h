/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop of the server, its signals and its timer. */
#ifndef ANTIGRAVITY_SERVE_SERVER_LOOP_H
#define ANTIGRAVITY_SERVE_SERVER_LOOP_H

#include "server.h"

/* Serves until a signal ends it. The engine and the listeners are the caller's. Returns an exit
 * code. */
int server_run(const server_settings *settings, ag_serving *engine, listeners *l);

#endif
