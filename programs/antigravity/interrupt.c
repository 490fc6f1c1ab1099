/* SPDX-License-Identifier: Apache-2.0 */
#include "interrupt.h"

#include "command.h"

#include <signal.h>
#include <stddef.h>

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_SIGNALS = sizeof numbers / sizeof numbers[0] };

static volatile sig_atomic_t caught; /* the first one's number */
static bool installed[N_SIGNALS];

static void set_all(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    /* Without SA_RESTART a read of standard input returns. */
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < N_SIGNALS; i++)
        if (installed[i]) sigaction(numbers[i], &action, NULL);
}

static void on_signal(int number) {
    caught = number;
    set_all(SIG_DFL);
    /* The shell and the terminal that goes may both tell us. */
    if (number == SIGHUP) signal(SIGHUP, SIG_IGN);
}

void interrupt_install(void) {
    for (size_t i = 0; i < N_SIGNALS; i++) {
        struct sigaction before;
        /* A shell that started us in the background, or nohup, asked that it should not reach us.
         */
        sigaction(numbers[i], NULL, &before);
        installed[i] = before.sa_handler != SIG_IGN;
    }
    set_all(on_signal);
}

bool interrupt_pause(void) {
    if (!caught) set_all(SIG_DFL);
    return !caught;
}

void interrupt_resume(void) {
    if (!caught) set_all(on_signal);
}

bool interrupted(void) { return caught != 0; }

int interrupt_exit_code(int code) {
    return code == EXIT_INTERRUPTED && caught ? 128 + (int)caught : code;
}
