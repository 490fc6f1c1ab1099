/* SPDX-License-Identifier: Apache-2.0 */
/* Lines from standard input: edited, where that is a terminal and libedit is there, else as they
 * come. */
#ifndef ANTIGRAVITY_LINE_READER_H
#define ANTIGRAVITY_LINE_READER_H

#include "line_editor.h"

#include <stdbool.h>

typedef struct line_reader line_reader;

/* `edited`: a person types; `remember`: lines of earlier times are there, and these the next time.
 * NULL without memory. */
line_reader *line_reader_open(bool edited, bool remember);
void line_reader_close(line_reader *r);
/* Whether lines have a history and editing keys. */
bool line_reader_is_edited(const line_reader *r);
/* An answer is made between these; what is typed meanwhile is part of the next line, or gone after
 * Ctrl-C. Nothing of this without an editor. */
void line_reader_begin_answer(line_reader *r);
void line_reader_collect(line_reader *r); /* from time to time */
void line_reader_end_answer(line_reader *r);
/* *text is the caller's to free(): UTF-8 without the newline, which a pasted text may hold inside.
 * The prompt is for people and borrowed for the call. */
line_event line_read(line_reader *r, const char *prompt, char **text);

#endif
