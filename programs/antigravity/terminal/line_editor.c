/* SPDX-License-Identifier: Apache-2.0 */
#include "line_editor.h"

#include "../support/user_files.h"
#include "edit_api.h"
#include "interrupt.h"
#include "key_input.h"
#include "output.h"

#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

enum { REMEMBERED = 1000 };

struct line_editor {
    edit_api api;
    EditLine *edit;   /* owned */
    History *history; /* owned */
    key_input *keys;
    FILE *screen; /* borrowed */
    const char *prompt;
    bool typed;                  /* part of the line was typed */
    bool has_answered;           /* since the last line */
    char history_path[PATH_MAX]; /* "": no history file */
};

/* libedit's callbacks have no user argument. */
static line_editor *active;
static volatile sig_atomic_t resized;

static void on_resize(int number) {
    (void)number;
    resized = 1;
}

static void send(const line_editor *e, const char *text) {
    fputs(text, e->screen);
    fflush(e->screen);
}

static char *current_prompt(EditLine *edit) {
    (void)edit;
    return (char *)(uintptr_t)active->prompt; /* read only */
}

/* Redraws the line after the terminal was resized and has wrapped it again. */
static void redraw(EditLine *edit) {
    resized = 0;
    active->api.el_resize(edit);
    send(active, "\r\x1b[J");
    active->api.el_set(edit, EL_REFRESH);
}

static int get_character(EditLine *edit, wchar_t *out) {
    uint32_t c;
    for (;;) {
        /* Characters after Ctrl-C belong to the next line. */
        const key_event e = interrupted() ? KEY_SIGNAL : key_next(active->keys, &c);
        if (e == KEY_END) return 0;
        if (e == KEY_CHARACTER) break;
        if (interrupted()) return -1;
        if (resized) redraw(edit);
    }
    *out = (wchar_t)c;
    active->typed = true;
    return 1;
}

