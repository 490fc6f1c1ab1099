/* SPDX-License-Identifier: Apache-2.0 */
/* Spill store: its file and file errors, key bounds, and rows that are stored and reloaded. */
#include "cache/key_bounds.h"
#include "cache/kv_rows.h"
#include "cache/reload.h"
#include "cache/spill.h"
#include "cache/spill_file.h"
#include "cache/spill_saved.h"

#include <antigravity/antigravity.h>
#include <antigravity/expert.h>

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { RECORD = 100 };

static char dir[] = "/tmp/ag-spill-XXXXXX";
static char path[64];

static int make_dir(void **state) {
    (void)state;
    if (!mkdtemp(dir)) return 1;
    snprintf(path, sizeof path, "%s/file", dir);
    return 0;
}

static int remove_dir(void **state) {
    (void)state;
    return rmdir(dir); /* fails if files remain */
}

/* ---- the file ---- */

static void fill(unsigned char *bytes, unsigned seed) {
    for (size_t i = 0; i < RECORD; i++) bytes[i] = (unsigned char)(seed * 31 + i * 7);
}

static uint64_t put(ag_spill_file *f, unsigned seed, uint32_t *record) {
    unsigned char bytes[RECORD];
    fill(bytes, seed);
    assert_true(ag_spill_file_put(f, bytes, sizeof bytes, record));
    return ag_spill_checksum(bytes, sizeof bytes);
}

static bool is_there(ag_spill_file *f, unsigned seed, uint32_t record) {
    unsigned char bytes[RECORD], want[RECORD];
    fill(want, seed);
    if (!ag_spill_file_get(f, record, bytes, sizeof bytes, ag_spill_checksum(want, sizeof want)))
        return false;
    assert_memory_equal(bytes, want, sizeof want);
    return true;
}

static void file_reuses_records(void **state) {
    (void)state;
    ag_spill_file *f = ag_spill_file_create(dir, RECORD, 4 * RECORD + 1);
    uint32_t record[5];
    unsigned char bytes[RECORD] = {0};
    for (unsigned i = 0; i < 4; i++) put(f, i, &record[i]);
    assert_true(ag_spill_file_is_full(f));
    assert_false(ag_spill_file_put(f, bytes, sizeof bytes, &record[4]));
    assert_null(ag_spill_file_trouble(f)); /* a limit is not a failure */
    assert_int_equal(ag_spill_file_bytes(f), 4 * RECORD);
    ag_spill_file_free(f, record[1]);
    put(f, 9, &record[4]);
    assert_int_equal(record[4], record[1]);
    assert_true(is_there(f, 0, record[0]) && is_there(f, 9, record[4]) &&
                is_there(f, 3, record[3]));
    ag_spill_file *same = ag_spill_file_share(f);
    ag_spill_file_release(f);
    assert_true(is_there(same, 2, record[2]));
    ag_spill_file_release(same);
}

static void named_file_is_private_and_removed(void **state) {
    (void)state;
    struct stat s;
    uint32_t record;
    unsigned char bytes[RECORD] = {0};
    ag_spill_file *f = ag_spill_file_create(path, RECORD, 0);
    assert_int_not_equal(stat(path, &s), 0); /* the first record creates the file */
    put(f, 1, &record);
    assert_int_equal(stat(path, &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    ag_spill_file *other = ag_spill_file_create(path, RECORD, 0); /* the path exists */
    assert_false(ag_spill_file_put(other, bytes, sizeof bytes, &record));
    assert_non_null(ag_spill_file_trouble(other));
    ag_spill_file_release(other);
    assert_int_equal(stat(path, &s), 0); /* the other file must not remove it */
    ag_spill_file_release(f);
    assert_int_not_equal(stat(path, &s), 0);
}

static void reports_damage_once(void **state) {
    (void)state;
    ag_spill_file *f = ag_spill_file_create(path, RECORD, 0);
    uint32_t record[3];
    char said[256];
    for (unsigned i = 0; i < 3; i++) put(f, i, &record[i]);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, RECORD + 50), 1);
    assert_true(is_there(f, 0, record[0]));
    assert_null(ag_spill_file_trouble(f));
    assert_false(is_there(f, 1, record[1]));
    assert_non_null(strstr(ag_spill_file_trouble(f), "damaged"));
    snprintf(said, sizeof said, "%s", ag_spill_file_trouble(f));
    assert_int_equal(ftruncate(fd, RECORD + 10), 0);
    assert_false(is_there(f, 2, record[2]));
    assert_string_equal(ag_spill_file_trouble(f), said); /* the first failure stays */
    assert_true(is_there(f, 0, record[0]));
    close(fd);
    assert_int_equal(unlink(path), 0); /* the open file keeps its records */
    assert_true(is_there(f, 0, record[0]));
    ag_spill_file_release(f);
}

