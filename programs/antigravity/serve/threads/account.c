/* SPDX-License-Identifier: Apache-2.0 */
#include "account.h"

#include "../system.h"

#include <antigravity/alloc.h>
#include <antigravity/interrupt.h>
#include <jansson.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    CHECK_INTERVAL = 64,   /* allocations between two checks of the clocks */
    SMALL = 256 << 10,     /* accounts up to this many bytes may use the entire pool */
    SMALL_SHARE = 8,       /* 1/8 of the pool is for accounts of at most SMALL bytes */
    OWN_PAGES = 128 << 10, /* a block of at least this many bytes gets its own pages */
    PAGE = 4096,           /* bytes, minimum */
    BATCH = 4096,          /* maximum of bytes that a thread has not booked */
    RESIDENT_STEP = 16384, /* bytes between two updates of pool->resident */
    FREEING_MS = 200,      /* maximum wait for memory that another thread frees */
};

/* Size that stands for a block that does not exist. */
static const size_t NONE = SIZE_MAX;

struct account {
    account_pool *pool;
    pthread_mutex_t lock;
    /* Guarded by the lock, down to `failure`. */
    ptrdiff_t heap;      /* booked bytes of blocks from malloc(); may be negative */
    ptrdiff_t heap_peak; /* maximum since the heap was trimmed: malloc() keeps freed pages */
    size_t mapped;       /* bytes of blocks with their own pages, which need not be resident */
    size_t resident;     /* part of `heap` that pool->resident includes */
    size_t taken, needed;
    unsigned n_inside; /* threads whose current account it is; only they have bytes to book */
    bool is_released;
    account_failure failure;
    atomic_bool is_cancelled;
};

/* Header before each block. */
typedef struct block {
    _Alignas(16) account *owner; /* NULL: none */
    size_t bytes;                /* requested size */
} block;

/* Account of the calling thread, and limits of its work. */
static _Thread_local struct {
    account *account;
    ptrdiff_t unbooked; /* bytes for `heap` of the account */
    ptrdiff_t room;     /* maximum of these: the account has taken this memory */
    bool is_timed;
    double cpu_end, deadline;
    double next_cpu_check; /* time of the next check of the processor time, a system call */
    unsigned until_check;  /* allocations until the next check */
} current;

/* ---- blocks of the system ---- */

static bool has_own_pages(size_t bytes) {
    return SYSTEM_HAS_PAGES && bytes >= OWN_PAGES && bytes != NONE;
}

static size_t page_bytes(size_t bytes) { return (bytes + sizeof(block) + PAGE - 1) / PAGE * PAGE; }

/* Bytes that malloc() occupies for a block. */
static ptrdiff_t heap_cost(size_t bytes) {
    const size_t n = bytes + sizeof(block) + sizeof(size_t);
    if (bytes == NONE || has_own_pages(bytes)) return 0;
    return n < 32 ? 32 : (ptrdiff_t)((n + 15) / 16 * 16);
}

static size_t mapped_cost(size_t bytes) { return has_own_pages(bytes) ? page_bytes(bytes) : 0; }

static block *block_alloc(size_t bytes, bool zeroed) {
    if (has_own_pages(bytes)) return system_map_pages(page_bytes(bytes));
    return zeroed ? calloc(1, sizeof(block) + bytes) : malloc(sizeof(block) + bytes);
}

static void block_free(block *b) {
    if (has_own_pages(b->bytes)) system_unmap_pages(b, page_bytes(b->bytes));
    else free(b);
}

/* Returns NULL without memory; b is unchanged then. */
static block *block_resize(block *b, size_t bytes) {
    const bool had_pages = has_own_pages(b->bytes), gets_pages = has_own_pages(bytes);
    if (had_pages && gets_pages)
        return system_remap_pages(b, page_bytes(b->bytes), page_bytes(bytes));
    if (!had_pages && !gets_pages) return realloc(b, sizeof *b + bytes);
    block *other = block_alloc(bytes, false);
    if (!other) return NULL;
    memcpy(other, b, sizeof *b + (bytes < b->bytes ? bytes : b->bytes));
    block_free(b);
    return other;
}

/* ---- the pool ---- */

static size_t round_up(size_t bytes) {
    return (bytes + ACCOUNT_STEP - 1) / ACCOUNT_STEP * ACCOUNT_STEP;
}

static size_t limit_for(const account_pool *p, size_t taken) {
    return taken > SMALL ? p->limit - p->limit / SMALL_SHARE : p->limit;
}

/* Takes memory from the pool until the account has `taken` bytes, unless others use it. taken must
 * not be below a->taken. */
