/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of accounts: what is charged, what fails, and when work must end. */
#include "../support/sanitized.h"
#include "serve/threads/account.h"

#include <antigravity/chat.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MIB = 1 << 20 };

static int set_up(void **state) {
    (void)state;
    account_install();
    return 0;
}

static void charges_blocks_to_the_current_account(void **state) {
    (void)state;
    account_pool pool = {.limit = MIB};
    account *a = account_create(&pool);
    void *outside = account_malloc(1000);
    assert_int_equal(account_bytes(a), 0);
    assert_null(account_enter(a));
    char *p = account_malloc(1000), *s = account_strdup("text");
    const size_t charged = account_bytes(a);
    assert_true(charged >= 1000 + 5 && charged < 1200);
    json_t *v = json_pack("[s, i]", "text", 1);
    assert_true(account_bytes(a) > charged);
    json_decref(v);
    assert_int_equal(account_bytes(a), charged);
    assert_ptr_equal(account_enter(NULL), a);
    assert_int_equal(pool.taken, ACCOUNT_STEP);
    /* A block stays on its account, whichever account is current. */
    p = account_realloc(p, 5000);
    assert_true(account_bytes(a) >= charged + 4000);
    account_free(p);
    account_free(s);
    account_free(outside);
    assert_int_equal(account_bytes(a), 0);
    account_release(a);
    assert_int_equal(pool.taken, 0);
    assert_int_equal(pool.resident, 0);
}

static void counts_at_least_what_malloc_occupies(void **state) {
    (void)state;
    account_pool pool = {.limit = 64 * MIB};
    account *a = account_create(&pool);
    static void *blocks[20000];
    account_enter(a);
    for (size_t i = 0; i < 20000; i++) {
        blocks[i] = account_calloc(1, i % 97);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % 16, 0);
    }
    /* The header has 16 bytes and malloc() takes 8, rounded up to 16. */
    assert_true(account_bytes(a) >= 20000 * (48 + 16 + 8));
    assert_in_range(pool.taken, account_bytes(a), account_bytes(a) + ACCOUNT_STEP);
    assert_in_range(pool.resident, account_bytes(a) - 16384, account_bytes(a));
    for (size_t i = 0; i < 20000; i++) account_free(blocks[i]);
    account_enter(NULL);
    account_release(a);
    assert_int_equal(pool.taken, 0);
}

static void does_not_count_large_blocks_as_resident(void **state) {
    (void)state;
#if SANITIZED
    skip(); /* all blocks come from malloc() in this build */
#endif
    account_pool pool = {.limit = 8 * MIB};
    account *a = account_create(&pool);
    account_enter(a);
    void *p = account_malloc(2 * MIB);
    assert_true(pool.taken >= 2 * MIB);
    assert_int_equal(pool.resident, 0);
    p = account_realloc(p, 4 * MIB);
    assert_true(pool.taken >= 4 * MIB && pool.taken < 5 * MIB);
    account_free(p);
    account_enter(NULL);
    account_release(a);
    assert_int_equal(pool.taken, 0);
}

static void fails_beyond_the_limit_with_a_reason(void **state) {
    (void)state;
    account_pool pool = {.limit = 8 * MIB};
    account *a = account_create(&pool), *b = account_create(&pool);
    account_begin_work(a, 100, 0);
    assert_null(account_malloc(8 * MIB)); /* an eighth is for small accounts */
    assert_null(account_malloc(10));      /* a failure lasts until the end of the work */
    assert_int_equal(account_end_work(a), ACCOUNT_TOO_LARGE);
    assert_true(account_needed(a) >= 8 * MIB);
    account_begin_work(a, 100, 0);
    void *most = account_malloc(6 * MIB);
    assert_non_null(most);
    assert_int_equal(account_end_work(a), ACCOUNT_OK);
    account_begin_work(b, 100, 0);
    assert_null(account_malloc(3 * MIB));
    assert_int_equal(account_end_work(b), ACCOUNT_BUSY);
    account_begin_work(b, 100, 0);
    void *small = account_malloc(100000); /* fits into the last eighth */
    assert_non_null(small);
    assert_int_equal(account_end_work(b), ACCOUNT_OK);
    account_free(most);
    account_free(small);
    account_release(a);
    account_release(b);
    assert_int_equal(pool.taken, 0);
}

typedef struct freeing {
    account *of;
    void *block;
    account_pool *pool;
} freeing;

static void *free_later(void *arg) {
    freeing *f = arg;
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    account_free(f->block);
    account_release(f->of);
    atomic_fetch_sub(&f->pool->n_freeing, 1);
    return NULL;
}

