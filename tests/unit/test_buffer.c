/* SPDX-License-Identifier: Apache-2.0 */
#include "core/buffer_ops.h"
#include "memory/mapped_buffer.h"
#include "memory/shared_buffer.h"
#include "support/address_limit.h"
#include "support/failing_allocator.h"

#include <antigravity/process.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* A buffer without a host pointer that counts how often it is destroyed. */
static int n_destroyed;
static unsigned char device_bytes[64];

static void note_destroyed(ag_buffer *buf) {
    (void)buf;
    n_destroyed++;
}

static ag_status device_upload(ag_buffer *dst, size_t offset, const void *src, size_t n,
                               ag_error *err) {
    (void)dst, (void)err;
    memcpy(device_bytes + offset, src, n);
    return AG_OK;
}

static ag_status device_download(void *dst, ag_buffer *src, size_t offset, size_t n,
                                 ag_error *err) {
    (void)src, (void)err;
    memcpy(dst, device_bytes + offset, n);
    return AG_OK;
}

static const ag_buffer_ops device_ops = {
    .destroy = note_destroyed,
    .upload = device_upload,
    .download = device_download,
};

static void last_release_destroys(void **state) {
    (void)state;
    ag_buffer buf;
    ag_buffer_init(&buf, &device_ops, sizeof device_bytes);
    n_destroyed = 0;
    ag_buffer *a = &buf, *b = ag_buffer_retain(a);
    assert_ptr_equal(b, a);
    ag_buffer_release(&a);
    assert_null(a);
    assert_int_equal(n_destroyed, 0);
    ag_buffer_release(&b);
    assert_int_equal(n_destroyed, 1);
    ag_buffer_release(&b);
    assert_int_equal(n_destroyed, 1);
}

static void *retain_and_release(void *arg) {
    for (int i = 0; i < 20000; i++) {
        ag_buffer *b = ag_buffer_retain(arg);
        ag_buffer_release(&b);
    }
    return NULL;
}

static void references_are_counted_across_threads(void **state) {
    (void)state;
    ag_buffer buf, *owner = &buf;
    ag_buffer_init(&buf, &device_ops, 1);
    n_destroyed = 0;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, retain_and_release, &buf);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_int_equal(n_destroyed, 0);
    ag_buffer_release(&owner);
    assert_int_equal(n_destroyed, 1);
}

static void copies_unmapped_buffers_through_their_ops(void **state) {
    (void)state;
    ag_buffer buf;
    ag_buffer_init(&buf, &device_ops, sizeof device_bytes);
    assert_null(ag_buffer_map(&buf));
    assert_false(ag_buffer_is_mapped(&buf));
    ag_buffer_unmap(&buf);
    assert_int_equal(ag_buffer_sync(&buf, NULL), AG_OK);
    char back[5];
    assert_int_equal(ag_buffer_upload(&buf, 60, "abcd", 4, NULL), AG_OK);
    assert_int_equal(ag_buffer_download(back, &buf, 59, 5, NULL), AG_OK);
    assert_memory_equal(back + 1, "abcd", 4);
    assert_int_equal(ag_buffer_discard(&buf, 0, 64), 0);
}

static ag_shared_pool *pool; /* the shared buffers of the tests use it */

static int make_pool(void **state) {
    (void)state;
    pool = ag_shared_pool_create();
    return pool ? 0 : -1;
}

static int release_pool(void **state) {
    (void)state;
    ag_shared_pool_release(pool);
    return 0;
}

static void rejects_copies_past_the_end(void **state) {
    (void)state;
    ag_buffer *buf;
    assert_int_equal(ag_shared_buffer_create(pool, 100, AG_USAGE_SCRATCH, &buf, NULL), AG_OK);
    char bytes[101] = {1};
    ag_error err;
    assert_int_equal(ag_buffer_upload(buf, 0, bytes, 101, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "101"));
    assert_non_null(strstr(err.msg, "100"));
    assert_int_equal(ag_buffer_upload(buf, 101, bytes, 0, &err), AG_INVALID);
    assert_int_equal(ag_buffer_upload(buf, SIZE_MAX, bytes, 2, &err), AG_INVALID);
    assert_int_equal(ag_buffer_download(bytes, buf, 99, 2, &err), AG_INVALID);
    assert_int_equal(ag_buffer_download(bytes, buf, 1, SIZE_MAX, &err), AG_INVALID);
    assert_int_equal(ag_buffer_upload(buf, 99, bytes, 1, NULL), AG_OK);
    assert_int_equal(((char *)ag_buffer_map(buf))[99], 1);
    assert_int_equal(ag_buffer_upload(buf, 100, bytes, 0, NULL), AG_OK);
    ag_buffer_release(&buf);
}