static account_failure try_pool(account *a, size_t taken) {
    account_pool *p = a->pool;
    const size_t limit = limit_for(p, taken), added = taken - a->taken;
    const size_t others = atomic_load(&p->others);
    if (taken + others > limit) return ACCOUNT_TOO_LARGE;
    size_t all = atomic_load(&p->taken);
    do {
        if (all + others + added > limit) return ACCOUNT_BUSY;
    } while (!atomic_compare_exchange_weak(&p->taken, &all, all + added));
    a->taken = taken;
    return ACCOUNT_OK;
}

/* The same, but waits for memory that is being freed: a client that sends its requests one after
 * the other has returned the memory of the last one. */
static account_failure take_from_pool(account *a, size_t taken) {
    static const struct timespec ms = {.tv_nsec = 1000000};
    account_failure failure = try_pool(a, taken);
    for (int i = 0; failure == ACCOUNT_BUSY && i < FREEING_MS; i++) {
        const bool may_help = atomic_load(&a->pool->n_freeing) > 0;
        if (may_help) nanosleep(&ms, NULL);
        failure = try_pool(a, taken);
        if (!may_help) break;
    }
    return failure;
}

/* Returns the pages of freed blocks to the system. */
static void trim_heap(account *a) {
    enum { WORTH_TRIMMING = 1 << 20 };
    if (a->heap_peak - a->heap >= WORTH_TRIMMING) system_trim_heap();
    a->heap_peak = a->heap;
}

static size_t used_bytes(ptrdiff_t heap, size_t mapped) {
    return (heap > 0 ? (size_t)heap : 0) + mapped;
}

/* Returns unused memory of the account to the pool. */
static void return_unused(account *a) {
    trim_heap(a);
    const size_t used = round_up(used_bytes(a->heap, a->mapped));
    if (a->taken <= used) return;
    atomic_fetch_sub(&a->pool->taken, a->taken - used);
    a->taken = used;
}

/* ---- charges ---- */

static void set_failure(account *a, account_failure failure, size_t needed) {
    pthread_mutex_lock(&a->lock);
    if (a->failure == ACCOUNT_OK) {
        a->failure = failure;
        a->needed = needed;
    }
    pthread_mutex_unlock(&a->lock);
}

static void update_resident(account *a) {
    const size_t resident = used_bytes(a->heap, 0) / RESIDENT_STEP * RESIDENT_STEP;
    if (resident == a->resident) return;
    atomic_fetch_add(&a->pool->resident, resident - a->resident);
    a->resident = resident;
}

/* Moves what the thread has not booked to the account. */
static void book(account *a) {
    if (a != current.account || !current.unbooked) return;
    a->heap += current.unbooked;
    current.unbooked = 0;
    update_resident(a);
}

/* Sets how much the thread may allocate before it asks for more. */
static void set_room(const account *a) {
    if (a != current.account) return;
    const ptrdiff_t room = (ptrdiff_t)(a->taken - a->mapped) - a->heap;
    current.room = room < 0 ? 0 : room < BATCH ? room : BATCH;
}

/* Takes what the account has too little, even if the pool has less. That happens if threads used
 * the same room: at most BATCH for each. */
static void take_missing(account *a) {
    const size_t used = used_bytes(a->heap, a->mapped);
    if (used <= a->taken) return;
    atomic_fetch_add(&a->pool->taken, used - a->taken);
    a->taken = used;
}

/* Takes the memory that blocks of `heap` and `mapped` bytes need. If the pool has too little, trims
 * the heap and tries again. */
static account_failure ensure_taken(account *a, ptrdiff_t heap, size_t mapped) {
    for (bool is_trimmed = false;; is_trimmed = true) {
        const ptrdiff_t peak = heap > a->heap_peak ? heap : a->heap_peak;
        const size_t used = used_bytes(peak, mapped);
        const account_failure failure =
            used > a->taken ? take_from_pool(a, round_up(used)) : ACCOUNT_OK;
        if (failure == ACCOUNT_OK) a->heap_peak = peak;
        if (failure == ACCOUNT_OK || is_trimmed || peak == heap) return failure;
        trim_heap(a);
    }
}

/* Replaces the charge of a block of `old` bytes by one of `bytes`; either may be NONE. The lock
 * must be held. */
