/* SPDX-License-Identifier: Apache-2.0 */
/* Reads lines from standard input: with the line editor on a terminal with libedit, else
 * unedited. */
#ifndef ANTIGRAVITY_LINE_READER_H
#define ANTIGRAVITY_LINE_READER_H

#include "line_editor.h"

#include <stdbool.h>

typedef struct line_reader line_reader;

/* `edited`: a person types; `remember`: load and save the history. Returns NULL if out of
 * memory. */
line_reader *line_reader_open(bool edited, bool remember);
void line_reader_close(line_reader *r);
/* Returns whether lines have history and editing keys. */
bool line_reader_is_edited(const line_reader *r);
/* Between begin and end an answer is generated. Text typed meanwhile is part of the next line, or
 * dropped after Ctrl-C. No-ops without an editor. */
void line_reader_begin_answer(line_reader *r);
void line_reader_collect(line_reader *r); /* call now and then */
void line_reader_end_answer(line_reader *r);
/* Reads a line. The caller frees *text: UTF-8 without the final newline; a pasted text may hold
 * newlines. Shows the prompt on a terminal. */
line_event line_read(line_reader *r, const char *prompt, char **text);

#endif
