/* SPDX-License-Identifier: Apache-2.0 */
#include "interrupt.h"

#include <signal.h>
#include <stddef.h>

static volatile sig_atomic_t flag;
static bool installed;

static void on_interrupt(int signal_number) {
    (void)signal_number;
    flag = 1;
}

void interrupt_install(void) {
    struct sigaction action = {.sa_handler = on_interrupt}, before;
    /* Without SA_RESTART a read of standard input returns; with SA_RESETHAND the next one kills. */
    action.sa_flags = SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, NULL, &before);
    /* A shell that started us in the background asked that Ctrl-C should not reach us. */
    installed = before.sa_handler != SIG_IGN;
    if (installed) sigaction(SIGINT, &action, NULL);
}

bool interrupt_pause(void) {
    if (installed) signal(SIGINT, SIG_DFL);
    return !flag;
}

void interrupt_resume(void) {
    if (installed) interrupt_install();
}

bool interrupted(void) { return flag != 0; }