static void keeps_a_file_that_replaced_its_own(void **state) {
    (void)state;
    ag_spill_file *f = ag_spill_file_create(path, RECORD, 0);
    uint32_t record;
    put(f, 1, &record);
    assert_int_equal(unlink(path), 0);
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    ag_spill_file_release(f);
    assert_int_equal(unlink(path), 0);
    close(fd);
}

static void file_size_limit_raises_no_signal(void **state) {
    (void)state;
    struct rlimit before, small;
    uint32_t record[2];
    unsigned char bytes[RECORD] = {0};
    ag_spill_file *f = ag_spill_file_create(dir, RECORD, 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_DFL);
    small = before;
    small.rlim_cur = RECORD + 1;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    put(f, 1, &record[0]);
    const bool fits = ag_spill_file_put(f, bytes, sizeof bytes, &record[1]);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_false(fits);
    assert_non_null(ag_spill_file_trouble(f));
    put(f, 2, &record[1]); /* continues when there is space again */
    assert_true(is_there(f, 1, record[0]) && is_there(f, 2, record[1]));
    ag_spill_file_release(f);
}

static void survives_a_file_that_cannot_be_created(void **state) {
    (void)state;
    uint32_t record;
    unsigned char bytes[RECORD] = {0};
    ag_spill_file *f = ag_spill_file_create("/nonexistent/spill", RECORD, 0);
    assert_false(ag_spill_file_put(f, bytes, sizeof bytes, &record));
    assert_non_null(strstr(ag_spill_file_trouble(f), "/nonexistent/spill"));
    assert_string_equal(ag_spill_file_unreported_trouble(f), ag_spill_file_trouble(f));
    assert_false(ag_spill_file_put(f, bytes, sizeof bytes, &record));
    assert_null(ag_spill_file_unreported_trouble(f));
    ag_spill_file_release(f);
}

/* ---- key bounds ---- */

static float dice(void) { return (float)rand() / (float)RAND_MAX * 2 - 1; }

static void key_bounds_estimate_the_largest_product(void **state) {
    (void)state;
    enum { MOST = 80, N = 16 };
    float keys[N * MOST], q[MOST], parts[2 * MOST], work[2 * MOST];
    float bounds[MOST];
    const size_t dims[] = {1, 7, 20, 64, 80};
    srand(3);
    for (size_t t = 0; t < 2000; t++) {
        const size_t dim = dims[t % 5], n = 1 + t % N;
        const float size = t % 3 ? 1 : 300;
        float most = 0, middle = 0, wide = 0;
        for (size_t i = 0; i < n * dim; i++) keys[i] = size * dice();
        for (size_t i = 0; i < dim; i++) q[i] = dice();
        if (t % 11 == 0) memset(keys, 0, sizeof keys);
        for (size_t d = 0; d < dim; d++) {
            float high = keys[d], low = keys[d];
            for (size_t i = 1; i < n; i++) {
                high = fmaxf(high, keys[i * dim + d]);
                low = fminf(low, keys[i * dim + d]);
            }
            most += q[d] * (q[d] > 0 ? high : low);
            middle += q[d] * (high + low) / 2;
            wide += fabsf(q[d]) * size / 126;
        }
        assert_true(ag_key_bounds_bytes(dim) <= sizeof bounds);
        ag_key_bounds_make(bounds, keys, n, dim, work);
        ag_key_bounds_query(parts, q, dim);
        /* Levels are rounded outwards in each dimension. One key gives its own product. */
        const float likely = ag_key_bounds_likely(bounds, parts, dim);
        assert_true(fabsf(likely - (most + middle) / 2) <= wide + 1e-4f * size);
    }
}

