/* SPDX-License-Identifier: Apache-2.0 */
/* Compaction, the memory it returns, and the protected prefix past the trained length. */
#include "cache/kv_cache.h"
#include "core/hadamard.h"

#include <antigravity/process.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>
#include <math.h>

enum { LAYERS = 2, HEADS = 3, DIM = 32, SLOTS = 600 };

static ag_backend *backend;

static int make_backend(void **state) {
    (void)state;
    ag_backend_params p = {.n_threads = 2};
    return ag_backend_create(&p, &backend, NULL) != AG_OK;
}

static int drop_backend(void **state) {
    (void)state;
    ag_backend_destroy(backend);
    return 0;
}

static ag_kv_cache *make_cache(ag_kv_params p) {
    ag_kv_cache *c;
    ag_error err;
    if (ag_kv_cache_create(backend, &p, &c, &err) != AG_OK) fail_msg("%s", err.msg);
    return c;
}

static ag_kv_params small(ag_dtype k, ag_dtype v) {
    return (ag_kv_params){.n_layers = LAYERS,
                          .n_kv_heads = HEADS,
                          .head_dim = DIM,
                          .max_slots = SLOTS,
                          .k_type = k,
                          .v_type = v};
}

static float value_of(uint32_t layer, uint32_t head, uint32_t position, uint32_t i) {
    return sinf((float)(position * 97 + head * 31 + layer * 13 + i));
}

/* Appends tokens first..first+n to all layers; V is -K. Takes unrotated copies. */
static void append(ag_kv_cache *c, uint32_t first, uint32_t n) {
    const ag_kv_params *p = ag_kv_cache_params(c);
    ag_buffer *owners[2];
    ag_tensor t[2];
    ag_shape shape = ag_shape_3d(n, p->n_kv_heads, p->head_dim);
    uint32_t *positions = malloc(n * sizeof *positions);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ag_tensor_alloc(&t[i], &owners[i], ag_backend_memory(backend),
                                         AG_USAGE_SCRATCH, AG_F32, shape, NULL),
                         AG_OK);
    }
    for (uint32_t l = 0; l < p->n_layers; l++) {
        size_t at = 0;
        for (uint32_t r = 0; r < n; r++) {
            positions[r] = first + r;
            for (uint32_t h = 0; h < p->n_kv_heads; h++) {
                for (uint32_t i = 0; i < p->head_dim; i++, at++) {
                    ag_tensor_f32(&t[0])[at] = value_of(l, h, first + r, i);
                    ag_tensor_f32(&t[1])[at] = -value_of(l, h, first + r, i);
                }
            }
        }
        assert_int_equal(ag_kv_cache_keep_unrotated(c, l, &t[0], positions, NULL), AG_OK);
        assert_int_equal(ag_kv_cache_update(c, l, &t[0], &t[1], positions, NULL), AG_OK);
    }
    free(positions);
    ag_buffer_release(&owners[0]);
    ag_buffer_release(&owners[1]);
}

static void check_slot(ag_kv_cache *c, uint32_t layer, uint32_t head, uint32_t slot,
                       uint32_t position, float tolerance) {
    float k[DIM], v[DIM];
    assert_int_equal(ag_kv_cache_position(c, layer, head, slot), position);
    assert_int_equal(ag_kv_cache_read(c, layer, head, slot, k, v, NULL), AG_OK);
    for (uint32_t i = 0; i < DIM; i++) {
        assert_true(fabsf(k[i] - value_of(layer, head, position, i)) <= tolerance);
        assert_true(fabsf(v[i] + value_of(layer, head, position, i)) <= tolerance);
    }
}

