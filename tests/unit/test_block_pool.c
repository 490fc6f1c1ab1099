/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of a pool against a list of who holds what: contents, order, pages. */
#include "core/block_pool.h"

#include "support/address_limit.h"
#include "support/resident.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 3000 };

static ag_backend *backend;
static ag_memory *memory;

typedef struct held {
    ag_kv_block block;
    uint32_t holders, content;
} held;

typedef struct model {
    ag_block_pool *pool;
    size_t bytes;
    held blocks[MOST];
    uint32_t n;
} model;

static uint32_t random_state = 5;

static uint32_t below(uint32_t n) {
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % n;
}

static uint32_t *words_of(ag_kv_block block) {
    return (uint32_t *)(void *)((unsigned char *)ag_buffer_map(block.buffer) + block.offset);
}

static void write_block(const model *m, held *b) {
    b->content = below(UINT32_MAX);
    for (size_t i = 0; i < m->bytes / sizeof(uint32_t); i++)
        words_of(b->block)[i] = b->content + (uint32_t)i;
}

static bool is_intact(const model *m, const held *b) {
    for (size_t i = 0; i < m->bytes / sizeof(uint32_t); i++)
        if (words_of(b->block)[i] != b->content + (uint32_t)i) return false;
    return true;
}

static const held *find(const model *m, ag_buffer *buffer, size_t offset) {
    for (uint32_t i = 0; i < m->n; i++) {
        if (m->blocks[i].block.buffer == buffer && m->blocks[i].block.offset == offset)
            return &m->blocks[i];
    }
    return NULL;
}

static void take(model *m) {
    held *b = &m->blocks[m->n];
    if (m->n == MOST) return;
    assert_int_equal(ag_block_pool_take(m->pool, &b->block, NULL), AG_OK);
    assert_null(find(m, b->block.buffer, b->block.offset));
    b->holders = 1;
    write_block(m, b);
    m->n++;
}

static void drop(model *m, uint32_t i) {
    held *b = &m->blocks[i];
    assert_int_equal(ag_block_pool_is_shared(m->pool, b->block), b->holders > 1);
    assert_true(is_intact(m, b));
    ag_block_pool_drop(m->pool, b->block);
    if (--b->holders == 0) *b = m->blocks[--m->n];
}

/* Asserts that the resident pages of an arena are exactly those that contain a block. */
static void check_arena(const model *m, ag_buffer *buffer) {
    const size_t page = page_bytes(), n = pages_in(ag_buffer_size(buffer));
    unsigned char *wanted = calloc(n, 1), *pages = resident_pages(buffer);
    assert_true(wanted && pages);
    for (uint32_t i = 0; i < m->n; i++) {
        const ag_kv_block b = m->blocks[i].block;
        if (b.buffer != buffer) continue;
        for (size_t p = b.offset / page; p * page < b.offset + m->bytes; p++) wanted[p] = 1;
    }
    assert_memory_equal(pages, wanted, n);
    free(wanted);
    free(pages);
}

static void check(const model *m) {
    ag_block_pool_trim(m->pool);
    assert_int_equal(ag_memory_bytes_in_use(memory), m->n * m->bytes);
    for (uint32_t i = 0; i < m->n; i++) {
        bool seen = false;
        for (uint32_t k = 0; k < i && !seen; k++)
            seen = m->blocks[k].block.buffer == m->blocks[i].block.buffer;
        if (!seen) check_arena(m, m->blocks[i].block.buffer);
    }
}

static model *make(size_t bytes) {
    model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->bytes = bytes;
    assert_int_equal(ag_block_pool_of(backend, bytes, &m->pool, NULL), AG_OK);
    return m;
}

static void end(model *m) {
    while (m->n) drop(m, below(m->n));
    check(m);
    free(m);
}

