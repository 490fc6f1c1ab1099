/* SPDX-License-Identifier: Apache-2.0 */
#include "word_wrap.h"

#include "output.h"
#include "terminal.h"

#include <string.h>
#include <unistd.h>

enum { FENCE = 3 }; /* backticks that begin and end a block of code */

word_wrap word_wrap_begin(void) {
    return (word_wrap){.width = isatty(STDOUT_FILENO) ? terminal_columns(STDOUT_FILENO) : 0};
}

/* Returns the bytes of the character that begins with this byte. */
static size_t character_bytes(unsigned char first) {
    return first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

/* Returns whether the code point takes two columns: East Asian wide and emoji. */
static bool is_wide(unsigned long c) {
    return (c >= 0x1100 && c <= 0x115f) || (c >= 0x2e80 && c <= 0xa4cf) ||
           (c >= 0xac00 && c <= 0xd7a3) || (c >= 0xf900 && c <= 0xfaff) ||
           (c >= 0xfe30 && c <= 0xfe6f) || (c >= 0xff00 && c <= 0xff60) ||
           (c >= 0xffe0 && c <= 0xffe6) || (c >= 0x1f300 && c <= 0x1faff) ||
           (c >= 0x20000 && c <= 0x3fffd);
}

/* Returns the columns of the character of n bytes; 0 for control and combining characters. */
static size_t character_columns(const char *text, size_t n) {
    unsigned long c = (unsigned char)text[0];
    if (n == 1) return c >= 0x20 && c != 0x7f;
    c &= 0xffu >> (n + 1);
    for (size_t i = 1; i < n; i++) c = c << 6 | ((unsigned char)text[i] & 0x3fu);
    if (c < 0xa0 || (c >= 0x300 && c <= 0x36f) || c == 0x200d || (c >= 0xfe00 && c <= 0xfe0f))
        return 0;
    return is_wide(c) ? 2 : 1;
}

void word_wrap_flush(word_wrap *w) {
    const size_t end = w->column + w->n_blanks + w->columns;
    if (w->columns && w->column && end > w->width && !w->is_joined && !w->in_code) {
        output_show("\n", 1);
        w->column = w->n_blanks = 0;
    }
    for (; w->n_blanks; w->n_blanks--, w->column++) output_show(" ", 1);
    if (w->n) output_show(w->word, w->n);
    w->column += w->columns;
    w->n = w->columns = 0;
}

static void end_line(word_wrap *w) {
    if (w->n) word_wrap_flush(w);
    w->is_joined = false;
    w->n_blanks = 0;
    output_show("\n", 1);
    if (w->n_fence == FENCE) w->in_code = !w->in_code;
    w->column = w->n_fence = 0;
}

static void add_blank(word_wrap *w) {
    if (w->n) word_wrap_flush(w);
    w->is_joined = false;
    w->n_blanks++;
}

/* Adds a character to the pending word. A line may end before and after a wide character. */
static void add_character(word_wrap *w, const char *text, size_t n) {
    const size_t columns = character_columns(text, n);
    const bool is_first = !w->column && w->n == w->n_fence;
    if (*text == '`' && is_first && w->n_fence < FENCE) w->n_fence++;
    if (w->n + n > sizeof w->word || columns == 2) {
        word_wrap_flush(w);
        w->is_joined = columns != 2;
    }
    memcpy(w->word + w->n, text, n);
    w->n += n;
    w->columns += columns;
    if (columns != 2) return;
    word_wrap_flush(w);
    w->is_joined = false;
}

void word_wrap_write(word_wrap *w, const char *text, size_t len) {
    if (!w->width) {
        output_show(text, len);
        return;
    }
    for (size_t i = 0, n; i < len; i += n) {
        n = character_bytes((unsigned char)text[i]);
        if (n > len - i) n = len - i;
        if (text[i] == '\n') end_line(w);
        else if (text[i] == ' ') add_blank(w);
        else add_character(w, text + i, n);
    }
}