static void compacts_each_head_in_every_type(void **state) {
    (void)state;
    const struct {
        ag_dtype k, v;
        float tolerance;
    } cases[] = {{AG_F32, AG_F32, 0},
                 {AG_F16, AG_F32, 0.0005f},
                 {AG_Q8_0, AG_F16, 0.005f},
                 {AG_F16, AG_Q8_0, 0.005f},
                 {AG_Q4_0, AG_Q4_0, 0.13f}};
    srand(3);
    for (size_t t = 0; t < sizeof cases / sizeof cases[0]; t++) {
        ag_kv_cache *c = make_cache(small(cases[t].k, cases[t].v));
        append(c, 7, 500);
        for (uint32_t l = 0; l < LAYERS; l++) {
            for (uint32_t h = 0; h < HEADS; h++) {
                uint32_t keep[500], n = 0;
                for (uint32_t s = 0; s < 500; s++) {
                    if (rand() % (int)(h + 2) == 0 || (s > 200 && s < 300)) keep[n++] = s;
                }
                assert_int_equal(ag_kv_cache_compact(c, l, h, keep, n, NULL), AG_OK);
                assert_int_equal(ag_kv_cache_n_slots(c, l, h), n);
                for (uint32_t i = 0; i < n; i++) {
                    check_slot(c, l, h, i, 7 + keep[i], cases[t].tolerance);
                }
            }
        }
        /* Heads of different lengths continue to grow. */
        append(c, 507, 40);
        for (uint32_t h = 0; h < HEADS; h++) {
            uint32_t n = ag_kv_cache_n_slots(c, 1, h);
            for (uint32_t i = 1; i <= 40; i++) {
                check_slot(c, 1, h, n - i, 547 - i, cases[t].tolerance);
            }
        }
        ag_kv_cache_destroy(c);
    }
}

static void rejects_invalid_slot_lists(void **state) {
    (void)state;
    ag_kv_cache *c = make_cache(small(AG_F16, AG_F16));
    ag_error err;
    append(c, 0, 10);
    const uint32_t past[] = {1, 10}, back[] = {3, 2}, twice[] = {4, 4};
    assert_int_equal(ag_kv_cache_compact(c, 0, 0, past, 2, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "cannot keep slot 10: the head holds 10"));
    assert_int_equal(ag_kv_cache_compact(c, 0, 0, back, 2, &err), AG_INVALID);
    assert_int_equal(ag_kv_cache_compact(c, 0, 0, twice, 2, &err), AG_INVALID);
    assert_int_equal(ag_kv_cache_compact(c, LAYERS, 0, past, 1, &err), AG_INVALID);
    assert_int_equal(ag_kv_cache_n_slots(c, 0, 0), 10);
    assert_int_equal(ag_kv_cache_compact(c, 0, 0, NULL, 0, &err), AG_OK);
    assert_int_equal(ag_kv_cache_n_slots(c, 0, 0), 0);
    ag_kv_cache_destroy(c);
}

static size_t anonymous_memory(void) {
    ag_memory_usage u;
    return ag_process_memory(&u) == AG_OK ? u.anonymous : 0;
}

static void returns_pages_of_evicted_slots_to_the_system(void **state) {
    (void)state;
    const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};
    if (!anonymous_memory()) skip();
    for (size_t t = 0; t < 4; t++) {
        ag_kv_cache *c = make_cache((ag_kv_params){.n_layers = 4,
                                                   .n_kv_heads = 8,
                                                   .head_dim = 64,
                                                   .max_slots = 4096,
                                                   .k_type = types[t],
                                                   .v_type = types[t]});
        append(c, 0, 4096);
        uint32_t keep[1024];
        for (uint32_t i = 0; i < 1024; i++) keep[i] = 4 * i + 3;
        size_t used = ag_kv_cache_memory_usage_bytes(c), resident = anonymous_memory();
        for (uint32_t l = 0; l < 4; l++) {
            for (uint32_t h = 0; h < 8; h++) {
                assert_int_equal(ag_kv_cache_compact(c, l, h, keep, 1024, NULL), AG_OK);
            }
        }
        size_t freed = used - ag_kv_cache_memory_usage_bytes(c);
        assert_int_equal(4 * freed, 3 * used);
        assert_true(resident - anonymous_memory() >= freed / 10 * 9);
        ag_kv_cache_destroy(c);
    }
}

/* ---- huge pages ---- */

