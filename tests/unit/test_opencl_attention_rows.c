/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of sequences of one row each is one launch and gives the results of scalar code:
 * for sequences of different lengths, in one span and in several. So are sums of weights. */
#include "unit/opencl_device.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const uint32_t lengths[] = {0, 1, 127, 128, 129, 1000, 700};
enum { SEQS = sizeof lengths / sizeof *lengths, KV_HEADS = 2, EACH = 8, MAX_SLOTS = 1000 };
enum { N_BLOCKS = SEQS * KV_HEADS * EACH, MAX_DIM = 128, MAX_GROUP = 9 };
enum { MAX_VALUES = (SEQS + 1) * KV_HEADS * MAX_GROUP * MAX_DIM };

static ag_backend *device, *cpu;

typedef struct shape {
    uint32_t dim, group;
    ag_dtype k_type, v_type;
    bool windows;
    float softcap;
    bool sums, max; /* every second sequence has sums, or maxima, of attention weights */
} shape;

static float random_value(void) {
    static uint32_t state = 5;
    state = state * 1664525 + 1013904223;
    return (float)(int32_t)state * 0x1p-31f;
}

static ag_tensor random_rows(ag_backend *be, ag_buffer **owner, const float *values, ag_shape s) {
    ag_tensor t;
    ag_error err;
    assert_int_equal(
        ag_tensor_alloc(&t, owner, ag_backend_memory(be), AG_USAGE_SCRATCH, AG_F32, s, &err),
        AG_OK);
    assert_int_equal(ag_buffer_upload(*owner, 0, values, ag_shape_numel(&s) * sizeof *values, &err),
                     AG_OK);
    return t;
}

/* The caches of all sequences in one buffer, in reverse order. */
typedef struct caches {
    ag_buffer *storage;
    ag_kv_block blocks[SEQS][KV_HEADS * EACH];
    uint32_t slots[SEQS][KV_HEADS], until[SEQS], from[SEQS];
    ag_attention_seq seqs[SEQS];
    ag_buffer *sums[SEQS];                     /* on the device: [MAX_SLOTS][KV_HEADS] */
    float on_host[SEQS][KV_HEADS * MAX_SLOTS]; /* [KV_HEADS][MAX_SLOTS] */
    uint32_t scored[SEQS][KV_HEADS];
} caches;

static void make_caches(caches *c, ag_backend *be, const shape *s) {
    const ag_kv_sections parts = ag_kv_sections_of(s->k_type, s->v_type, s->dim);
    ag_error err;
    memset(c, 0, sizeof *c);
    assert_int_equal(ag_memory_alloc(ag_backend_memory(be), N_BLOCKS * parts.bytes, AG_USAGE_KV,
                                     &c->storage, &err),
                     AG_OK);
    for (size_t i = 0, b = 0; i < SEQS; i++) {
        for (size_t k = 0; k < KV_HEADS * EACH; k++) {
            c->blocks[i][k] = (ag_kv_block){c->storage, (N_BLOCKS - ++b) * parts.bytes};
        }
        c->until[i] = 3 * lengths[i];
        c->from[i] = lengths[i] > 500 ? 3 * 300 + 1 : lengths[i];
        c->seqs[i] = (ag_attention_seq){.row0 = 1 + i,
                                        .n_rows = 1,
                                        .visible_until = &c->until[i],
                                        .visible_from = s->windows ? &c->from[i] : NULL,
                                        .kv = {.k_type = s->k_type,
                                               .v_type = s->v_type,
                                               .n_kv_heads = KV_HEADS,
                                               .head_dim = s->dim,
                                               .v_offset = parts.v_offset,
                                               .p_offset = parts.p_offset,
                                               .blocks = c->blocks[i],
                                               .blocks_per_head = EACH,
                                               .n_slots = c->slots[i]}};
    }
}

/* Writes random tokens to the caches of the CPU backend. The second head has fewer slots, and the
 * row of one sequence does not see the last ones. */
static void fill_caches(caches *c, const shape *s) {
    static float values[MAX_SLOTS * KV_HEADS * MAX_DIM];
    static uint32_t positions[MAX_SLOTS];
    for (size_t i = 0; i < SEQS; i++) {
        const ag_shape tokens = ag_shape_3d(lengths[i], KV_HEADS, s->dim);
        ag_buffer *owners[2];
        ag_tensor t[2];
        if (!lengths[i]) continue;
        for (size_t k = 0; k < 2; k++) {
            for (size_t x = 0; x < ag_shape_numel(&tokens); x++) values[x] = random_value();
            t[k] = random_rows(cpu, &owners[k], values, tokens);
        }
        for (uint32_t x = 0; x < lengths[i]; x++) positions[x] = 3 * x;
        assert_int_equal(ag_kv_write(cpu, &c->seqs[i].kv, &t[0], &t[1], positions), AG_OK);
        for (size_t k = 0; k < 2; k++) ag_buffer_release(&owners[k]);
    }
}

