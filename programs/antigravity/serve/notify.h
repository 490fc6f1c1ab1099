/* SPDX-License-Identifier: Apache-2.0 */
/* What the manager of services that started the server is told: sd_notify(3). */
#ifndef ANTIGRAVITY_SERVE_NOTIFY_H
#define ANTIGRAVITY_SERVE_NOTIFY_H

/* To the socket that NOTIFY_SOCKET names; nothing where it names none. */
void notify_ready(void);
void notify_reloading(void);
void notify_stopping(void);

#endif