/* Returns whether blocks of the cache are between two addresses. */
static bool has_blocks_in(ag_kv_cache *c, uintptr_t begin, uintptr_t end) {
    for (uint32_t l = 0; l < ag_kv_cache_params(c)->n_layers; l++) {
        ag_kv_view kv;
        ag_kv_cache_get_view(c, l, &kv);
        for (uint32_t h = 0; h < kv.n_kv_heads; h++) {
            for (uint32_t b = 0; b < (kv.n_slots[h] + AG_KV_BLOCK - 1) / AG_KV_BLOCK; b++) {
                const ag_kv_block *block = &kv.blocks[h * kv.blocks_per_head + b];
                const uintptr_t at = (uintptr_t)ag_buffer_map(block->buffer) + block->offset;
                if (at >= begin && at < end) return true;
            }
        }
    }
    return false;
}

/* Sums a field over the mappings that hold blocks of the cache, or over all if there are none:
 * the system may split mappings. */
static size_t huge_pages_of(ag_kv_cache *c) {
    char line[256];
    size_t begin, end, kb, sum = 0;
    bool counts = !c;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (c && sscanf(line, "%zx-%zx ", &begin, &end) == 2) counts = has_blocks_in(c, begin, end);
        if (counts && sscanf(line, "AnonHugePages: %zu kB", &kb) == 1) sum += kb;
    }
    if (f) fclose(f);
    return sum * 1024;
}

/* Returns whether this system collapses small pages into a huge one. */
static bool collapses(void) {
    enum { SIZE = 2 << 20, COLLAPSE = 25 };
    bool made = false;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    unsigned char *p =
        mmap(NULL, 2 * SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return false;
    unsigned char *at = p + (SIZE - (uintptr_t)p % SIZE) % SIZE;
    memset(at, 1, SIZE);
    const size_t before = huge_pages_of(NULL);
    made = madvise(at, SIZE, MADV_HUGEPAGE) == 0 && madvise(at, SIZE, COLLAPSE) == 0 &&
           huge_pages_of(NULL) > before;
    munmap(p, 2 * SIZE);
#endif
    return made;
}

static void promotes_full_blocks_to_huge_pages(void **state) {
    (void)state;
    if (!collapses()) {
        print_message("this system makes no huge pages of small ones\n");
        skip();
    }
    const ag_kv_params p = {.n_layers = 2,
                            .n_kv_heads = 16,
                            .head_dim = DIM,
                            .max_slots = 4096,
                            .k_type = AG_F16,
                            .v_type = AG_F16};
    enum { LEAST = 12 << 20 }; /* 2 layers of 8.5 MiB, whose ends are in small pages */
    ag_kv_cache *c = make_cache(p);
    append(c, 0, 4096);
    ag_kv_cache_clear(c);
    append(c, 0, 384); /* 1.5 MiB: no full huge page, wherever it begins */
    assert_int_equal(huge_pages_of(c), 0);
    append(c, 384, 3712);
    assert_true(huge_pages_of(c) >= LEAST);
    for (uint32_t l = 0; l < 2; l++) {
        for (uint32_t slot = 0; slot < 4096; slot += 97) check_slot(c, l, 3, slot, slot, 1e-3f);
    }
    assert_int_equal(ag_kv_cache_truncate(c, 100, NULL), AG_OK);
    assert_int_equal(huge_pages_of(c), 0);
    append(c, 100, 300); /* into small pages again */
    assert_int_equal(huge_pages_of(c), 0);
    ag_kv_cache_destroy(c);
}

/* ---- the protected prefix ---- */

static void angles(float *inv_freq) {
    for (int i = 0; i < DIM / 2; i++) inv_freq[i] = powf(10000, -2.0f * (float)i / DIM);
}

static void rotate(float *x, uint32_t position, const float *inv_freq) {
    for (int i = 0; i < DIM / 2; i++) {
        double a = (double)position * inv_freq[i], lo = x[i], hi = x[i + DIM / 2];
        x[i] = (float)(lo * cos(a) - hi * sin(a));
        x[i + DIM / 2] = (float)(hi * cos(a) + lo * sin(a));
    }
}

static void check_turned(ag_kv_cache *c, uint32_t by, float tolerance) {
    float inv_freq[DIM / 2], k[DIM], want[DIM];
    angles(inv_freq);
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint32_t h = 0; h < HEADS; h++) {
            for (uint32_t s = 0; s < 4; s++) {
                for (uint32_t i = 0; i < DIM; i++) want[i] = value_of(l, h, s, i);
                rotate(want, s + by, inv_freq);
                assert_int_equal(ag_kv_cache_position(c, l, h, s), s);
                assert_int_equal(ag_kv_cache_read(c, l, h, s, k, NULL, NULL), AG_OK);
                for (uint32_t i = 0; i < DIM; i++) {
                    assert_true(fabsf(k[i] - want[i]) <= tolerance);
                }
            }
            check_slot(c, l, h, 4, 4, tolerance);
        }
    }
}

