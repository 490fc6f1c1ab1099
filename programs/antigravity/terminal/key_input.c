/* SPDX-License-Identifier: Apache-2.0 */
#include "key_input.h"

#include "interrupt.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char key_paste_on[] = "\x1b[?2004h", key_paste_off[] = "\x1b[?2004l";
static const char paste_begins[] = "\x1b[200~", paste_ends[] = "\x1b[201~";

enum { MAX_COLLECTED = 1 << 24 }; /* in bytes; then the terminal stops reading */
enum { READ_BYTES = 4096, SHORT_PASTE = 400, MAX_PASTES = 64, LABEL_BYTES = 64, ESCAPE_MS = 50 };

typedef struct paste {
    char label[LABEL_BYTES];
    char *text; /* owned */
} paste;

struct key_input {
    int fd;
    bool ended;
    char *data; /* owned; [at, n) is pending */
    size_t at, n, cap;
    paste pastes[MAX_PASTES];
    size_t n_pastes;
};

key_input *key_input_open(int fd) {
    key_input *k = calloc(1, sizeof *k);
    if (k) k->fd = fd;
    return k;
}

static void forget_pastes(key_input *k) {
    while (k->n_pastes) free(k->pastes[--k->n_pastes].text);
}

void key_input_close(key_input *k) {
    if (!k) return;
    forget_pastes(k);
    free(k->data);
    free(k);
}

/* ---- bytes ---- */

static bool make_space(key_input *k, size_t n) {
    if (k->at && k->at == k->n) k->at = k->n = 0;
    if (k->n + n <= k->cap) return true;
    const size_t cap = 2 * (k->n + n);
    char *grown = realloc(k->data, cap);
    if (!grown) return false;
    k->data = grown;
    k->cap = cap;
    return true;
}

/* Reads more bytes, waiting up to wait_ms milliseconds; -1: without a limit. */
static key_event get_more(key_input *k, int wait_ms) {
    struct pollfd ready = {.fd = k->fd, .events = POLLIN};
    if (k->ended || !make_space(k, READ_BYTES)) return KEY_END;
    const int any = poll(&ready, 1, wait_ms);
    if (any < 0) return errno == EINTR ? KEY_SIGNAL : KEY_END;
    if (!any) return KEY_CHARACTER;
    const ssize_t n = read(k->fd, k->data + k->n, READ_BYTES);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return KEY_SIGNAL;
    if (n <= 0) k->ended = true;
    if (n <= 0) return KEY_END;
    k->n += (size_t)n;
    return KEY_CHARACTER;
}

static size_t n_pending(const key_input *k) { return k->n - k->at; }

/* Inserts bytes before the pending ones. */
static bool put_before(key_input *k, const char *text, size_t n) {
    if (!make_space(k, n)) return false;
    memmove(k->data + k->at + n, k->data + k->at, n_pending(k));
    memcpy(k->data + k->at, text, n);
    k->n += n;
    return true;
}

/* ---- pasted texts ---- */

/* Returns whether the pending bytes start with these. Waits briefly for an incomplete match. */
static bool starts_with(key_input *k, const char *bytes) {
    const size_t n = strlen(bytes);
    size_t same = 0;
    for (;;) {
        while (same < n && same < n_pending(k) && k->data[k->at + same] == bytes[same]) same++;
        if (same == n) return true;
        if (same < n_pending(k)) return false;
        const size_t before = n_pending(k);
        if (get_more(k, ESCAPE_MS) != KEY_CHARACTER || n_pending(k) == before) return false;
    }
}

/* Normalises line ends and drops control characters. Returns the length. */
static size_t clean(char *text, size_t n) {
    size_t n_clean = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '\r' && i + 1 < n && text[i + 1] == '\n') continue;
        if (c == '\r') c = '\n';
        if (((unsigned char)c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) continue;
        text[n_clean++] = c;
    }
    text[n_clean] = '\0';
    return n_clean;
}

static size_t count_lines(const char *text) {
    size_t n = 1;
    for (; *text; text++) n += *text == '\n' && text[1];
    return n;
}

/* Reads a bracketed paste and removes its marks. Returns NULL if out of memory, at the end, or
 * after a signal, which drops the partial paste. */
static char *read_paste(key_input *k) {
    const size_t mark = sizeof paste_ends - 1;
    size_t scanned = 0;
    k->at += sizeof paste_begins - 1;
    for (;;) {
        for (; scanned + mark <= n_pending(k); scanned++) {
            if (memcmp(k->data + k->at + scanned, paste_ends, mark) != 0) continue;
            char *text = malloc(scanned + 1);
            if (text) memcpy(text, k->data + k->at, scanned);
            k->at += scanned + mark;
            if (text) clean(text, scanned);
            return text;
        }
        const size_t before = n_pending(k); /* bytes after Ctrl-C do not belong to it */
        const key_event e = interrupted() ? KEY_SIGNAL : get_more(k, -1);
        if (interrupted()) k->at += before;
        if (interrupted() || e == KEY_END) return NULL;
    }
}

