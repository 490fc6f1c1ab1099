/* SPDX-License-Identifier: Apache-2.0 */
#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

static bool silent;

size_t terminal_columns(int fd) {
    struct winsize size = {.ws_col = 0};
    if (ioctl(fd, TIOCGWINSZ, &size) != 0 || !size.ws_col) return 80;
    return size.ws_col < 10 ? 10 : size.ws_col;
}

bool terminal_shows_progress(void) { return !silent && isatty(STDERR_FILENO); }

void terminal_silence(void) { silent = true; }