static bool replace_charge(account *a, size_t old, size_t bytes) {
    const ptrdiff_t heap = a->heap - heap_cost(old) + heap_cost(bytes);
    const size_t mapped = a->mapped - mapped_cost(old) + mapped_cost(bytes);
    const account_failure failure = bytes == NONE ? ACCOUNT_OK : ensure_taken(a, heap, mapped);
    if (failure != ACCOUNT_OK) {
        if (a->failure == ACCOUNT_OK) {
            a->failure = failure;
            a->needed = used_bytes(heap, mapped);
        }
        return false;
    }
    a->heap = heap;
    a->mapped = mapped;
    update_resident(a);
    return true;
}

/* Returns whether the account has no owner, no block and no thread that might have one to book. */
static bool is_unused(const account *a) {
    return a->is_released && !a->n_inside && !a->heap && !a->mapped;
}

static void destroy(account *a) {
    return_unused(a);
    pthread_mutex_destroy(&a->lock);
    free(a);
}

/* Adds a change to the thread's unbooked bytes, if these stay few. Most blocks need no lock then.
 */
static bool postpone(const account *a, size_t old, size_t bytes) {
    if (a != current.account || has_own_pages(old) || has_own_pages(bytes)) return false;
    const ptrdiff_t unbooked = current.unbooked - heap_cost(old) + heap_cost(bytes);
    if (unbooked > current.room || unbooked < -BATCH) return false;
    current.unbooked = unbooked;
    return true;
}

/* Replaces a charge, with the lock. Fails without memory and changes nothing. Destroys a released
 * account with its last block. */
static bool charge(account *a, size_t old, size_t bytes) {
    if (postpone(a, old, bytes)) return true;
    pthread_mutex_lock(&a->lock);
    book(a);
    const bool ok = replace_charge(a, old, bytes);
    set_room(a);
    const bool is_last = is_unused(a);
    pthread_mutex_unlock(&a->lock);
    if (is_last) destroy(a);
    return ok;
}

/* Makes `a` the thread's account. */
static void change_account(account *a) {
    account *before = current.account;
    bool is_last = false;
    if (a == before) return;
    if (before) {
        pthread_mutex_lock(&before->lock);
        book(before);
        take_missing(before);
        before->n_inside--;
        is_last = is_unused(before);
        pthread_mutex_unlock(&before->lock);
    }
    if (is_last) destroy(before);
    current.account = a;
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    a->n_inside++;
    set_room(a);
    pthread_mutex_unlock(&a->lock);
}

/* ---- accounts ---- */

account *account_create(account_pool *pool) {
    account *a = calloc(1, sizeof *a);
    if (!a) return NULL;
    a->pool = pool;
    pthread_mutex_init(&a->lock, NULL);
    return a;
}

void account_release(account *a) {
    if (!a) return;
    pthread_mutex_lock(&a->lock);
    book(a);
    a->is_released = true;
    return_unused(a);
    set_room(a);
    const bool is_last = is_unused(a);
    pthread_mutex_unlock(&a->lock);
    if (is_last) destroy(a);
}

account *account_enter(account *a) {
    account *before = current.account;
    change_account(a);
    return before;
}

account_failure account_reserve(account *a, size_t bytes) {
    pthread_mutex_lock(&a->lock);
    book(a);
    return_unused(a);
    const size_t taken = round_up(used_bytes(a->heap, a->mapped) + bytes);
    const account_failure failure = take_from_pool(a, taken);
    if (failure != ACCOUNT_OK) a->needed = taken;
    set_room(a);
    pthread_mutex_unlock(&a->lock);
    return failure;
}

size_t account_bytes(account *a) {
    pthread_mutex_lock(&a->lock);
    book(a);
    set_room(a);
    const size_t n = used_bytes(a->heap, a->mapped);
    pthread_mutex_unlock(&a->lock);
    return n;
}

bool account_is_large(account *a) {
    pthread_mutex_lock(&a->lock);
    const bool is_large = a->taken > SMALL;
    pthread_mutex_unlock(&a->lock);
    return is_large;
}

size_t account_needed(const account *a) { return a->needed; }

/* ---- work ---- */

static double clock_seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns why the thread's work must end, without checking the clocks. */
static account_failure cancel_reason(const account *a) {
    if (atomic_load_explicit(&a->is_cancelled, memory_order_relaxed)) return ACCOUNT_GONE;
    if (atomic_load_explicit(&a->pool->is_closing, memory_order_relaxed)) return ACCOUNT_CLOSING;
    return ACCOUNT_OK;
}

static account_failure check_time(void) {
    static const double interval_s = 1e-3;
    const double now = clock_seconds(CLOCK_MONOTONIC);
    if (current.deadline > 0 && now > current.deadline) return ACCOUNT_DEADLINE;
    if (now < current.next_cpu_check) return ACCOUNT_OK;
    current.next_cpu_check = now + interval_s;
    return clock_seconds(CLOCK_THREAD_CPUTIME_ID) > current.cpu_end ? ACCOUNT_CPU_TIME : ACCOUNT_OK;
}

