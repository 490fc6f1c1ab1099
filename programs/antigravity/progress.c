/* SPDX-License-Identifier: Apache-2.0 */
#include "progress.h"

#include "clock.h"
#include "interrupt.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BAR_WIDTH = 40, LINE_WIDTH = 79 };
static const double redraw_s = 0.1;

static bool silent;
static const char *label; /* NULL: no bar is wanted now */
static bool drawn;
static double drawn_at;

void progress_silence(void) { silent = true; }

void progress_begin(const char *text) {
    progress_end();
    label = silent || !isatty(STDERR_FILENO) ? NULL : text;
    drawn_at = 0;
}

static void draw(uint64_t done, uint64_t total) {
    char bar[BAR_WIDTH + 1];
    double share = (double)done / (double)total;
    size_t filled = (size_t)(share * BAR_WIDTH);
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', filled < BAR_WIDTH ? filled : BAR_WIDTH);
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r%-18s [%s] %3.0f %%", label, bar, share * 100);
    fflush(stderr);
    drawn = true;
}

bool progress_update(void *user, uint64_t done, uint64_t total) {
    (void)user;
    double now = clock_s();
    if (label && total && (now - drawn_at >= redraw_s || done == total)) {
        drawn_at = now;
        draw(done, total);
    }
    return !interrupted();
}

void progress_end(void) {
    label = NULL;
    if (!drawn) return;
    fprintf(stderr, "\r%*s\r", LINE_WIDTH, "");
    fflush(stderr);
    drawn = false;
}
