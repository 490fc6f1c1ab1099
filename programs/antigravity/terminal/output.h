/* SPDX-License-Identifier: Apache-2.0 */
/* What the program says: results on standard output, everything else on standard error. */
#ifndef ANTIGRAVITY_OUTPUT_H
#define ANTIGRAVITY_OUTPUT_H

#include <antigravity/status.h>
#include <stdbool.h>
#include <stddef.h>

/* Before anything else: a stream that was closed when the program began is not given to the next
 * file that is opened, and standard output gets a buffer. */
void output_keep_streams(void);

/* From now on messages begin with "antigravity NAME: ". name is borrowed for ever. */
void output_command(const char *name);

/* Makes what would end a line or command a terminal, and what is not UTF-8, a '?'. Returns text. */
char *make_printable(char *text);

/* One line on standard error, after "antigravity COMMAND: ". */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same for a failed call of the library; returns EXIT_FAILED, or EXIT_INTERRUPTED if it was
 * Ctrl-C that ended the call. */
int complain_error(const ag_error *err);
/* The same, but settings that only the model can refuse (AG_INVALID) are EXIT_USAGE. */
int complain_settings(const ag_error *err);
int complain_no_memory(void); /* returns EXIT_FAILED */
/* As complain(); returns EXIT_USAGE, EXIT_FAILED. */
int complain_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int complain_failure(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Before anything else: a file that may grow no further is a write error like a full disk. */
void output_survive_limits(void);

/* Writes and flushes, so that a reader sees every piece at once. False: standard output does not
 * take it (a full disk); output_finish() says so. A closed pipe ends the program as it ends others:
 * by SIGPIPE, silently. */
bool output_write(const char *text, size_t len);
/* The same of what a model says: on a terminal without the control characters, other than newline
 * and tab, that would command it. */
bool output_show(const char *text, size_t len);

bool output_flush(void);  /* what printf() and its kin left behind; the same */
bool output_failed(void); /* whether a write was lost */

/* Flushes standard output; `code`, or EXIT_FAILED with a message if anything written was lost. */
int output_finish(int code);

/* "1.25 GiB" into buf; returns buf. */
const char *format_bytes(double bytes, char *buf, size_t cap);

#endif