static void set_slots(caches *c) {
    for (size_t i = 0; i < SEQS; i++) {
        c->slots[i][0] = lengths[i];
        c->slots[i][1] = lengths[i] - lengths[i] / 4;
    }
    c->until[4] = 3 * 100;
}

/* Gives every second sequence sums: one for each of the first slots, and old values behind. */
static void set_sums(caches *c, const shape *s, ag_backend *be) {
    float rows[MAX_SLOTS * KV_HEADS];
    ag_error err;
    for (size_t i = 0; i < SEQS && s->sums; i += 2) {
        ag_attention_seq *seq = &c->seqs[i];
        seq->score_max = s->max;
        for (size_t k = 0; k < MAX_SLOTS * KV_HEADS; k++) {
            const size_t head = k % KV_HEADS, slot = k / KV_HEADS;
            const bool has_sum = slot < c->slots[i][head] / 2;
            rows[k] = has_sum ? 0.25f : 100;
            c->on_host[i][head * MAX_SLOTS + slot] = has_sum ? 0.25f : 0;
        }
        if (be == cpu) {
            seq->scores = c->on_host[i];
            seq->score_stride = MAX_SLOTS;
            continue;
        }
        for (size_t h = 0; h < KV_HEADS; h++) c->scored[i][h] = c->slots[i][h] / 2;
        seq->scored = c->scored[i];
        if (!c->sums[i])
            assert_int_equal(ag_memory_alloc(ag_backend_memory(be), sizeof rows, AG_USAGE_SCRATCH,
                                             &c->sums[i], &err),
                             AG_OK);
        seq->device_scores = c->sums[i];
        assert_int_equal(ag_buffer_upload(c->sums[i], 0, rows, sizeof rows, &err), AG_OK);
    }
}

static void check_sums(const caches *have, const caches *want) {
    float rows[MAX_SLOTS * KV_HEADS];
    ag_error err;
    for (size_t i = 0; i < SEQS; i++) {
        if (!have->sums[i]) continue;
        assert_int_equal(ag_buffer_download(rows, have->sums[i], 0, sizeof rows, &err), AG_OK);
        for (size_t k = 0; k < MAX_SLOTS * KV_HEADS; k++) {
            const size_t head = k % KV_HEADS, slot = k / KV_HEADS;
            const float sum = want->on_host[i][head * MAX_SLOTS + slot];
            if (slot >= want->slots[i][head] || fabsf(rows[k] - sum) <= 1e-5f) continue;
            fail_msg("sequence %zu, head %zu, slot %zu: the sum is %g, not %g", i, head, slot,
                     (double)rows[k], (double)sum);
        }
    }
}

static void attend(ag_backend *be, const caches *c, const shape *s, const float *values,
                   float *out) {
    const ag_shape rows = ag_shape_3d(SEQS + 1, KV_HEADS * s->group, s->dim);
    const ag_attention_params params = {.scale = 8 / sqrtf((float)s->dim), .softcap = s->softcap};
    ag_buffer *owners[2];
    ag_error err;
    const ag_tensor q = random_rows(be, &owners[0], values, rows);
    ag_tensor result = random_rows(be, &owners[1], values, rows);
    if (ag_attention(be, &result, &q, c->seqs, SEQS, &params) != AG_OK)
        fail_msg("%s", ag_backend_error(be)->msg);
    assert_int_equal(ag_sync(be), AG_OK);
    assert_int_equal(
        ag_buffer_download(out, owners[1], 0, ag_shape_numel(&rows) * sizeof *out, &err), AG_OK);
    for (size_t k = 0; k < 2; k++) ag_buffer_release(&owners[k]);
}

static void copy_storage(ag_buffer *to, ag_buffer *from, size_t bytes) {
    unsigned char *copy = malloc(bytes);
    ag_error err;
    assert_non_null(copy);
    assert_int_equal(ag_buffer_download(copy, from, 0, bytes, &err), AG_OK);
    assert_int_equal(ag_buffer_upload(to, 0, copy, bytes, &err), AG_OK);
    free(copy);
}

