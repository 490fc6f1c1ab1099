/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, mutexes and condition variables. Initialising and locking a mutex cannot fail here. */
#ifndef AG_PLATFORM_THREAD_H
#define AG_PLATFORM_THREAD_H

#include <pthread.h>
#include <stdbool.h>

typedef struct ag_mutex {
    pthread_mutex_t os;
} ag_mutex;

/* Waits with a time limit use a clock that the user cannot set. */
typedef struct ag_condition {
    pthread_cond_t os;
} ag_condition;

typedef struct ag_os_thread {
    pthread_t os;
} ag_os_thread;

typedef struct ag_once {
    pthread_once_t os;
} ag_once;
#define AG_ONCE_INIT \
    { PTHREAD_ONCE_INIT }

static inline void ag_mutex_init(ag_mutex *m) { pthread_mutex_init(&m->os, NULL); }
static inline void ag_mutex_destroy(ag_mutex *m) { pthread_mutex_destroy(&m->os); }
static inline void ag_mutex_lock(ag_mutex *m) { pthread_mutex_lock(&m->os); }
static inline void ag_mutex_unlock(ag_mutex *m) { pthread_mutex_unlock(&m->os); }

void ag_condition_init(ag_condition *c);
static inline void ag_condition_destroy(ag_condition *c) { pthread_cond_destroy(&c->os); }
static inline void ag_condition_signal(ag_condition *c) { pthread_cond_signal(&c->os); }
static inline void ag_condition_broadcast(ag_condition *c) { pthread_cond_broadcast(&c->os); }
/* Releases the mutex while it waits. May return without a signal: call it in a loop. */
static inline void ag_condition_wait(ag_condition *c, ag_mutex *m) {
    pthread_cond_wait(&c->os, &m->os);
}
/* The same for at most `seconds`, up to INFINITY. Returns false if the time is over. */
bool ag_condition_wait_for(ag_condition *c, ag_mutex *m, double seconds);

/* Starts a thread that runs main(user). Returns 0, or an errno value. The thread receives only the
 * signals that its own instructions raise (SIGBUS, SIGFPE, SIGILL, SIGSEGV): all others go to the
 * threads of the program. */
int ag_os_thread_start(ag_os_thread *t, void *(*main)(void *user), void *user);
/* Waits until the thread ends. Every thread that was started must be joined once. */
static inline void ag_os_thread_join(ag_os_thread *t) { pthread_join(t->os, NULL); }

/* Lowers the priority of the calling thread, and of threads that it starts: on busy cores they get
 * about a tenth of the time. Does nothing where priorities belong to processes. */
void ag_os_thread_lower_priority(void);

static inline ag_os_thread ag_os_thread_current(void) { return (ag_os_thread){pthread_self()}; }
static inline bool ag_os_thread_is_current(const ag_os_thread *t) {
    return pthread_equal(t->os, pthread_self());
}

/* Calls fn on the first call for *once in the process. Returns after fn has returned. */
static inline void ag_call_once(ag_once *once, void (*fn)(void)) { pthread_once(&once->os, fn); }

#endif
