/* SPDX-License-Identifier: Apache-2.0 */
/* Keyboard input as code points. A pasted text that is long or has several lines becomes a short
 * label until the line is complete. */
#ifndef ANTIGRAVITY_KEY_INPUT_H
#define ANTIGRAVITY_KEY_INPUT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct key_input key_input;

/* Reads from fd. Returns NULL if out of memory. */
key_input *key_input_open(int fd);
void key_input_close(key_input *k);

typedef enum key_event { KEY_CHARACTER, KEY_END, KEY_SIGNAL } key_event;
/* Waits for the next character. KEY_SIGNAL: a signal arrived meanwhile. */
key_event key_next(key_input *k, uint32_t *character);
/* Reads pending bytes without waiting, so that they are not lost and do not block Ctrl-C. */
void key_collect(key_input *k);
/* Turns several pending lines into a pasted text, for terminals without bracketed paste. */
void key_join_lines(key_input *k);
/* Drops pending bytes, as terminals do after Ctrl-C. */
void key_forget(key_input *k);
/* Returns the line with its labels replaced; the caller frees it. *pasted: there were some.
 * NULL if out of memory. Forgets the pasted texts. */
char *key_expand(key_input *k, const char *line, bool *pasted);

/* Escape sequences that turn bracketed paste on and off. */
extern const char key_paste_on[], key_paste_off[];

#endif