/* Checks for one launch of the kernel, beside those that find addresses. */
static void check_launches(const ag_launch_info *kinds, size_t n, bool has_sums) {
    size_t n_rows = 0;
    for (size_t i = 0; i < n; i++) {
        if (strncmp(kinds[i].name, "address_of ", 11) == 0) continue;
        if (has_sums && strncmp(kinds[i].name, "sum_weights ", 12) == 0) continue;
        assert_int_equal(strncmp(kinds[i].name, "attend_rows ", 12), 0);
        n_rows += kinds[i].n;
    }
    assert_int_equal(n_rows, 1);
}

/* Attends with several spans and with one, each twice: counts of finished spans are zero again. */
static void check_shape(const shape *s) {
    static float q[MAX_VALUES], want[MAX_VALUES], have[MAX_VALUES];
    static const cl_uint units[] = {132, 132, 1, 1};
    const size_t n = (SEQS + 1) * KV_HEADS * s->group * s->dim;
    static caches on_cpu, on_device;
    ag_launch_info kinds[8];
    size_t n_kinds;
    make_caches(&on_cpu, cpu, s);
    make_caches(&on_device, device, s);
    fill_caches(&on_cpu, s);
    copy_storage(on_device.storage, on_cpu.storage,
                 N_BLOCKS * ag_kv_sections_of(s->k_type, s->v_type, s->dim).bytes);
    set_slots(&on_cpu);
    set_slots(&on_device);
    for (size_t i = 0; i < n; i++) q[i] = random_value();
    set_sums(&on_cpu, s, cpu);
    attend(cpu, &on_cpu, s, q, want);
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        ag_cl_of(device)->device.compute_units = units[u];
        assert_int_equal(ag_backend_launches(device, kinds, 8, &n_kinds), AG_OK);
        set_sums(&on_device, s, device);
        attend(device, &on_device, s, q, have);
        assert_int_equal(ag_backend_launches(device, kinds, 8, &n_kinds), AG_OK);
        check_launches(kinds, n_kinds, s->sums);
        check_sums(&on_device, &on_cpu);
        for (size_t i = 0; i < n; i++) {
            if (fabsf(have[i] - want[i]) <= 1e-5f) continue;
            fail_msg("dim %u, %u units: value %zu is %g, not %g", s->dim, units[u], i,
                     (double)have[i], (double)want[i]);
        }
    }
    ag_buffer_release(&on_cpu.storage);
    ag_buffer_release(&on_device.storage);
    for (size_t i = 0; i < SEQS; i++) ag_buffer_release(&on_device.sums[i]);
}

static void equals_scalar_code_when_sequences_share_a_launch(void **state) {
    (void)state;
    static const shape shapes[] = {
        {.dim = 64, .group = 4, .k_type = AG_F16, .v_type = AG_F16},
        {.dim = 64, .group = 9, .k_type = AG_Q8_0, .v_type = AG_Q4_0, .windows = true},
        {.dim = 96, .group = 3, .k_type = AG_Q4_0, .v_type = AG_Q8_0, .softcap = 5},
        {.dim = 128, .group = 5, .k_type = AG_F16, .v_type = AG_Q8_0},
        {.dim = 64, .group = 4, .k_type = AG_F16, .v_type = AG_F16, .sums = true},
        {.dim = 64,
         .group = 9,
         .k_type = AG_Q8_0,
         .v_type = AG_Q4_0,
         .softcap = 5,
         .sums = true,
         .max = true},
        {.dim = 16, .group = 1, .k_type = AG_F16, .v_type = AG_F16, .windows = true, .softcap = 3},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_shape(&shapes[i]);
}

int main(int argc, char **argv) {
    (void)argv;
    const ag_backend_params params = {.time_launches = true};
    ag_error err;
    setenv("AG_CPU_ISA", "common", 1);
    setenv("AG_OPENCL_LANES", "1", 1);
    setenv("AG_OPENCL_MMA", "1", 1);
    setenv("AG_OPENCL_ADDRESSES", argc > 1 ? "1" : "0", 1);
    if (ag_cl_backend_create(&params, &device, &err) != AG_OK) {
        printf("skipped: %s\n", err.msg);
        return EXIT_SKIPPED;
    }
    if (ag_backend_create(NULL, &cpu, NULL) != AG_OK) return EXIT_FAILURE;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_scalar_code_when_sequences_share_a_launch)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_backend_destroy(cpu);
    ag_backend_destroy(device);
    return failed;
}