/* ---- rows ---- */

typedef struct kept {
    uint32_t n, positions[300];
    float k[300][32], v[300][32];
} kept;

static void read_all(ag_kv_cache *c, uint32_t head, kept *out) {
    memset(out, 0, sizeof *out);
    out->n = ag_kv_cache_n_slots(c, 0, head);
    for (uint32_t s = 0; s < out->n; s++) {
        out->positions[s] = ag_kv_cache_position(c, 0, head, s);
        assert_int_equal(ag_kv_cache_read(c, 0, head, s, out->k[s], out->v[s], NULL), AG_OK);
    }
}

static ag_kv_cache *make_cache(ag_backend *be, ag_dtype type) {
    enum { N = 280, DIM = 32 };
    const ag_kv_params p = {.n_layers = 1,
                            .n_kv_heads = 2,
                            .head_dim = DIM,
                            .max_slots = 300,
                            .k_type = type,
                            .v_type = type};
    ag_kv_cache *c;
    ag_buffer *owner;
    ag_tensor rows;
    uint32_t positions[N];
    assert_int_equal(ag_kv_cache_create(be, &p, &c, NULL), AG_OK);
    assert_int_equal(ag_tensor_alloc(&rows, &owner, ag_backend_memory(be), AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_3d(N, 2, DIM), NULL),
                     AG_OK);
    for (size_t i = 0; i < (size_t)N * 2 * DIM; i++) ag_tensor_f32(&rows)[i] = dice();
    for (uint32_t i = 0; i < N; i++) positions[i] = 3 * i;
    assert_int_equal(ag_kv_cache_update(c, 0, &rows, &rows, positions, NULL), AG_OK);
    ag_buffer_release(&owner);
    return c;
}

/* Some slots are stored and reloaded: the head, and the other one, are bit-identical. */
static void stores_and_reloads_rows(void **state) {
    (void)state;
    enum { ROW = 32 * sizeof(float), N_OUT = 140 };
    const ag_dtype types[] = {AG_F32, AG_F16, AG_Q8_0, AG_Q4_0};
    static kept before[2], after[2];
    ag_backend *be;
    assert_int_equal(ag_backend_create(NULL, &be, NULL), AG_OK);
    for (int t = 0; t < 4; t++) {
        ag_kv_cache *c = make_cache(be, types[t]), *fork;
        uint32_t out[N_OUT], keep[300], n_out = 0, n_keep = 0, positions[N_OUT], slots[N_OUT];
        static uint8_t k[N_OUT * ROW], v[N_OUT * ROW];
        float values[32];
        for (uint32_t h = 0; h < 2; h++) read_all(c, h, &before[h]);
        for (uint32_t s = 0; s < before[1].n; s++) {
            if (s % 2) out[n_out++] = s;
            else keep[n_keep++] = s;
        }
        ag_kv_rows rows = {types[t], types[t], n_out, positions, k, v};
        assert_int_equal(ag_kv_cache_get_rows(c, 0, 1, out, &rows, values, NULL), AG_OK);
        assert_int_equal(positions[1], 9);
        /* Cached positions are not inserted twice. */
        assert_int_equal(ag_kv_cache_put_rows(c, 0, 1, &rows, slots, values, NULL), AG_LIMIT);
        rows.n = 1;
        assert_int_equal(ag_kv_cache_put_rows(c, 0, 1, &rows, slots, values, NULL), AG_INVALID);
        rows.n = n_out;
        assert_int_equal(ag_kv_cache_compact(c, 0, 1, keep, n_keep, NULL), AG_OK);
        assert_int_equal(ag_kv_cache_fork(c, &fork, NULL), AG_OK);
        assert_int_equal(ag_kv_cache_put_rows(c, 0, 1, &rows, slots, values, NULL), AG_OK);
        assert_memory_equal(slots, out, n_out * sizeof *out);
        for (uint32_t h = 0; h < 2; h++) {
            read_all(c, h, &after[h]);
            assert_memory_equal(&after[h], &before[h], sizeof before[h]);
        }
        assert_int_equal(ag_kv_cache_n_slots(fork, 0, 1), n_keep); /* the fork is unchanged */
        assert_int_equal(ag_kv_cache_position(fork, 0, 1, 1), 6);
        ag_kv_cache_destroy(fork);
        ag_kv_cache_destroy(c);
    }
    ag_backend_destroy(be);
}

