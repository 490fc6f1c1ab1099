/* SPDX-License-Identifier: Apache-2.0 */
#include "truncated_file.h"

#include "../command.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

static const char *volatile watched_dir;
static atomic_flag is_reported = ATOMIC_FLAG_INIT;

static void write_text(const char *text) {
    /* A failed write to standard error cannot be reported. */
    if (write(STDERR_FILENO, text, strlen(text)) < 0) return;
}

/* Signal handler, in any thread: calls only async-signal-safe functions. */
static void on_bus_error(int number) {
    (void)number;
    while (atomic_flag_test_and_set(&is_reported)) pause(); /* another thread reports and exits */
    write_text("antigravity: ");
    write_text(watched_dir);
    write_text(": a file became shorter or unreadable while it was loaded\n");
    _exit(EXIT_FAILED);
}

void truncated_file_watch(const char *dir) {
    watched_dir = dir;
    struct sigaction action = {.sa_handler = dir ? on_bus_error : SIG_DFL};
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