static bool must_end(bool check_clocks) {
    account *a = current.account;
    /* A failure lasts until the end of the work: a caller may have ignored it. */
    if (a->failure != ACCOUNT_OK) return true;
    account_failure failure = cancel_reason(a);
    if (failure == ACCOUNT_OK && check_clocks) failure = check_time();
    if (failure != ACCOUNT_OK) set_failure(a, failure, 0);
    return failure != ACCOUNT_OK;
}

bool account_must_end(void) { return current.account && current.is_timed && must_end(true); }

static bool interrupted(void *user) {
    (void)user;
    return account_must_end();
}

void account_begin_work(account *a, double cpu_s, double deadline) {
    a->failure = ACCOUNT_OK;
    a->needed = 0;
    change_account(a);
    current.is_timed = true;
    current.cpu_end = clock_seconds(CLOCK_THREAD_CPUTIME_ID) + cpu_s;
    current.deadline = deadline;
    current.next_cpu_check = 0;
    current.until_check = CHECK_INTERVAL;
    ag_set_thread_interrupt(interrupted, NULL);
}

void account_limit_deadline(double deadline) {
    if (current.deadline == 0 || deadline < current.deadline) current.deadline = deadline;
}

account_failure account_end_work(account *a) {
    current.is_timed = false;
    ag_set_thread_interrupt(NULL, NULL);
    change_account(NULL);
    pthread_mutex_lock(&a->lock);
    return_unused(a);
    const account_failure failure = a->failure;
    a->failure = ACCOUNT_OK;
    pthread_mutex_unlock(&a->lock);
    return failure;
}

void account_cancel(account *a) { atomic_store(&a->is_cancelled, true); }

/* ---- blocks ---- */

static bool may_allocate(size_t bytes) {
    if (bytes > SIZE_MAX / 2) return false;
    if (!current.is_timed || !current.account) return true;
    const bool check_now = --current.until_check == 0;
    if (check_now) current.until_check = CHECK_INTERVAL;
    return !must_end(check_now);
}

static void *allocate(size_t bytes, bool zeroed) {
    account *a = current.account;
    if (!may_allocate(bytes) || (a && !charge(a, NONE, bytes))) return NULL;
    block *b = block_alloc(bytes, zeroed);
    if (b) {
        *b = (block){.owner = a, .bytes = bytes};
        return b + 1;
    }
    if (a) set_failure(a, ACCOUNT_NO_MEMORY, bytes);
    if (a) charge(a, bytes, NONE);
    return NULL;
}

void *account_malloc(size_t bytes) { return allocate(bytes, false); }

void *account_calloc(size_t n, size_t bytes) {
    return bytes && n > SIZE_MAX / bytes ? NULL : allocate(n * bytes, true);
}

void *account_realloc(void *p, size_t bytes) {
    if (!p) return account_malloc(bytes);
    block *old = (block *)p - 1;
    account *a = old->owner;
    const size_t n_old = old->bytes;
    if (bytes > n_old && !may_allocate(bytes)) return NULL;
    if (a && !charge(a, n_old, bytes)) return NULL;
    block *b = block_resize(old, bytes);
    if (b) {
        b->bytes = bytes;
        return b + 1;
    }
    if (a) set_failure(a, ACCOUNT_NO_MEMORY, bytes);
    if (a) charge(a, bytes, n_old);
    return NULL;
}

void account_free(void *p) {
    if (!p) return;
    block *b = (block *)p - 1;
    account *a = b->owner;
    const size_t bytes = b->bytes;
    block_free(b);
    if (a) charge(a, bytes, NONE);
}

char *account_strdup(const char *s) {
    const size_t n = strlen(s) + 1;
    char *copy = account_malloc(n);
    if (copy) memcpy(copy, s, n);
    return copy;
}

/* ---- allocators of the library and jansson ---- */

static void *library_alloc(void *user, size_t bytes) {
    (void)user;
    return account_malloc(bytes);
}

static void *library_resize(void *user, void *p, size_t bytes) {
    (void)user;
    return account_realloc(p, bytes);
}

static void library_release(void *user, void *p) {
    (void)user;
    account_free(p);
}

void account_install(void) {
    const ag_allocator a = {library_alloc, library_resize, library_release, NULL};
    ag_set_allocator(&a);
    json_set_alloc_funcs(account_malloc, account_free);
}