static void every_usage_is_zeroed_and_aligned(void **state) {
    (void)state;
    static const size_t sizes[] = {1, 4095, 4097, (2 << 20) - 1, (2 << 20) + 1, 9 << 20};
    for (int usage = AG_USAGE_SCRATCH; usage <= AG_USAGE_KV; usage++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            ag_buffer *buf;
            assert_int_equal(ag_shared_buffer_create(pool, sizes[i], usage, &buf, NULL), AG_OK);
            unsigned char *p = ag_buffer_map(buf);
            size_t alignment = usage == AG_USAGE_SCRATCH ? 64 : 4096;
            assert_int_equal((uintptr_t)p % alignment, 0);
            assert_true(ag_buffer_is_mapped(buf));
            for (size_t k = 0; k < sizes[i]; k++) {
                if (p[k]) fail_msg("byte %zu of %zu is not 0", k, sizes[i]);
            }
            memset(p, 0xa5, sizes[i]);
            ag_buffer_release(&buf);
        }
    }
}

static void huge_sizes_fail_with_nomem(void **state) {
    (void)state;
    for (int usage = AG_USAGE_SCRATCH; usage <= AG_USAGE_KV; usage++) {
        ag_buffer *buf = (ag_buffer *)&usage;
        assert_int_equal(ag_shared_buffer_create(pool, SIZE_MAX - 5, usage, &buf, NULL), AG_NOMEM);
        assert_null(buf);
        if (usage == AG_USAGE_SCRATCH) continue; /* the sanitizers' malloc would abort */
        assert_int_equal(ag_shared_buffer_create(pool, SIZE_MAX / 2, usage, &buf, NULL), AG_NOMEM);
        assert_null(buf);
    }
}

static void discard_returns_pages_to_the_system(void **state) {
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 32 << 20;
    ag_buffer *buf;
    assert_int_equal(ag_shared_buffer_create(pool, n, AG_USAGE_KV, &buf, NULL), AG_OK);
    ag_memory_usage empty, full, after;
    bool measured = ag_process_memory(&empty) == AG_OK;
    unsigned char *p = ag_buffer_map(buf);
    memset(p, 7, n);
    ag_process_memory(&full);
    /* Discards only full pages inside the range; half a page at each end stays. */
    size_t given = ag_buffer_discard(buf, page / 2, n - page);
    assert_int_equal(given, n - 2 * page);
    ag_process_memory(&after);
    assert_int_equal(p[page - 1], 7);
    assert_int_equal(p[page], 0);
    assert_int_equal(p[n - page - 1], 0);
    assert_int_equal(p[n - page], 7);
    if (measured) {
        assert_true(full.anonymous >= empty.anonymous + n * 9 / 10);
        assert_true(after.anonymous + n * 9 / 10 <= full.anonymous);
        assert_true(after.anonymous_peak >= full.anonymous);
        assert_true(after.peak >= n);
    }
    assert_int_equal(ag_buffer_discard(buf, 1, page), 0);
    assert_int_equal(ag_buffer_discard(buf, n, 1), 0);
    assert_int_equal(ag_buffer_discard(buf, n - page, SIZE_MAX), page);
    ag_buffer_release(&buf);
}

static void discard_includes_the_last_page(void **state) {
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    ag_buffer *buf;
    assert_int_equal(ag_shared_buffer_create(pool, page + 10, AG_USAGE_KV, &buf, NULL), AG_OK);
    memset(ag_buffer_map(buf), 1, page + 10);
    assert_int_equal(ag_buffer_discard(buf, page, 9), 0);
    assert_int_equal(ag_buffer_discard(buf, page, 10), page);
    ag_buffer_release(&buf);
}

static void maps_files_read_only(void **state) {
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 3 * page + 5;
    char path[] = "/tmp/ag_test_buffer_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)(i % 251);
        assert_int_equal(write(fd, &c, 1), 1);
    }
    ag_error err;
    ag_buffer *buf = NULL;
    assert_int_equal(ag_mapped_buffer_open(fd, n + 1, path, &buf, &err), AG_IO);
    assert_non_null(strstr(err.msg, path));
    assert_null(buf);
    assert_int_equal(ag_mapped_buffer_open(fd, 0, path, &buf, &err), AG_FORMAT);
    assert_int_equal(ag_mapped_buffer_open(fd, n, path, &buf, &err), AG_OK);
    close(fd);
    unlink(path);
    unsigned char byte;
    assert_int_equal(ag_buffer_download(&byte, buf, n - 1, 1, NULL), AG_OK);
    assert_int_equal(byte, (n - 1) % 251);
    assert_int_equal(ag_buffer_upload(buf, 0, &byte, 1, &err), AG_UNSUPPORTED);
    assert_int_equal(ag_buffer_discard(buf, 0, n), 4 * page);
    assert_int_equal(((unsigned char *)ag_buffer_map(buf))[page], page % 251);
    ag_buffer_release(&buf);
}

static void rejects_mapping_of_non_files(void **state) {
    (void)state;
    int fd = open("/tmp", O_RDONLY);
    ag_error err;
    ag_buffer *buf;
    assert_int_equal(ag_mapped_buffer_open(fd, 10, "/tmp", &buf, &err), AG_IO);
    close(fd);
    assert_int_equal(ag_mapped_buffer_open(-1, 10, "closed", &buf, &err), AG_IO);
    assert_non_null(strstr(err.msg, "closed"));
}