/* Repeated rotations always begin from the copy. */
static void rerotates_the_prefix_to_the_trained_distance(void **state) {
    (void)state;
    const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};
    const float tolerance[] = {1e-5f, 1e-3f, 0.01f, 0.2f};
    float inv_freq[DIM / 2];
    angles(inv_freq);
    const ag_rope_table rope[LAYERS] = {{inv_freq, DIM, 1}, {inv_freq, DIM, 1}};
    for (size_t t = 0; t < 8; t++) {
        ag_kv_params p = small(types[t / 2], types[t / 2]);
        p.n_protected = 4;
        p.hadamard = t % 2;
        ag_kv_cache *c = make_cache(p);
        append(c, 0, 20);
        assert_int_equal(ag_kv_cache_rerotate(c, rope, 99, 100, NULL), AG_OK);
        if (!p.hadamard) check_slot(c, 1, 2, 3, 3, tolerance[t / 2]);
        for (uint32_t newest = 100; newest < 5000; newest += 61) {
            assert_int_equal(ag_kv_cache_rerotate(c, rope, newest, 100, NULL), AG_OK);
            if (!p.hadamard) check_turned(c, newest - 99, tolerance[t / 2]);
        }
        if (p.hadamard) { /* the rows appended here are not rotated */
            float k[DIM], want[DIM];
            assert_int_equal(ag_kv_cache_rerotate(c, rope, 5000, 100, NULL), AG_OK);
            assert_int_equal(ag_kv_cache_read(c, 1, 1, 2, k, NULL, NULL), AG_OK);
            for (uint32_t i = 0; i < DIM; i++) want[i] = value_of(1, 1, 2, i);
            rotate(want, 2 + 4901, inv_freq);
            for (uint32_t i = 0; i < DIM; i++) {
                assert_true(fabsf(k[i] - want[i]) <= 2 * tolerance[t / 2]);
            }
        }
        ag_kv_cache_destroy(c);
    }
}

static void hadamard_keeps_products_and_undoes_itself(void **state) {
    (void)state;
    const size_t dims[] = {1, 2, 24, 32, 64, 80, 128};
    float a[128], b[128], c[128];
    for (size_t t = 0; t < sizeof dims / sizeof dims[0]; t++) {
        size_t n = dims[t];
        double before = 0, after = 0;
        for (size_t i = 0; i < n; i++) {
            c[i] = a[i] = sinf((float)i * 3);
            b[i] = i == n / 2 ? 9 : cosf((float)i);
            before += (double)a[i] * b[i];
        }
        ag_hadamard(a, 1, n);
        ag_hadamard(b, 1, n);
        for (size_t i = 0; i < n; i++) after += (double)a[i] * b[i];
        assert_true(fabs(before - after) < 1e-4);
        if (n >= 64) assert_true(fabsf(b[n / 2]) < 3);
        ag_hadamard(a, 1, n);
        for (size_t i = 0; i < n; i++) assert_true(fabsf(a[i] - c[i]) < 1e-6f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compacts_each_head_in_every_type),
        cmocka_unit_test(rejects_invalid_slot_lists),
        cmocka_unit_test(returns_pages_of_evicted_slots_to_the_system),
        cmocka_unit_test(promotes_full_blocks_to_huge_pages),
        cmocka_unit_test(rerotates_the_prefix_to_the_trained_distance),
        cmocka_unit_test(hadamard_keeps_products_and_undoes_itself),
    };
    return cmocka_run_group_tests(tests, make_backend, drop_backend);
}
