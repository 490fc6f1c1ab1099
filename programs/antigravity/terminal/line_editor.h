/* SPDX-License-Identifier: Apache-2.0 */
/* Line editor with history, by libedit. */
#ifndef ANTIGRAVITY_LINE_EDITOR_H
#define ANTIGRAVITY_LINE_EDITOR_H

#include <stdbool.h>

typedef enum line_event {
    LINE_TEXT,
    LINE_END,         /* end of the input, or Ctrl-D */
    LINE_INTERRUPTED, /* by a signal */
    LINE_REFUSED,     /* not text; reported */
    LINE_DROPPED,     /* interrupted after something was typed, which is lost */
} line_event;

typedef struct line_editor line_editor;

/* Returns NULL without libedit, or if the terminal or the locale does not support it. */
line_editor *line_editor_open(bool remember);
/* Saves the history if it is remembered. */
void line_editor_close(line_editor *e);
line_event line_editor_read(line_editor *e, const char *prompt, char **text);

/* Between begin and end the echo is off and typed text is kept. line_editor_collect() reads it; the
 * next line begins with it. */
void line_editor_begin_answer(line_editor *e);
void line_editor_collect(line_editor *e);
void line_editor_end_answer(line_editor *e);

#endif