/* A value out of the type's range among others: no slot has moved. */
static void insert_fails_without_change_when_out_of_range(void **state) {
    (void)state;
    enum { ROW = 32 * sizeof(float), N_OUT = 20 };
    static kept before, after;
    static uint8_t k[N_OUT * ROW], v[N_OUT * ROW];
    uint32_t out[N_OUT], keep[300], n_keep = 0, positions[N_OUT], slots[N_OUT];
    float values[32];
    const float large = 1e6f;
    ag_backend *be;
    assert_int_equal(ag_backend_create(NULL, &be, NULL), AG_OK);
    ag_kv_cache *c = make_cache(be, AG_F16);
    for (uint32_t i = 0; i < N_OUT; i++) out[i] = 100 + 2 * i;
    for (uint32_t s = 0; s < 280; s++)
        if (s < 100 || s >= 140 || s % 2) keep[n_keep++] = s;
    ag_kv_rows rows = {AG_F32, AG_F32, N_OUT, positions, k, v};
    assert_int_equal(ag_kv_cache_get_rows(c, 0, 1, out, &rows, values, NULL), AG_OK);
    assert_int_equal(ag_kv_cache_compact(c, 0, 1, keep, n_keep, NULL), AG_OK);
    read_all(c, 1, &before);
    memcpy(v + 3 * ROW, &large, sizeof large);
    assert_int_equal(ag_kv_cache_put_rows(c, 0, 1, &rows, slots, values, NULL), AG_FORMAT);
    read_all(c, 1, &after);
    assert_memory_equal(&after, &before, sizeof before);
    ag_kv_cache_destroy(c);
    ag_backend_destroy(be);
}

/* ---- blocks ---- */

enum { BLOCK = 8, BLOCK_BYTES = BLOCK * (4 + 4 + 2 * 32 * sizeof(float)) };

/* Lists slots [first, first + n) of a head. */
static void take(ag_spill *s, uint32_t head, uint32_t first, uint32_t n) {
    uint32_t slots[300];
    for (uint32_t i = 0; i < n; i++) slots[i] = first + i;
    ag_spill_store(s, NULL, 0, head, slots, n);
}

/* A full file is shared by all heads; the oldest blocks are dropped. */
static void full_file_retains_blocks_of_every_head(void **state) {
    (void)state;
    const ag_spill_params p = {
        .path = dir, .block = BLOCK, .exact = true, .max_bytes = 8 * BLOCK_BYTES};
    ag_backend *be;
    ag_spill *s;
    ag_spill_stats st;
    assert_int_equal(ag_backend_create(NULL, &be, NULL), AG_OK);
    ag_kv_cache *c = make_cache(be, AG_F32);
    assert_int_equal(ag_spill_create(&p, c, &s, NULL), AG_OK);
    take(s, 0, 0, 80);
    assert_int_equal(ag_spill_n_blocks(s, 0, 0), 8);
    take(s, 1, 0, 80);
    assert_true(ag_spill_n_blocks(s, 0, 0) >= 3 && ag_spill_n_blocks(s, 0, 1) >= 3);
    assert_int_equal(ag_spill_n_blocks(s, 0, 0) + ag_spill_n_blocks(s, 0, 1), 8);
    ag_spill_stats_of(s, &st);
    assert_int_equal(st.n_failed, 0);
    assert_int_equal(st.n_dropped, 160 - 64);
    assert_true(st.file_bytes <= p.max_bytes);
    ag_spill_destroy(s);
    ag_kv_cache_destroy(c);
    ag_backend_destroy(be);
}

