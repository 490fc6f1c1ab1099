/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/thread.h"

#include <math.h>
#include <signal.h>
#include <time.h>
#ifdef __linux__
#include <sys/resource.h>
#endif

enum { SECOND_NS = 1000000000, DAY_S = 86400 };

void ag_condition_init(ag_condition *c) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->os, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

bool ag_condition_wait_for(ag_condition *c, ag_mutex *m, double seconds) {
    struct timespec until;
    if (seconds <= 0) return false;
    if (seconds > DAY_S) return pthread_cond_wait(&c->os, &m->os) == 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    const double ns = (double)until.tv_nsec + 1e9 * (seconds - floor(seconds));
    until.tv_sec += (time_t)seconds + (ns >= SECOND_NS);
    until.tv_nsec = (long)(ns >= SECOND_NS ? ns - SECOND_NS : ns);
    return pthread_cond_timedwait(&c->os, &m->os, &until) == 0;
}

int ag_os_thread_start(ag_os_thread *t, void *(*main)(void *user), void *user) {
    sigset_t blocked, before;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGILL);
    sigdelset(&blocked, SIGSEGV);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    const int failure = pthread_create(&t->os, NULL, main, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failure;
}

void ag_os_thread_lower_priority(void) {
#ifdef __linux__ /* where the niceness of the calling "process" is that of the thread */
    enum { NICENESS = 10 };
    (void)setpriority(PRIO_PROCESS, 0, NICENESS);
#endif
}