static void waits_for_memory_that_is_being_freed(void **state) {
    (void)state;
    account_pool pool = {.limit = 8 * MIB};
    account *a = account_create(&pool), *b = account_create(&pool);
    account_begin_work(a, 100, 0);
    freeing f = {.of = a, .block = account_malloc(6 * MIB), .pool = &pool};
    assert_non_null(f.block);
    assert_int_equal(account_end_work(a), ACCOUNT_OK);
    atomic_store(&pool.n_freeing, 1);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_later, &f), 0);
    account_begin_work(b, 100, 0);
    void *block = account_malloc(3 * MIB);
    assert_non_null(block);
    assert_int_equal(account_end_work(b), ACCOUNT_OK);
    pthread_join(thread, NULL);
    account_free(block);
    account_release(b);
    assert_int_equal(pool.taken, 0);
}

static void counts_memory_outside_of_accounts(void **state) {
    (void)state;
    account_pool pool = {.limit = 8 * MIB, .others = 7 * MIB};
    account *a = account_create(&pool);
    account_begin_work(a, 100, 0);
    assert_null(account_malloc(2 * MIB));
    assert_int_equal(account_end_work(a), ACCOUNT_TOO_LARGE);
    account_release(a);
}

static void reserves_memory_for_later_blocks(void **state) {
    (void)state;
    account_pool pool = {.limit = 8 * MIB};
    account *a = account_create(&pool), *b = account_create(&pool);
    assert_int_equal(account_reserve(a, 6 * MIB), ACCOUNT_OK);
    assert_int_equal(account_reserve(b, 2 * MIB), ACCOUNT_BUSY);
    account_enter(a);
    void *p = account_malloc(5 * MIB);
    assert_non_null(p);
    account_free(p);
    account_enter(NULL);
    assert_int_equal(pool.taken, 6 * MIB);
    assert_int_equal(pool.resident, 0);
    account_release(a);
    account_release(b);
    assert_int_equal(pool.taken, 0);
}

/* The allocator retains the pages of freed blocks, so other accounts cannot have them yet. */
static void retains_freed_memory_until_reserve(void **state) {
    (void)state;
    account_pool pool = {.limit = 8 * MIB};
    account *a = account_create(&pool);
    account_enter(a);
    void *p = account_malloc(3 * MIB), *q = account_malloc(100);
    account_free(p);
    assert_true(pool.taken >= 3 * MIB);
    assert_int_equal(account_reserve(a, 0), ACCOUNT_OK);
    assert_int_equal(pool.taken, ACCOUNT_STEP);
    account_free(q);
    account_enter(NULL);
    account_release(a);
    assert_int_equal(pool.taken, 0);
}

static void *free_in_thread(void *p) {
    account_free(p);
    return NULL;
}

static void lives_until_its_last_block_is_freed(void **state) {
    (void)state;
    account_pool pool = {.limit = MIB};
    account *a = account_create(&pool);
    account_enter(a);
    void *p = account_malloc(100);
    account_enter(NULL);
    account_release(a);
    assert_int_equal(pool.taken, ACCOUNT_STEP);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_in_thread, p), 0);
    pthread_join(thread, NULL);
    assert_int_equal(pool.taken, 0);
}

static void lives_while_a_thread_is_in_it(void **state) {
    (void)state;
    account_pool pool = {.limit = MIB};
    account *a = account_create(&pool);
    account_enter(a);
    account_release(a);
    void *p = account_malloc(100);
    assert_int_equal(account_bytes(a), 128);
    account_enter(NULL);
    assert_int_equal(pool.taken, ACCOUNT_STEP);
    account_free(p);
    assert_int_equal(pool.taken, 0);
}

static void books_blocks_that_another_thread_frees(void **state) {
    (void)state;
    account_pool pool = {.limit = MIB};
    account *a = account_create(&pool);
    account_enter(a);
    void *p = account_malloc(100); /* booked when the thread leaves */
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_in_thread, p), 0);
    pthread_join(thread, NULL);
    void *q = account_malloc(100);
    account_enter(NULL);
    assert_int_equal(account_bytes(a), 128);
    account_free(q);
    account_release(a);
    assert_int_equal(pool.taken, 0);
    assert_int_equal(pool.resident, 0);
}

static void small_blocks_obey_the_limit(void **state) {
    (void)state;
    account_pool pool = {.limit = MIB};
    account *a = account_create(&pool);
    void *last = NULL;
    size_t n = 0;
    account_begin_work(a, 100, 0);
    for (void **p; (p = account_malloc(64)); last = p, n++) *p = last;
    /* Each occupies 96 bytes, and an eighth of the pool is for small accounts. */
    assert_in_range(n * 96, MIB / 8 * 7 - 2 * 4096, MIB / 8 * 7 + 4096);
    assert_int_equal(account_end_work(a), ACCOUNT_TOO_LARGE);
    while (last) {
        void *next = *(void **)last;
        account_free(last);
        last = next;
    }
    account_release(a);
    assert_int_equal(pool.taken, 0);
}