/* Also if blocks of the same store call were dropped. */
static void cancels_a_store(void **state) {
    (void)state;
    const ag_spill_params p = {
        .path = dir, .block = BLOCK, .exact = true, .max_bytes = 3 * BLOCK_BYTES};
    ag_backend *be;
    ag_spill *s, *fork;
    assert_int_equal(ag_backend_create(NULL, &be, NULL), AG_OK);
    ag_kv_cache *c = make_cache(be, AG_F32);
    assert_int_equal(ag_spill_create(&p, c, &s, NULL), AG_OK);
    take(s, 0, 0, 8);
    take(s, 1, 0, 8);
    take(s, 0, 8, 48);
    ag_spill_cancel_store(s, 0, 0);
    assert_int_equal(ag_spill_n_blocks(s, 0, 0), 0);
    take(s, 0, 60, 16);
    /* Does not include blocks of another store. */
    assert_int_equal(ag_spill_create(&p, c, &fork, NULL), AG_OK);
    assert_int_equal(ag_spill_copy(fork, s, NULL), AG_OK);
    const uint32_t n = ag_spill_n_blocks(fork, 0, 0);
    for (int i = 0; i < 6; i++) {
        take(fork, 0, 100 + 8 * (uint32_t)i, 8);
        ag_spill_cancel_store(fork, 0, 0);
        assert_int_equal(ag_spill_n_blocks(fork, 0, 0), n);
    }
    ag_spill_destroy(fork);
    /* A store with another limit uses a file of its own from then on. */
    const ag_spill_params other = {
        .path = dir, .block = BLOCK, .exact = true, .max_bytes = 9 * BLOCK_BYTES};
    ag_spill_stats st;
    assert_int_equal(ag_spill_create(&other, c, &fork, NULL), AG_OK);
    assert_int_equal(ag_spill_copy(fork, s, NULL), AG_OK);
    take(fork, 0, 100, 64);
    ag_spill_stats_of(fork, &st);
    assert_int_equal(st.n_failed, 0);
    assert_int_equal(ag_spill_n_blocks(fork, 0, 0), n + 8);
    ag_spill_destroy(fork);
    ag_spill_destroy(s);
    ag_kv_cache_destroy(c);
    ag_backend_destroy(be);
}

/* However badly blocks are filled, the tracked blocks stay within the plan. */
static void single_slots_stay_within_planned_memory(void **state) {
    (void)state;
    const ag_spill_params p = {.path = dir, .block = 128};
    ag_backend *be;
    ag_spill *s;
    ag_spill_stats st;
    assert_int_equal(ag_backend_create(NULL, &be, NULL), AG_OK);
    ag_kv_cache *c = make_cache(be, AG_F32);
    assert_int_equal(ag_spill_create(&p, c, &s, NULL), AG_OK);
    for (uint32_t i = 0; i < 280; i++) take(s, i % 2, i, 1);
    const uint32_t n = ag_spill_n_blocks(s, 0, 0) + ag_spill_n_blocks(s, 0, 1);
    assert_true(n > 0 && n <= 4 * (2 * 300 / 128 + 2)); /* the limit of ag_spill_plan_bytes() */
    ag_spill_stats_of(s, &st);
    assert_int_equal(st.n_dropped, 280 - n);
    ag_spill_destroy(s);
    ag_kv_cache_destroy(c);
    ag_backend_destroy(be);
}

/* ---- saved ---- */

typedef struct memory_file {
    uint8_t bytes[1 << 16];
    size_t n, at;
} memory_file;

static ag_status put_bytes(void *user, const void *bytes, size_t n, ag_error *err) {
    memory_file *f = user;
    (void)err;
    assert_true(f->n + n <= sizeof f->bytes);
    memcpy(f->bytes + f->n, bytes, n);
    f->n += n;
    return AG_OK;
}