static ag_buffer *make_weights(ag_shared_pool *of, size_t bytes) {
    ag_buffer *buf;
    assert_int_equal(ag_shared_buffer_create(of, bytes, AG_USAGE_WEIGHTS, &buf, NULL), AG_OK);
    return buf;
}

/* A huge page can hold parts of two matrices only if these are adjacent. */
static void weights_are_adjacent(void **state) {
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (3 << 20) + 5;
    const size_t pages = (n + page - 1) / page * page;
    ag_shared_pool *own = ag_shared_pool_create();
    ag_buffer *bufs[50]; /* more than a mapping holds */
    size_t n_adjacent = 0;
    for (size_t i = 0; i < 50; i++) {
        bufs[i] = make_weights(own, n);
        memset(ag_buffer_map(bufs[i]), (int)i + 1, n);
        if (i && (char *)ag_buffer_map(bufs[i]) == (char *)ag_buffer_map(bufs[i - 1]) + pages)
            n_adjacent++;
    }
    assert_true(n_adjacent >= 47);
    ag_shared_pool_release(own); /* weights outlive it */
    for (size_t i = 0; i < 50; i += 2) ag_buffer_release(&bufs[i]);
    for (size_t i = 1; i < 50; i += 2) {
        const unsigned char *p = ag_buffer_map(bufs[i]);
        assert_int_equal(p[0], i + 1);
        assert_int_equal(p[n - 1], i + 1);
        ag_buffer_release(&bufs[i]);
    }
}

static void weights_do_without_an_arena(void **state) {
    enum { SPARE = 4 << 20 }; /* less than an arena */
    struct rlimit before;
    (void)state;
    ag_shared_pool *own = ag_shared_pool_create();
    if (!limit_address_space(SPARE, &before)) {
        ag_shared_pool_release(own);
        skip();
    }
    ag_buffer *small = NULL;
    const ag_status st = ag_shared_buffer_create(own, 10000, AG_USAGE_WEIGHTS, &small, NULL);
    setrlimit(RLIMIT_AS, &before);
    assert_int_equal(st, AG_OK);
    memset(ag_buffer_map(small), 1, 10000);
    ag_buffer_release(&small);
    ag_shared_pool_release(own);
}

static void released_weights_return_their_pages(void **state) {
    (void)state;
    const size_t n = 20 << 20;
    ag_buffer *first = make_weights(pool, n), *second = make_weights(pool, n);
    ag_memory_usage full, after;
    memset(ag_buffer_map(first), 1, n);
    memset(ag_buffer_map(second), 2, n);
    const bool measured = ag_process_memory(&full) == AG_OK;
    ag_buffer_release(&first);
    ag_process_memory(&after);
    if (measured) assert_true(after.anonymous + n * 8 / 10 <= full.anonymous);
    assert_int_equal(((unsigned char *)ag_buffer_map(second))[n - 1], 2);
    ag_buffer_release(&second);
}

static void recovers_from_any_failed_allocation(void **state) {
    (void)state;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(fputc('x', file), 'x');
    fflush(file);
    failing_allocator f;
    for (size_t n = 0;; n++) {
        failing_install(&f, n);
        ag_buffer *heap = NULL, *pages = NULL, *mapped = NULL;
        ag_shared_pool *own = ag_shared_pool_create();
        if (own) ag_shared_buffer_create(own, 100, AG_USAGE_SCRATCH, &heap, NULL);
        if (own) ag_shared_buffer_create(own, 100, AG_USAGE_WEIGHTS, &pages, NULL);
        ag_mapped_buffer_open(fileno(file), 1, "tmpfile", &mapped, NULL);
        assert_true((own ? !heap + !pages + !mapped : 1) <=
                    f.failed); /* weights do without an arena */
        ag_buffer_release(&heap);
        ag_buffer_release(&pages);
        ag_buffer_release(&mapped);
        ag_shared_pool_release(own);
        ag_set_allocator(NULL);
        assert_int_equal(f.in_use, 0);
        if (!f.failed) break;
    }
    fclose(file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(last_release_destroys),
        cmocka_unit_test(references_are_counted_across_threads),
        cmocka_unit_test(copies_unmapped_buffers_through_their_ops),
        cmocka_unit_test(rejects_copies_past_the_end),
        cmocka_unit_test(every_usage_is_zeroed_and_aligned),
        cmocka_unit_test(huge_sizes_fail_with_nomem),
        cmocka_unit_test(discard_returns_pages_to_the_system),
        cmocka_unit_test(discard_includes_the_last_page),
        cmocka_unit_test(maps_files_read_only),
        cmocka_unit_test(rejects_mapping_of_non_files),
        cmocka_unit_test(weights_are_adjacent),
        cmocka_unit_test(weights_do_without_an_arena),
        cmocka_unit_test(released_weights_return_their_pages),
        cmocka_unit_test(recovers_from_any_failed_allocation),
    };
    return cmocka_run_group_tests(tests, make_pool, release_pool);
}
