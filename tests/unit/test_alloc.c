/* SPDX-License-Identifier: Apache-2.0 */
#include "core/alloc.h"
#include "core/interrupt.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void aligned_blocks_are_aligned_and_usable(void **state) {
    (void)state;
    for (size_t n = 1; n < 300; n += 7) {
        unsigned char *p = ag_aligned_alloc(n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 0xa5, n);
        ag_aligned_free(p);
    }
}

static void fails_if_the_product_of_sizes_overflows(void **state) {
    (void)state;
    assert_null(ag_calloc(SIZE_MAX / 2, 3));
    assert_null(ag_aligned_alloc(SIZE_MAX - 8));
}

static void *refuse(void *user, size_t bytes) {
    (void)user, (void)bytes;
    return NULL;
}

static void calls_a_replaced_allocator(void **state) {
    (void)state;
    ag_set_allocator(&(ag_allocator){.alloc = refuse});
    size_t before = ag_allocation_count();
    assert_null(ag_malloc(8));
    assert_null(ag_strdup("text"));
    assert_int_equal(ag_allocation_count() - before, 2);
    ag_set_allocator(NULL);
    char *s = ag_strdup("text");
    assert_string_equal(s, "text");
    ag_free(s);
}

static bool is_set(void *user) { return *(bool *)user; }

static void *ask_in_thread(void *user) {
    *(bool *)user = ag_interrupted();
    return NULL;
}

static void interrupt_affects_only_its_thread(void **state) {
    (void)state;
    bool stop = false, other = true;
    pthread_t thread;
    assert_false(ag_interrupted());
    ag_set_thread_interrupt(is_set, &stop);
    assert_false(ag_interrupted());
    stop = true;
    assert_true(ag_interrupted());
    assert_int_equal(pthread_create(&thread, NULL, ask_in_thread, &other), 0);
    pthread_join(thread, NULL);
    assert_false(other);
    ag_set_thread_interrupt(NULL, NULL);
    assert_false(ag_interrupted());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aligned_blocks_are_aligned_and_usable),
        cmocka_unit_test(fails_if_the_product_of_sizes_overflows),
        cmocka_unit_test(calls_a_replaced_allocator),
        cmocka_unit_test(interrupt_affects_only_its_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