static ag_status get_bytes(void *user, void *bytes, size_t n, ag_error *err) {
    memory_file *f = user;
    (void)err;
    assert_true(f->at + n <= f->n);
    memcpy(bytes, f->bytes + f->at, n);
    f->at += n;
    return AG_OK;
}

static ag_status load_again(memory_file *f, ag_kv_cache *c, ag_error *err) {
    const ag_spill_params p = {.path = dir, .block = BLOCK};
    ag_spill *s;
    assert_int_equal(ag_spill_create(&p, c, &s, NULL), AG_OK);
    f->at = 0;
    const ag_status st = ag_spill_load(s, c, f->n, 3 * 280, "file", get_bytes, f, err);
    ag_spill_destroy(s);
    return st;
}

/* Loading rejects blocks that could not be reloaded. */
static void rejects_saved_duplicates_and_nan(void **state) {
    (void)state;
    static memory_file f, twice;
    const ag_spill_params p = {.path = dir, .block = BLOCK};
    uint32_t keep[280];
    ag_backend *be;
    ag_spill *s;
    ag_error err;
    assert_int_equal(ag_backend_create(NULL, &be, NULL), AG_OK);
    ag_kv_cache *c = make_cache(be, AG_F16);
    assert_int_equal(ag_spill_create(&p, c, &s, NULL), AG_OK);
    take(s, 0, 16, 8);
    f.n = twice.n = 0;
    assert_int_equal(ag_spill_save(s, put_bytes, &f, NULL), AG_OK);
    take(s, 0, 20, 8);
    assert_int_equal(ag_spill_save(s, put_bytes, &twice, NULL), AG_OK);
    assert_int_equal(load_again(&f, c, &err), AG_FORMAT); /* the slots are still cached */
    assert_non_null(strstr(err.msg, "position 48 occurs twice"));
    for (uint32_t i = 0, k = 0; i < 280; i++)
        if (i < 16 || i >= 28) keep[k++] = i;
    assert_int_equal(ag_kv_cache_compact(c, 0, 0, keep, 280 - 12, NULL), AG_OK);
    assert_int_equal(load_again(&f, c, &err), AG_OK);
    assert_int_equal(load_again(&twice, c, &err), AG_FORMAT);
    /* After the number of blocks, the header, positions and sums: the scale of the first key. */
    const size_t scale = 4 + 3 * 4 + 2 * BLOCK * 4;
    f.bytes[scale] = 0xff;
    f.bytes[scale + 1] = 0x7b;
    assert_int_equal(load_again(&f, c, &err), AG_FORMAT);
    assert_non_null(strstr(err.msg, "damaged: a key, value or state is"));
    ag_spill_destroy(s);
    ag_kv_cache_destroy(c);
    ag_backend_destroy(be);
}

/* Keys smaller than a level. */
static void key_bounds_of_zero_keys_are_finite(void **state) {
    (void)state;
    float keys[4] = {1e-44f, -1.9e-43f, 0, 1e-45f}, work[8], q[4] = {1, 1, 1, 1}, parts[8];
    unsigned char bounds[64];
    ag_key_bounds_make(bounds, keys, 1, 4, work);
    ag_key_bounds_query(parts, q, 4);
    assert_true(isfinite(ag_key_bounds_likely(bounds, parts, 4)));
}

/* ---- reload ---- */

/* Fills 16 slots from `first` on: alternating extremes, or one key. */
static void fill_keys(ag_tensor *rows, uint32_t first, float x, float y) {
    for (uint32_t i = first; i < first + 16; i++) {
        float *key = ag_tensor_f32(rows) + i * 2;
        key[0] = i % 2 ? -x : x;
        key[1] = i % 2 ? -y : y;
    }
}

