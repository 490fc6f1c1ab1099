/* SPDX-License-Identifier: Apache-2.0 */
/* A cache is saved and loaded while other caches end, in memory that the host does not see. Its
 * blocks move between two writes; written and read bytes must be right. */
#include "cache/kv_cache.h"
#include "cache/saved_state.h"
#include "core/backend_ops.h"
#include "core/buffer_ops.h"
#include "support/plain_backend.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_OTHERS = 40, TOKENS = 300, HEADS = 2, DIM = 4 };

static const ag_kv_params params = {.n_layers = 2,
                                    .n_kv_heads = HEADS,
                                    .head_dim = DIM,
                                    .max_slots = TOKENS,
                                    .k_type = AG_F32,
                                    .v_type = AG_F32};
static ag_backend *backend;
static ag_kv_cache *others[N_OTHERS];

static ag_kv_cache *make(bool full) {
    ag_kv_cache *c;
    ag_buffer *owner;
    ag_tensor rows;
    float values[TOKENS * HEADS * DIM];
    uint32_t positions[TOKENS];
    assert_int_equal(ag_kv_cache_create(backend, &params, &c, NULL), AG_OK);
    if (!full) return c;
    for (size_t i = 0; i < TOKENS * HEADS * DIM; i++) values[i] = (float)i;
    for (uint32_t i = 0; i < TOKENS; i++) positions[i] = i;
    assert_int_equal(ag_tensor_alloc(&rows, &owner, ag_backend_memory(backend), AG_USAGE_SCRATCH,
                                     AG_F32, ag_shape_3d(TOKENS, HEADS, DIM), NULL),
                     AG_OK);
    assert_int_equal(ag_buffer_upload(owner, 0, values, sizeof values, NULL), AG_OK);
    for (uint32_t l = 0; l < params.n_layers; l++)
        assert_int_equal(ag_kv_cache_update(c, l, &rows, &rows, positions, NULL), AG_OK);
    ag_buffer_release(&owner);
    return c;
}

static void end_others(void) {
    for (size_t i = 0; i < N_OTHERS; i++) {
        ag_kv_cache_destroy(others[i]);
        others[i] = NULL;
    }
}

/* A file whose nth access ends the other caches. */
typedef struct moving_file {
    uint8_t bytes[1 << 17];
    size_t n, at;
    int nth;
} moving_file;

static ag_status put_part(void *user, const void *bytes, size_t n, ag_error *err) {
    moving_file *f = user;
    (void)err;
    assert_true(f->n + n <= sizeof f->bytes);
    memcpy(f->bytes + f->n, bytes, n);
    f->n += n;
    if (!--f->nth) end_others();
    return AG_OK;
}

static ag_status get_part(void *user, void *bytes, size_t n, ag_error *err) {
    moving_file *f = user;
    (void)err;
    assert_true(f->at + n <= f->n);
    memcpy(bytes, f->bytes + f->at, n);
    f->at += n;
    if (!--f->nth) end_others();
    return AG_OK;
}

static moving_file first, second;

static void save(ag_kv_cache *c, moving_file *f, int nth) {
    f->n = 0;
    f->nth = nth;
    assert_int_equal(ag_kv_cache_save(c, put_part, f, NULL), AG_OK);
}

static void saves_while_blocks_move(void **state) {
    (void)state;
    for (int nth = 1; nth < 12; nth++) {
        for (size_t i = 0; i < N_OTHERS; i++) others[i] = make(true);
        ag_kv_cache *c = others[5];
        save(c, &first, 0);
        others[5] = NULL;
        save(c, &second, nth);
        assert_int_equal(first.n, second.n);
        assert_memory_equal(first.bytes, second.bytes, first.n);
        ag_kv_cache_destroy(c);
    }
}

static void loads_while_blocks_move(void **state) {
    (void)state;
    const uint32_t n_slots[] = {TOKENS, TOKENS, TOKENS, TOKENS};
    ag_kv_cache *c = make(true);
    save(c, &first, 0);
    ag_kv_cache_destroy(c);
    for (int nth = 1; nth < 12; nth++) {
        for (size_t i = 0; i < N_OTHERS; i++) others[i] = make(true);
        c = make(false);
        first.at = 0;
        first.nth = nth;
        assert_int_equal(ag_kv_cache_load(c, n_slots, TOKENS, "file", get_part, &first, NULL),
                         AG_OK);
        save(c, &second, 0);
        assert_memory_equal(first.bytes, second.bytes, first.n);
        ag_kv_cache_destroy(c);
    }
}

static int start(void **state) {
    (void)state;
    backend = plain_backend_create(false);
    return backend ? 0 : 1;
}

static int stop(void **state) {
    (void)state;
    ag_backend_destroy(backend);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saves_while_blocks_move),
        cmocka_unit_test(loads_while_blocks_move),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
