/* SPDX-License-Identifier: Apache-2.0 */
/* Event loop of the server, with its signals and its timer. */
#ifndef ANTIGRAVITY_SERVE_SERVER_LOOP_H
#define ANTIGRAVITY_SERVE_SERVER_LOOP_H

#include "server.h"

/* Serves until a signal stops the server. The engine and the listeners belong to the caller.
 * Returns an exit code. */
int server_run(const server_settings *settings, ag_serving *engine, listeners *l);

#endif