static ag_kv_cache *cache_of_keys(ag_backend *be, ag_tensor *rows, uint32_t n) {
    const ag_kv_params p = {.n_layers = 1,
                            .n_kv_heads = 1,
                            .head_dim = 2,
                            .max_slots = 128,
                            .k_type = AG_F32,
                            .v_type = AG_F32};
    ag_kv_cache *c;
    uint32_t positions[128];
    for (uint32_t i = 0; i < n; i++) positions[i] = i;
    assert_int_equal(ag_kv_cache_create(be, &p, &c, NULL), AG_OK);
    assert_int_equal(ag_kv_cache_update(c, 0, rows, rows, positions, NULL), AG_OK);
    return c;
}

/* A resident group whose key bounds exceed the product of each of its keys. Its upper bound must
 * not prevent the reload of a block with a larger product. */
static void reloads_a_block_for_a_group_of_lower_weight(void **state) {
    (void)state;
    enum { N = 33 }; /* a stored block, a resident group, the newest slot */
    ag_backend *be;
    ag_buffer *owners[2];
    ag_tensor rows, q;
    uint32_t leaving[16], keep[N];
    const ag_spill_params params = {.path = dir};
    assert_int_equal(ag_backend_create(NULL, &be, NULL), AG_OK);
    assert_int_equal(ag_tensor_alloc(&rows, &owners[0], ag_backend_memory(be), AG_USAGE_SCRATCH,
                                     AG_F32, ag_shape_3d(N, 1, 2), NULL),
                     AG_OK);
    assert_int_equal(ag_tensor_alloc(&q, &owners[1], ag_backend_memory(be), AG_USAGE_SCRATCH,
                                     AG_F32, ag_shape_3d(1, 1, 2), NULL),
                     AG_OK);
    ag_tensor_f32(&q)[0] = ag_tensor_f32(&q)[1] = 1;
    for (int wanted = 0; wanted < 2; wanted++) {
        const float of_block = wanted ? 6 : -6;
        fill_keys(&rows, 16, 10, -10); /* products of 0, although its bounds would give 20 */
        for (size_t i = 0; i < (size_t)16 * 2; i++) ag_tensor_f32(&rows)[i] = of_block / 2;
        ag_tensor_f32(&rows)[32 * 2] = ag_tensor_f32(&rows)[32 * 2 + 1] = 0;
        ag_kv_cache *c = cache_of_keys(be, &rows, N);
        ag_spill *spill;
        ag_reloader *r;
        assert_int_equal(ag_spill_create(&params, c, &spill, NULL), AG_OK);
        assert_int_equal(ag_reloader_create(c, spill, &r, NULL), AG_OK);
        for (uint32_t i = 0; i < 16; i++) leaving[i] = i;
        for (uint32_t i = 0; i < N - 16; i++) keep[i] = 16 + i;
        ag_spill_store(spill, NULL, 0, 0, leaving, 16);
        assert_int_equal(ag_spill_n_blocks(spill, 0, 0), 1);
        assert_int_equal(ag_kv_cache_compact(c, 0, 0, keep, N - 16, NULL), AG_OK);
        ag_reloader_begin(r, &(ag_reload_pass){.n_rows = 1, .recent = 1, .n_slots = N - 16});
        assert_int_equal(ag_reloader_run_layer(r, 0, &q, 1, NULL), AG_OK);
        assert_int_equal(ag_kv_cache_n_slots(c, 0, 0), N - 16);
        assert_int_equal(ag_kv_cache_position(c, 0, 0, 0), wanted ? 0 : 16);
        ag_reloader_destroy(r);
        ag_spill_destroy(spill);
        ag_kv_cache_destroy(c);
    }
    for (int i = 0; i < 2; i++) ag_buffer_release(&owners[i]);
    ag_backend_destroy(be);
}

