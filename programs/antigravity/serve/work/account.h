/* SPDX-License-Identifier: Apache-2.0 */
/* Accounts: the memory and the time that a request takes, counted and limited.
 *
 * Every allocation that a thread makes while an account is current is charged to it: our own, the
 * library's, jansson's and libevent's. A header before each block names its account, so that any
 * thread can free it. Accounts take memory from their pool, ACCOUNT_STEP bytes at a time. */
#ifndef ANTIGRAVITY_SERVE_WORK_ACCOUNT_H
#define ANTIGRAVITY_SERVE_WORK_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { ACCOUNT_STEP = 64 << 10 };

/* Memory shared by all accounts. Initialise with {.limit = BYTES}. */
typedef struct account_pool {
    size_t limit;           /* bytes */
    atomic_size_t taken;    /* bytes that accounts have taken, used or not */
    atomic_size_t resident; /* bytes of them that are in use and certainly resident */
    atomic_size_t others;   /* bytes that are not on accounts, but count against the limit */
    atomic_bool is_closing; /* ends all timed work */
} account_pool;

typedef struct account account;

/* Why an allocation on an account failed, or its work had to end. */
typedef enum account_failure {
    ACCOUNT_OK,
    ACCOUNT_TOO_LARGE, /* it needs more than the pool could ever give it */
    ACCOUNT_BUSY,      /* other accounts hold the memory */
    ACCOUNT_NO_MEMORY, /* the system has none */
    ACCOUNT_GONE,      /* account_cancel() */
    ACCOUNT_CPU_TIME,  /* the work took more processor time than it may */
    ACCOUNT_DEADLINE,  /* the request's time is over */
    ACCOUNT_CLOSING,   /* the pool is closing */
} account_failure;

/* Makes the functions below the allocator of the library and of jansson. Must be called before
 * either has allocated. */
void account_install(void);

/* NULL: out of memory. The pool must outlive the account. */
account *account_create(account_pool *pool);
/* Gives up the caller's hold. The account is destroyed with its last block. NULL is fine. */
void account_release(account *a);
/* Makes `a` (NULL: none) the calling thread's account; returns the one before, to be entered again.
 */
account *account_enter(account *a);
/* Keeps memory for `bytes` more than the account uses, and gives the pool back what it has beyond
 * that: an account keeps what its freed blocks took until this is called, or it is released. */
account_failure account_reserve(account *a, size_t bytes);
/* Bytes of its blocks, with headers. */
size_t account_bytes(account *a);

/* Enters the account for work that may be long. From now on allocations fail, and the library is
 * interrupted, once the thread has used cpu_s seconds of processor time, the monotonic clock has
 * passed `deadline` (0: none), the account is cancelled or the pool is closing. */
void account_begin_work(account *a, double cpu_s, double deadline);
/* Returns true once the work must end; for loops that do not allocate. */
bool account_must_end(void);
/* Leaves the account. Returns why the work failed, or ACCOUNT_OK. */
account_failure account_end_work(account *a);
/* After ACCOUNT_TOO_LARGE or ACCOUNT_BUSY: the bytes that the account would have taken. */
size_t account_needed(const account *a);
/* Ends the account's work; any thread may call it. */
void account_cancel(account *a);

/* malloc(), calloc(), realloc(), free() and strdup(), charged to the thread's account. A block that
 * is resized stays on its own account. */
void *account_malloc(size_t bytes);
void *account_calloc(size_t n, size_t bytes);
void *account_realloc(void *p, size_t bytes);
void account_free(void *p);
char *account_strdup(const char *s);

#endif
