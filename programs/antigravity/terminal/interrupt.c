/* SPDX-License-Identifier: Apache-2.0 */
#include "interrupt.h"

#include "../command.h"
#include "terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <unistd.h>

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_SIGNALS = sizeof numbers / sizeof numbers[0] };

static volatile sig_atomic_t caught; /* number of the first signal */
static bool installed[N_SIGNALS];
static bool announces; /* print a notice */

enum { MAX_SESSIONS = 320 };
static _Atomic(ag_session *) sessions[MAX_SESSIONS];

static _Atomic(void (*)(void)) restore;

void interrupt_set_restore(void (*callback)(void)) { atomic_store(&restore, callback); }

static void set_all(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler};
    /* No SA_RESTART: a signal must end a read of standard input. */
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < N_SIGNALS; i++)
        if (installed[i]) sigaction(numbers[i], &action, NULL);
}

static void on_signal(int number) {
    const int before = errno; /* errno of the interrupted code */
    caught = number;
    set_all(SIG_DFL);
    /* Both the shell and the closing terminal may send SIGHUP. */
    if (number == SIGHUP) signal(SIGHUP, SIG_IGN);
    void (*callback)(void) = atomic_load(&restore);
    if (callback) callback();
    static const char notice[] = "\nstopping ...\n";
    if (announces && write(STDERR_FILENO, notice, sizeof notice - 1) < 0) announces = false;
    for (size_t i = 0; i < MAX_SESSIONS; i++) {
        ag_session *s = atomic_load(&sessions[i]);
        if (s) ag_session_cancel(s);
    }
    errno = before;
}

static void replace(ag_session *from, ag_session *to) {
    for (size_t i = 0; i < MAX_SESSIONS; i++) {
        ag_session *expected = from;
        if (atomic_compare_exchange_strong(&sessions[i], &expected, to)) return;
    }
}

void interrupt_register(ag_session *s) {
    if (s) replace(NULL, s);
}

void interrupt_unregister(ag_session *s) {
    if (s) replace(s, NULL);
}

void interrupt_install(void) {
    for (size_t i = 0; i < N_SIGNALS; i++) {
        struct sigaction before;
        /* nohup and shells in the background ignore signals; keep that. */
        sigaction(numbers[i], NULL, &before);
        installed[i] = before.sa_handler != SIG_IGN;
    }
    announces = terminal_shows_progress();
    set_all(on_signal);
}

bool interrupt_pause(void) {
    if (!caught) set_all(SIG_DFL);
    return !caught;
}

void interrupt_resume(void) {
    if (!caught) set_all(on_signal);
}

void interrupt_silence(void) { announces = false; }

bool interrupt_forget(void) {
    if (caught != SIGINT) return false;
    caught = 0;
    set_all(on_signal);
    return true;
}

bool interrupted(void) { return caught != 0; }

int interrupt_exit_code(int code) {
    return code == EXIT_INTERRUPTED && caught ? 128 + (int)caught : code;
}
