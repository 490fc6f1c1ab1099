/* SPDX-License-Identifier: Apache-2.0 */
/* What a terminal sends, as characters: UTF-8 becomes code points, and a pasted text that is long
 * or has several lines becomes a short mark, which stands for it until the line is done. */
#ifndef ANTIGRAVITY_KEY_INPUT_H
#define ANTIGRAVITY_KEY_INPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct key_input key_input;

/* Bytes from fd. NULL without memory. */
key_input *key_input_open(int fd);
void key_input_close(key_input *k);

typedef enum key_event { KEY_CHARACTER, KEY_END, KEY_SIGNAL } key_event;
/* Waits for the next one; KEY_SIGNAL: a signal came while it waited. */
key_event key_next(key_input *k, uint32_t *character);
/* What was typed while nobody waited for it is taken in, so that it is neither lost nor in the way
 * of Ctrl-C. */
void key_collect(key_input *k);
/* If that is several lines it becomes a pasted text, for a terminal that marks none. */
void key_join_lines(key_input *k);
/* It is forgotten, as terminals do after Ctrl-C. */
void key_forget(key_input *k);
/* The line with what its marks stand for, the caller's to free(); *pasted: there were some. NULL
 * without memory. What was pasted is forgotten. */
char *key_expand(key_input *k, const char *line, bool *pasted);

/* What asks a terminal to say where a pasted text begins and ends, and what ends that. */
extern const char key_paste_on[], key_paste_off[];

#endif