/* One block is inserted. The other holds positions that are still in the cache. */
static void failed_reload_keeps_the_block(void **state) {
    (void)state;
    enum { N = 33, HALF = 8 };
    const ag_spill_params params = {.path = dir, .block = HALF, .exact = true};
    uint32_t slots[2][HALF], keep[N];
    ag_backend *be;
    ag_buffer *owners[2];
    ag_tensor rows, q;
    ag_spill *spill;
    ag_reloader *r;
    ag_spill_stats stats;
    ag_spilled_rows block;
    assert_int_equal(ag_backend_create(NULL, &be, NULL), AG_OK);
    assert_int_equal(ag_tensor_alloc(&rows, &owners[0], ag_backend_memory(be), AG_USAGE_SCRATCH,
                                     AG_F32, ag_shape_3d(N, 1, 2), NULL),
                     AG_OK);
    assert_int_equal(ag_tensor_alloc(&q, &owners[1], ag_backend_memory(be), AG_USAGE_SCRATCH,
                                     AG_F32, ag_shape_3d(1, 1, 2), NULL),
                     AG_OK);
    ag_tensor_f32(&q)[0] = ag_tensor_f32(&q)[1] = 1;
    for (size_t i = 0; i < (size_t)N * 2; i++) ag_tensor_f32(&rows)[i] = i < 32 ? 3 : 0;
    ag_kv_cache *c = cache_of_keys(be, &rows, N);
    assert_int_equal(ag_spill_create(&params, c, &spill, NULL), AG_OK);
    assert_int_equal(ag_reloader_create(c, spill, &r, NULL), AG_OK);
    for (uint32_t i = 0; i < HALF; i++) {
        slots[0][i] = i;
        slots[1][i] = HALF + i;
    }
    for (uint32_t i = 0; i < N - HALF; i++) keep[i] = i < HALF ? i : HALF + i;
    for (int i = 0; i < 2; i++) ag_spill_store(spill, NULL, 0, 0, slots[i], HALF);
    assert_int_equal(ag_kv_cache_compact(c, 0, 0, keep, N - HALF, NULL), AG_OK);
    ag_reloader_begin(r, &(ag_reload_pass){.n_rows = 1, .recent = 1, .n_slots = N + HALF});
    assert_int_equal(ag_reloader_run_layer(r, 0, &q, 1, NULL), AG_INVALID);
    assert_int_equal(ag_kv_cache_n_slots(c, 0, 0), N);
    assert_int_equal(ag_spill_n_blocks(spill, 0, 0), 1);
    ag_spill_stats_of(spill, &stats);
    assert_int_equal(stats.n_reloaded, HALF);
    assert_int_equal(stats.n_failed, 0);
    assert_int_equal(ag_spilled_rows_create(ag_kv_cache_params(c), &block, NULL), AG_OK);
    assert_true(ag_spill_read(spill, 0, 0, 0, &block));
    assert_int_equal(block.rows.n, HALF);
    for (uint32_t i = 0; i < HALF; i++) assert_int_equal(block.rows.positions[i], i);
    for (size_t i = 0; i < (size_t)HALF * 2; i++)
        assert_float_equal(((const float *)(const void *)block.rows.k)[i], 3, 0);
    ag_spilled_rows_release(&block);
    ag_reloader_destroy(r);
    ag_spill_destroy(spill);
    ag_kv_cache_destroy(c);
    for (int i = 0; i < 2; i++) ag_buffer_release(&owners[i]);
    ag_backend_destroy(be);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_reuses_records),
        cmocka_unit_test(named_file_is_private_and_removed),
        cmocka_unit_test(reports_damage_once),
        cmocka_unit_test(keeps_a_file_that_replaced_its_own),
        cmocka_unit_test(file_size_limit_raises_no_signal),
        cmocka_unit_test(survives_a_file_that_cannot_be_created),
        cmocka_unit_test(key_bounds_estimate_the_largest_product),
        cmocka_unit_test(stores_and_reloads_rows),
        cmocka_unit_test(insert_fails_without_change_when_out_of_range),
        cmocka_unit_test(full_file_retains_blocks_of_every_head),
        cmocka_unit_test(cancels_a_store),
        cmocka_unit_test(single_slots_stay_within_planned_memory),
        cmocka_unit_test(rejects_saved_duplicates_and_nan),
        cmocka_unit_test(key_bounds_of_zero_keys_are_finite),
        cmocka_unit_test(reloads_a_block_for_a_group_of_lower_weight),
        cmocka_unit_test(failed_reload_keeps_the_block),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
