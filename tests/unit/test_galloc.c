/* SPDX-License-Identifier: Apache-2.0 */
#include "core/buffer_ops.h"
#include "memory/galloc.h"
#include "support/failing_allocator.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

static void counts_bytes_of_live_buffers(void **state) {
    (void)state;
    ag_memory *mem;
    assert_int_equal(ag_galloc_create(&mem, NULL), AG_OK);
    assert_int_equal(ag_memory_bytes_in_use(mem), 0);
    ag_buffer *a, *b, *c;
    assert_int_equal(ag_memory_alloc(mem, 100, AG_USAGE_SCRATCH, &a, NULL), AG_OK);
    assert_int_equal(ag_memory_alloc(mem, 5000, AG_USAGE_WEIGHTS, &b, NULL), AG_OK);
    assert_int_equal(ag_memory_alloc(mem, 70000, AG_USAGE_KV, &c, NULL), AG_OK);
    assert_int_equal(ag_memory_bytes_in_use(mem),
                     5100); /* a cache buffer counts its committed bytes */
    ag_buffer_commit(c, 65536);
    assert_int_equal(ag_memory_bytes_in_use(mem), 70636);
    ag_buffer_discard(c, 0, 8192); /* pages, independent of the count */
    assert_int_equal(ag_memory_bytes_in_use(mem), 70636);
    ag_buffer_uncommit(c, 8192);
    assert_int_equal(ag_memory_bytes_in_use(mem), 62444);
    ag_buffer_commit(c, 12656);
    assert_int_equal(ag_memory_bytes_in_use(mem), 75100);
    ag_buffer *again = ag_buffer_retain(b);
    ag_buffer_release(&b);
    assert_int_equal(ag_memory_bytes_in_use(mem), 75100);
    ag_buffer_release(&again);
    ag_buffer_release(&a);
    assert_int_equal(ag_memory_bytes_in_use(mem), 70000);
    ag_buffer_release(&c);
    assert_int_equal(ag_memory_bytes_in_use(mem), 0);
    ag_galloc_destroy(mem);
    ag_galloc_destroy(NULL);
}

static void buffers_may_outlive_their_memory(void **state) {
    (void)state;
    ag_memory *mem;
    ag_buffer *buf;
    assert_int_equal(ag_galloc_create(&mem, NULL), AG_OK);
    assert_int_equal(ag_memory_alloc(mem, 100, AG_USAGE_SCRATCH, &buf, NULL), AG_OK);
    ag_galloc_destroy(mem);
    assert_int_equal(ag_buffer_upload(buf, 99, "x", 1, NULL), AG_OK);
    ag_buffer_release(&buf);
}

static void rejects_empty_buffers(void **state) {
    (void)state;
    ag_memory *mem;
    ag_buffer *buf = (ag_buffer *)&mem;
    assert_int_equal(ag_galloc_create(&mem, NULL), AG_OK);
    assert_int_equal(ag_memory_alloc(mem, 0, AG_USAGE_SCRATCH, &buf, NULL), AG_INVALID);
    assert_null(buf);
    assert_int_equal(ag_memory_alloc(mem, SIZE_MAX, AG_USAGE_WEIGHTS, &buf, NULL), AG_NOMEM);
    assert_null(buf);
    assert_int_equal(ag_memory_bytes_in_use(mem), 0);
    ag_galloc_destroy(mem);
}

static void *allocate_often(void *mem) {
    for (int i = 0; i < 2000; i++) {
        ag_buffer *buf;
        if (ag_memory_alloc(mem, 64 + (size_t)i, AG_USAGE_SCRATCH, &buf, NULL) != AG_OK) break;
        ag_buffer_release(&buf);
    }
    return NULL;
}

static void counts_correctly_across_threads(void **state) {
    (void)state;
    ag_memory *mem;
    assert_int_equal(ag_galloc_create(&mem, NULL), AG_OK);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, allocate_often, mem);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(ag_memory_bytes_in_use(mem), 0);
    ag_galloc_destroy(mem);
}

static void creation_recovers_from_any_failed_allocation(void **state) {
    (void)state;
    failing_allocator f;
    for (size_t n = 0;; n++) {
        failing_install(&f, n);
        ag_memory *mem = (ag_memory *)&f;
        ag_status st = ag_galloc_create(&mem, NULL);
        assert_int_equal(st, f.failed ? AG_NOMEM : AG_OK);
        assert_true((mem == NULL) == f.failed);
        ag_galloc_destroy(mem);
        ag_set_allocator(NULL);
        assert_int_equal(f.in_use, 0);
        if (!f.failed) break;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_bytes_of_live_buffers),
        cmocka_unit_test(buffers_may_outlive_their_memory),
        cmocka_unit_test(rejects_empty_buffers),
        cmocka_unit_test(counts_correctly_across_threads),
        cmocka_unit_test(creation_recovers_from_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