static void short_stays_obey_the_limit(void **state) {
    (void)state;
    account_pool pool = {.limit = MIB};
    account *a = account_create(&pool);
    static void *blocks[20000];
    size_t n = 0;
    for (; n < 20000; n++) {
        account_enter(a);
        blocks[n] = account_malloc(64);
        account_enter(NULL);
        if (!blocks[n]) break;
    }
    assert_in_range(n * 96, MIB / 8 * 7 - 2 * 4096, MIB / 8 * 7);
    assert_in_range(pool.taken, n * 96, MIB);
    while (n > 0) account_free(blocks[--n]);
    account_release(a);
    assert_int_equal(pool.taken, 0);
}

static void ends_cancelled_work(void **state) {
    (void)state;
    account_pool pool = {.limit = MIB};
    account *a = account_create(&pool);
    account_begin_work(a, 100, 0);
    void *p = account_malloc(10);
    assert_non_null(p);
    assert_false(account_must_end());
    account_cancel(a);
    assert_null(account_malloc(10));
    assert_true(account_must_end());
    account_free(p);
    assert_int_equal(account_end_work(a), ACCOUNT_GONE);
    account_release(a);
}

static void ends_work_when_the_pool_closes(void **state) {
    (void)state;
    account_pool pool = {.limit = MIB};
    account *a = account_create(&pool);
    account_begin_work(a, 100, 0);
    atomic_store(&pool.is_closing, true);
    assert_null(account_malloc(10));
    assert_int_equal(account_end_work(a), ACCOUNT_CLOSING);
    account_release(a);
}

static void ends_work_beyond_its_processor_time(void **state) {
    (void)state;
    account_pool pool = {.limit = MIB};
    account *a = account_create(&pool);
    account_begin_work(a, 0.02, 0);
    size_t n = 0;
    for (void *p; (p = account_malloc(10)) != NULL; n++) account_free(p);
    assert_true(n > 10);
    assert_int_equal(account_end_work(a), ACCOUNT_CPU_TIME);
    account_begin_work(a, 100, 1e-9); /* a deadline in the past */
    while (!account_must_end()) {}
    assert_int_equal(account_end_work(a), ACCOUNT_DEADLINE);
    account_release(a);
}

/* The library checks the account during long work. */
static void interrupts_the_library(void **state) {
    (void)state;
    ag_error err;
    ag_tokenizer *t;
    ag_ids ids = {0};
    account_pool pool = {.limit = 64 * MIB};
    account *a = account_create(&pool);
    assert_int_equal(ag_tokenizer_load(AG_SOURCE_DIR "/models/demo", &t, &err), AG_OK);
    enum { N = 4 * MIB };
    char *text = malloc(N);
    for (size_t i = 0; i < N; i++) text[i] = (char)(i % 7 ? 'a' + i % 26 : ' ');
    account_begin_work(a, 0.01, 0);
    const ag_status st = ag_tokenizer_encode(t, text, N, 0, &ids, &err);
    assert_int_equal(account_end_work(a), ACCOUNT_CPU_TIME);
    assert_true(st == AG_CANCELLED || st == AG_NOMEM);
    ag_ids_free(&ids);
    free(text);
    ag_tokenizer_destroy(t);
    account_release(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(charges_blocks_to_the_current_account),
        cmocka_unit_test(counts_at_least_what_malloc_occupies),
        cmocka_unit_test(does_not_count_large_blocks_as_resident),
        cmocka_unit_test(fails_beyond_the_limit_with_a_reason),
        cmocka_unit_test(waits_for_memory_that_is_being_freed),
        cmocka_unit_test(counts_memory_outside_of_accounts),
        cmocka_unit_test(reserves_memory_for_later_blocks),
        cmocka_unit_test(retains_freed_memory_until_reserve),
        cmocka_unit_test(lives_until_its_last_block_is_freed),
        cmocka_unit_test(lives_while_a_thread_is_in_it),
        cmocka_unit_test(books_blocks_that_another_thread_frees),
        cmocka_unit_test(small_blocks_obey_the_limit),
        cmocka_unit_test(short_stays_obey_the_limit),
        cmocka_unit_test(ends_cancelled_work),
        cmocka_unit_test(ends_work_when_the_pool_closes),
        cmocka_unit_test(ends_work_beyond_its_processor_time),
        cmocka_unit_test(interrupts_the_library),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
