/* SPDX-License-Identifier: Apache-2.0 */
/* A line on a terminal, with history, by libedit. */
#ifndef ANTIGRAVITY_LINE_EDITOR_H
#define ANTIGRAVITY_LINE_EDITOR_H

#include <stdbool.h>

typedef enum line_event {
    LINE_TEXT,
    LINE_END,         /* of the input, or Ctrl-D */
    LINE_INTERRUPTED, /* a signal came */
    LINE_REFUSED,     /* it is no text, which was said */
    LINE_DROPPED,     /* the same when something had been typed, which is gone */
} line_event;

typedef struct line_editor line_editor;

/* NULL: this build or this system has no libedit, or the terminal or the locale is not fit for it.
 */
line_editor *line_editor_open(bool remember);
/* Keeps the history, if it is to be remembered. */
void line_editor_close(line_editor *e);
line_event line_editor_read(line_editor *e, const char *prompt, char **text);

/* While an answer is made what is typed is not shown and stays what it is, pasted or not: it is
 * taken in from time to time, and the next line begins with it. */
void line_editor_begin_answer(line_editor *e);
void line_editor_collect(line_editor *e);
void line_editor_end_answer(line_editor *e);

#endif