static void gives_back_pages_without_blocks(void **state) {
    (void)state;
    const size_t sizes[] = {1024, 5120, 9728, 33280};
    for (size_t s = 0; s < 4; s++) {
        model *m = make(sizes[s]);
        for (uint32_t round = 0; round < 12; round++) {
            const uint32_t wanted = below(120);
            for (uint32_t i = 0; i < 150; i++) {
                const uint32_t what = below(8);
                if (m->n < wanted || !what) take(m);
                else if (what == 1) {
                    held *b = &m->blocks[below(m->n)];
                    ag_block_pool_share(m->pool, b->block);
                    b->holders++;
                } else drop(m, below(m->n));
            }
            check(m);
        }
        end(m);
    }
}

static void takes_the_lowest_free_block(void **state) {
    (void)state;
    model *m = make(4160);
    for (uint32_t i = 0; i < 200; i++) take(m);
    for (uint32_t i = 0; i < 200; i++) assert_int_equal(m->blocks[i].block.offset, i * 4160);
    ag_buffer *const first = m->blocks[0].block.buffer;
    for (uint32_t i = 0; i < 500; i++) {
        for (uint32_t k = below(20); k; k--) drop(m, below(m->n));
        if (below(2)) ag_block_pool_trim(m->pool);
        for (uint32_t k = below(20); k && m->n < 200; k--) {
            size_t lowest = 0;
            while (find(m, first, lowest)) lowest += 4160;
            take(m);
            assert_int_equal(m->blocks[m->n - 1].block.offset, lowest);
        }
    }
    end(m);
}

/* Several arenas; each is removed with its last block. */
static void adds_and_removes_arenas(void **state) {
    (void)state;
    model *m = make(1024);
    assert_int_equal(ag_block_pool_reserve(m->pool, MOST, NULL), AG_OK);
    for (uint32_t i = 0; i < MOST; i++) take(m);
    ag_buffer *const first = m->blocks[0].block.buffer;
    assert_ptr_not_equal(m->blocks[MOST - 1].block.buffer, first);
    check(m);
    for (uint32_t i = 0; i < m->n;) {
        if (m->blocks[i].block.buffer == first) drop(m, i);
        else i++;
    }
    check(m);
    const uint32_t left = m->n;
    take(m);
    assert_ptr_equal(m->blocks[left].block.buffer, m->blocks[0].block.buffer);
    check(m);
    end(m);
}

static void uses_one_pool_for_each_block_size(void **state) {
    (void)state;
    ag_block_pool *a, *b, *again;
    assert_int_equal(ag_block_pool_of(backend, 640, &a, NULL), AG_OK);
    assert_int_equal(ag_block_pool_of(backend, 704, &b, NULL), AG_OK);
    assert_int_equal(ag_block_pool_of(backend, 640, &again, NULL), AG_OK);
    assert_ptr_equal(a, again);
    assert_ptr_not_equal(a, b);
}

static int open_backend(void **state) {
    (void)state;
    ag_backend_params p = {.n_threads = 1};
    if (ag_backend_create(&p, &backend, NULL) != AG_OK) return 1;
    memory = ag_backend_memory(backend);
    return ag_memory_bytes_in_use(memory) != 0;
}

static int close_backend(void **state) {
    (void)state;
    ag_backend_destroy(backend);
    return 0;
}

/* An arena of 1,024 such blocks is more than there is; a few are not. */
static void tries_smaller_arenas_if_memory_is_short(void **state) {
    enum { BYTES = 4 << 20, SPARE = 512 << 20 };
    struct rlimit before;
    ag_block_pool *pool;
    (void)state;
    if (!limit_address_space(SPARE, &before)) skip();
    assert_int_equal(ag_block_pool_of(backend, BYTES, &pool, NULL), AG_OK);
    const ag_status few = ag_block_pool_reserve(pool, 3, NULL);
    const ag_status many = ag_block_pool_reserve(pool, 1000, NULL);
    setrlimit(RLIMIT_AS, &before);
    assert_int_equal(few, AG_OK);
    assert_int_equal(many, AG_NOMEM);
    ag_block_pool_trim(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_back_pages_without_blocks),
        cmocka_unit_test(takes_the_lowest_free_block),
        cmocka_unit_test(adds_and_removes_arenas),
        cmocka_unit_test(uses_one_pool_for_each_block_size),
        cmocka_unit_test(tries_smaller_arenas_if_memory_is_short),
    };
    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