/* Inserts a text of one short line as if typed. Another text becomes a label that key_expand()
 * replaces; past MAX_PASTES it is inserted with blanks for line ends. */
static void insert_paste(key_input *k, char *text) {
    const size_t n = strlen(text);
    if ((n <= SHORT_PASTE && !strchr(text, '\n')) || k->n_pastes == MAX_PASTES) {
        for (char *c = text; *c; c++)
            if (*c == '\n' || *c == '\t') *c = ' ';
        put_before(k, text, n);
        free(text);
        return;
    }
    paste *p = &k->pastes[k->n_pastes];
    const size_t lines = count_lines(text);
    snprintf(p->label, sizeof p->label, "[pasted text %zu: %zu line%s, %zu bytes]", k->n_pastes + 1,
             lines, lines == 1 ? "" : "s", n);
    p->text = text;
    k->n_pastes++;
    put_before(k, p->label, strlen(p->label));
}

/* ---- typed while an answer is made ---- */

/* Returns whether the process is in the foreground. In the background a read would stop it. */
static bool is_in_front(const key_input *k) { return tcgetpgrp(k->fd) == getpgrp(); }

static void collect(key_input *k, int wait_ms) {
    while (n_pending(k) < MAX_COLLECTED && is_in_front(k)) {
        const size_t before = n_pending(k);
        if (get_more(k, wait_ms) != KEY_CHARACTER || n_pending(k) == before) return;
    }
}

void key_collect(key_input *k) { collect(k, 0); }

void key_forget(key_input *k) { k->at = k->n; }

static bool has_paste_start(const key_input *k) {
    const size_t n = sizeof paste_begins - 1;
    for (size_t i = k->at; i + n <= k->n; i++)
        if (!memcmp(k->data + i, paste_begins, n)) return true;
    return false;
}

void key_join_lines(key_input *k) {
    if (n_pending(k)) collect(k, ESCAPE_MS); /* more may arrive */
    char *text = n_pending(k) && !has_paste_start(k) ? malloc(n_pending(k) + 1) : NULL;
    if (!text) return;
    size_t n = n_pending(k);
    memcpy(text, k->data + k->at, n);
    n = clean(text, n);
    while (n && text[n - 1] == '\n') text[--n] = '\0';
    if (!strchr(text, '\n')) {
        free(text);
        return;
    }
    key_forget(k);
    insert_paste(k, text);
}

char *key_expand(key_input *k, const char *line, bool *pasted) {
    char *text = strdup(line);
    *pasted = false;
    for (size_t i = 0; text && i < k->n_pastes; i++) {
        const paste *p = &k->pastes[i];
        char *at = strstr(text, p->label);
        if (!at) continue;
        const size_t before = (size_t)(at - text), mark = strlen(p->label), n = strlen(p->text);
        char *grown = malloc(strlen(text) + n + 1);
        if (grown) {
            memcpy(grown, text, before);
            memcpy(grown + before, p->text, n);
            strcpy(grown + before + n, at + mark);
        }
        free(text);
        text = grown;
        *pasted = true;
    }
    forget_pastes(k);
    return text;
}

/* ---- characters ---- */

/* Returns the length of the UTF-8 sequence with this first byte. */
static size_t sequence_bytes(unsigned char first) {
    return first >= 0xf0 && first < 0xf5 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 1;
}

static uint32_t decode(key_input *k, size_t n) {
    const unsigned char *s = (const unsigned char *)k->data + k->at;
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            k->at++;
            return 0xfffd;
        }
        c = c << 6 | (s[i] & 0x3fu);
    }
    k->at += n;
    return n == 1 && c >= 0x80 ? 0xfffd : c;
}

key_event key_next(key_input *k, uint32_t *character) {
    for (;;) {
        while (!n_pending(k)) {
            const key_event e = get_more(k, -1);
            if (e != KEY_CHARACTER) return e;
        }
        if (k->data[k->at] == paste_begins[0] && starts_with(k, paste_begins)) {
            char *text = read_paste(k);
            if (text) insert_paste(k, text);
            else if (interrupted()) return KEY_SIGNAL;
            continue;
        }
        const size_t n = sequence_bytes((unsigned char)k->data[k->at]);
        while (n_pending(k) < n) {
            const key_event e = get_more(k, -1);
            if (e == KEY_SIGNAL) return e;
            if (e == KEY_END) break;
        }
        *character = decode(k, n_pending(k) < n ? 1 : n);
        return KEY_CHARACTER;
    }
}
