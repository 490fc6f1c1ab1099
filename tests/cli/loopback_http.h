/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts HTTP requests on 127.0.0.1 and reads their headers, each on its own thread. */
#ifndef AG_TESTS_LOOPBACK_HTTP_H
#define AG_TESTS_LOOPBACK_HTTP_H

/* Answers one request; `text` is its header, ended by a NUL. The connection is closed
 * afterwards. */
typedef void (*loopback_serve)(int fd, const char *text);

/* Listens until the process ends; at most one server per process. Returns the port. Aborts on
 * failure. */
int loopback_start(loopback_serve serve);
/* Returns the value of the header field `name` ("Range: "), which ends with CR; NULL if absent. */
const char *loopback_value(const char *text, const char *name);

#endif
