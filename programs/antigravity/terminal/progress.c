/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include "clock.h"
#include "interrupt.h"
#include "terminal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* BAR_WIDTH columns of bar, fewer on a narrow terminal. */
enum { BAR_WIDTH = 40, MIN_BAR = 8, AROUND_BAR = 9, LINE_SIZE = 256 };
static const double redraw_s = 0.1;

static const char *label; /* NULL: no bar */
static size_t drawn;      /* columns of the drawn line */
static double drawn_at;
static bool is_json;
static const char *digest = "";

void progress_silence(void) { terminal_silence(); }
void progress_digest(const char *sha256) { digest = sha256; }

void progress_as_json(void) {
    is_json = true;
    terminal_silence();
}

void progress_begin(const char *text) {
    progress_end();
    label = is_json || terminal_shows_progress() ? text : NULL;
    drawn_at = 0;
}

/* Writes a line of JSON. Labels are names of the store, or words: no character needs an escape. */
static void write_json(uint64_t done, uint64_t total) {
    printf("{\"step\":\"%s\",\"done\":%" PRIu64 ",\"total\":%" PRIu64, label, done, total);
    if (digest[0]) printf(",\"sha256\":\"%s\"", digest);
    printf("}\n");
    fflush(stdout);
}

/* Replaces the line. Leaves the last column free: many terminals wrap when it is written. */
static void show(const char *text) {
    const size_t max_columns = terminal_columns(STDERR_FILENO) - 1;
    const size_t n = strlen(text) < max_columns ? strlen(text) : max_columns;
    const size_t n_blanks = drawn > n ? drawn - n : 0;
    fprintf(stderr, "\r%.*s%*s", (int)n, text,
            (int)(n_blanks < max_columns - n ? n_blanks : max_columns - n), "");
    fflush(stderr);
    drawn = n;
}

static void draw(uint64_t done, uint64_t total) {
    char bar[BAR_WIDTH + 1], line[LINE_SIZE];
    const double share = (double)done / (double)total;
    const size_t columns = terminal_columns(STDERR_FILENO) - 1, label_length = strlen(label);
    const size_t name = label_length > 18 ? label_length : 18;
    size_t width = columns > name + AROUND_BAR ? columns - name - AROUND_BAR : 0;
    if (width > BAR_WIDTH) width = BAR_WIDTH;
    const size_t filled = (size_t)(share * (double)width);
    memset(bar, '.', width);
    memset(bar, '#', filled < width ? filled : width);
    bar[width] = '\0';
    if (width < MIN_BAR) snprintf(line, sizeof line, "%3.0f %% %s", share * 100, label);
    else snprintf(line, sizeof line, "%-18s [%s] %3.0f %%", label, bar, share * 100);
    show(line);
}

void progress_note(const char *text) {
    char line[LINE_SIZE];
    if (!terminal_shows_progress()) return;
    snprintf(line, sizeof line, "%s ...", text);
    show(line);
    drawn_at = clock_s();
}

bool progress_update(void *user, uint64_t done, uint64_t total) {
    (void)user;
    double now = clock_s();
    if (label && total && (now - drawn_at >= redraw_s || done == total)) {
        drawn_at = now;
        if (is_json) write_json(done, total);
        else draw(done, total);
    }
    return !interrupted();
}

void progress_end(void) {
    label = NULL;
    if (!drawn) return;
    fprintf(stderr, "\r%*s\r", (int)drawn, "");
    fflush(stderr);
    drawn = 0;
}
