/* SPDX-License-Identifier: Apache-2.0 */
/* Program output: results on standard output, messages on standard error. */
#ifndef ANTIGRAVITY_OUTPUT_H
#define ANTIGRAVITY_OUTPUT_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>

/* Call first. Keeps closed standard streams from being reused by opened files, and buffers standard
 * output. */
void output_keep_streams(void);

/* Sets the message prefix "antigravity NAME: ". `name` is borrowed permanently. */
void output_command(const char *name);

/* Replaces control characters and invalid UTF-8 by '?'. Returns text. */
char *make_printable(char *text);

/* Prints one line to standard error, after "antigravity COMMAND: ". */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Reports a failed library call. Returns EXIT_INTERRUPTED if it was cancelled, else EXIT_FAILED. */
int complain_error(const ag_error *err);
/* The same, but returns EXIT_USAGE for AG_INVALID: settings that only the model can reject. */
int complain_settings(const ag_error *err);
int complain_no_memory(void); /* returns EXIT_FAILED */
/* Like complain(); return EXIT_USAGE and EXIT_FAILED. */
int complain_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int complain_failure(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Call first. Makes a file size limit a write error instead of a signal. */
void output_survive_limits(void);

/* Writes and flushes. Returns false after a write error, which output_finish() reports. A closed
 * pipe ends the process by SIGPIPE. */
bool output_write(const char *text, size_t len);
/* Writes model output. On a terminal drops control characters except newline and tab. */
bool output_show(const char *text, size_t len);

bool output_flush(void);  /* flushes printf() output; false after a write error */
bool output_failed(void); /* true after a failed write */

/* Flushes standard output. Returns `code`, or EXIT_FAILED after reporting a write error. */
int output_finish(int code);

/* Writes a size such as "1.25 GiB" to buf and returns buf. */
const char *format_bytes(double bytes, char *buf, size_t cap);

#endif