/* Chooses a UTF-8 locale: libedit drops characters outside of the locale's encoding. */
static bool use_utf8(void) {
    static const char *const names[] = {"", "C.UTF-8", "en_US.UTF-8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (setlocale(LC_CTYPE, names[i]) && !strcmp(nl_langinfo(CODESET), "UTF-8")) return true;
    setlocale(LC_CTYPE, "C");
    return false;
}

/* ---- while an answer is made ---- */

/* For restore_terminal(), which a signal handler calls. */
static struct termios usual_mode;
static volatile sig_atomic_t mode_is_changed, marks_on;

static void restore_terminal(void) {
    if (marks_on && write(STDERR_FILENO, key_paste_off, strlen(key_paste_off)) >= 0) marks_on = 0;
    if (mode_is_changed) tcsetattr(STDIN_FILENO, TCSANOW, &usual_mode);
    mode_is_changed = 0;
}

void line_editor_begin_answer(line_editor *e) {
    e->has_answered = true;
    if (tcgetattr(STDIN_FILENO, &usual_mode) != 0) return;
    struct termios mode = usual_mode;
    mode.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    mode.c_cc[VMIN] = 1;
    mode.c_cc[VTIME] = 0;
    mode_is_changed = 1;
    interrupt_set_restore(restore_terminal);
    tcsetattr(STDIN_FILENO, TCSANOW, &mode);
}

void line_editor_collect(line_editor *e) {
    if (!interrupted()) key_collect(e->keys);
}

void line_editor_end_answer(line_editor *e) {
    if (interrupted()) key_forget(e->keys);
    interrupt_set_restore(NULL);
    if (mode_is_changed) tcsetattr(STDIN_FILENO, TCSANOW, &usual_mode);
    mode_is_changed = 0;
}

/* ---- history ---- */

static void find_history(char path[PATH_MAX]) {
    enum { PART = 16 }; /* suffix of the temporary file */
    if (user_path(path, "XDG_STATE_HOME", ".local/state", "chat_history") &&
        strlen(path) + PART < PATH_MAX)
        return;
    path[0] = '\0';
}

static void make_history_directory(const char *history) {
    char directory[PATH_MAX];
    snprintf(directory, sizeof directory, "%s", history);
    *strrchr(directory, '/') = '\0';
    (void)make_directories(directory, 0700);
}

/* Saves the history, readable by the owner only. */
static void save_history(line_editor *e) {
    new_file f;
    HistEvent event;
    if (!e->history_path[0]) return;
    make_history_directory(e->history_path);
    if (new_file_open(&f, e->history_path))
        (void)new_file_close(&f, e->api.history(e->history, &event, H_SAVE, f.temp_path) >= 0);
}

/* ---- the editor ---- */

static bool set_up(line_editor *e, bool remember) {
    HistEvent event;
    e->screen = isatty(STDOUT_FILENO) ? stdout : stderr;
    e->keys = key_input_open(STDIN_FILENO);
    e->edit = e->keys ? e->api.el_init("antigravity", stdin, e->screen, stderr) : NULL;
    e->history = e->edit ? e->api.history_init() : NULL;
    if (!e->history) return false;
    e->api.history(e->history, &event, H_SETSIZE, REMEMBERED);
    e->api.history(e->history, &event, H_SETUNIQUE, 1);
    if (remember) find_history(e->history_path);
    if (e->history_path[0]) e->api.history(e->history, &event, H_LOAD, e->history_path);
    e->api.el_set(e->edit, EL_PROMPT, current_prompt);
    e->api.el_set(e->edit, EL_EDITOR, "emacs");
    e->api.el_set(e->edit, EL_SIGNAL, 0);
    e->api.el_set(e->edit, EL_HIST, e->api.history, e->history);
    e->api.el_source(e->edit, NULL);
    e->api.el_set(e->edit, EL_GETCFN, get_character);
    return true;
}

line_editor *line_editor_open(bool remember) {
    const char *terminal = getenv("TERM");
    if (!terminal || !terminal[0] || !strcmp(terminal, "dumb") || !use_utf8()) return NULL;
    line_editor *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    active = e;
    if (edit_api_load(&e->api) && set_up(e, remember)) return e;
    line_editor_close(e);
    return NULL;
}

void line_editor_close(line_editor *e) {
    if (!e) return;
    if (marks_on) send(e, key_paste_off);
    marks_on = 0;
    if (e->history) save_history(e);
    if (e->history) e->api.history_end(e->history);
    if (e->edit) e->api.el_end(e->edit);
    key_input_close(e->keys);
    active = NULL;
    free(e);
}

static line_event finish_line(line_editor *e, const char *line, int n, char **text) {
    HistEvent event;
    bool pasted;
    char *line_text = strndup(line, (size_t)n);
    if (line_text && n && line_text[n - 1] == '\n') line_text[n - 1] = '\0';
    *text = line_text ? key_expand(e->keys, line_text, &pasted) : NULL;
    if (*text && line_text[0] && !pasted) e->api.history(e->history, &event, H_ENTER, line_text);
    free(line_text);
    return *text ? LINE_TEXT : LINE_END;
}

line_event line_editor_read(line_editor *e, const char *prompt, char **text) {
    struct sigaction on = {.sa_handler = on_resize}, before;
    int n = 0;
    output_flush();
    e->prompt = prompt;
    e->typed = false;
    sigemptyset(&on.sa_mask);
    sigaction(SIGWINCH, &on, &before);
    e->api.el_resize(e->edit); /* the window may have been resized */
    /* On until the process ends: text may be pasted while an answer is generated. */
    send(e, key_paste_on);
    marks_on = 1;
    if (e->has_answered) key_join_lines(e->keys);
    e->has_answered = false;
    const char *line = e->api.el_gets(e->edit, &n);
    sigaction(SIGWINCH, &before, NULL);
    if (line && n > 0 && !interrupted()) return finish_line(e, line, n, text);
    send(e, "\n");
    if (!interrupted()) return LINE_END;
    return e->typed ? LINE_DROPPED : LINE_INTERRUPTED;
}
