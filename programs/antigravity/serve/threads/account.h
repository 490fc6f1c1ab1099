/* SPDX-License-Identifier: Apache-2.0 */
/* Accounts: count and limit the memory and the time of a request.
 *
 * Every allocation of a thread is charged to its current account: the program's, the library's,
 * jansson's and libevent's. A header before each block names its account, so any thread can free
 * it. Accounts take memory from their pool in units of ACCOUNT_STEP bytes. A thread books small
 * blocks late: an account lacks at most 4 KiB for each thread that has entered it. */
#ifndef ANTIGRAVITY_SERVE_THREADS_ACCOUNT_H
#define ANTIGRAVITY_SERVE_THREADS_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { ACCOUNT_STEP = 64 << 10 };

/* Memory shared by all accounts. Initialise with {.limit = BYTES}. */
typedef struct account_pool {
    size_t limit;           /* bytes */
    atomic_size_t taken;    /* bytes that accounts have taken, used or not */
    atomic_size_t resident; /* bytes that are in use and certainly resident */
    atomic_size_t others;   /* bytes outside of accounts that count against the limit */
    /* accounts whose blocks another thread frees: an account that finds no memory waits for them */
    atomic_size_t n_freeing;
    atomic_bool is_closing; /* ends all timed work */
} account_pool;

typedef struct account account;

/* Reason why an allocation failed or work must end. */
typedef enum account_failure {
    ACCOUNT_OK,
    ACCOUNT_TOO_LARGE, /* more than the pool can ever provide */
    ACCOUNT_BUSY,      /* other accounts use the memory */
    ACCOUNT_NO_MEMORY, /* malloc() failed */
    ACCOUNT_GONE,      /* account_cancel() */
    ACCOUNT_CPU_TIME,  /* the work exceeded its processor time */
    ACCOUNT_DEADLINE,  /* the deadline has passed */
    ACCOUNT_CLOSING,   /* the pool is closing */
} account_failure;

/* Makes the functions below the allocator of the library and of jansson. Must be called before
 * either allocates. */
void account_install(void);

/* Returns a new account, or NULL without memory. The pool must outlive the account. */
account *account_create(account_pool *pool);
/* Releases the caller's reference. The account is destroyed when it has no block and no thread is
 * in it. NULL is allowed. */
void account_release(account *a);
/* Makes `a` (NULL: none) the calling thread's account. Returns the previous one, to be restored:
 * the caller keeps a reference to it. A thread leaves its account before it ends. */
account *account_enter(account *a);
/* Reserves `bytes` beyond what the account uses, and returns other unused memory to the pool.
 * Memory of freed blocks stays with the account until this call, the end of work or its release. */
account_failure account_reserve(account *a, size_t bytes);
/* Returns the booked bytes of its blocks, headers included. Books those of the calling thread. */
size_t account_bytes(account *a);
/* Returns whether the account has more than 256 KiB, which take long to free. */
bool account_is_large(account *a);

/* Enters the account for work that may take long. Allocations fail and the library is interrupted
 * when the thread has used cpu_s seconds of processor time, the monotonic clock has passed
 * `deadline` (0: none), the account is cancelled or the pool is closing. */
void account_begin_work(account *a, double cpu_s, double deadline);
/* Sets an earlier deadline for the thread's work; a later one changes nothing. */
void account_limit_deadline(double deadline);
/* Returns whether the thread's work must end. For loops that do not allocate. */
bool account_must_end(void);
/* Leaves the account and returns its unused memory to the pool. Returns the reason why the work
 * failed, or ACCOUNT_OK. */
account_failure account_end_work(account *a);
/* After ACCOUNT_TOO_LARGE or ACCOUNT_BUSY: returns the bytes that the account would have needed. */
size_t account_needed(const account *a);
/* Ends the account's work. May be called from any thread. */
void account_cancel(account *a);

/* malloc(), calloc(), realloc(), free() and strdup(), charged to the thread's account. A resized
 * block stays on its own account. */
void *account_malloc(size_t bytes);
void *account_calloc(size_t n, size_t bytes);
void *account_realloc(void *p, size_t bytes);
void account_free(void *p);
char *account_strdup(const char *s);

#endif
