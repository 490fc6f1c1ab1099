/* SPDX-License-Identifier: Apache-2.0 */
/* Notifications to the service manager that started the server: sd_notify(3). */
#ifndef ANTIGRAVITY_SERVE_NOTIFY_H
#define ANTIGRAVITY_SERVE_NOTIFY_H

/* Send a state to the socket in NOTIFY_SOCKET. Do nothing if it is not set. */
void notify_ready(void);
void notify_reloading(void);
void notify_stopping(void);

#endif
