/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/cpu_backend.h"

#include "backend/cpu/features.h"
#include "core/alloc.h"
#include "core/fail.h"
#include "memory/galloc.h"
#include "platform/map.h"

#include <stdio.h>
#include <stdlib.h>

/* Initial scratch: enough for a decoded token of a small model. Larger problems grow it once;
 * attention grows it when a session is created. */
enum { SHARED_BYTES = 1 << 16, THREAD_BYTES = 1 << 17, ROPE_BYTES = 1 << 13 };

static void cpu_destroy(ag_backend *b) {
    ag_cpu_backend *cpu = ag_cpu_of(b);
    ag_pool_destroy(cpu->pool);
    ag_aligned_free(cpu->rope.memory);
    ag_aligned_free(cpu->scratch.threads);
    ag_aligned_free(cpu->scratch.shared);
    ag_aligned_free(cpu->parts);
    ag_free(cpu->bad_rows);
    if (!cpu->is_loader) ag_galloc_destroy(cpu->memory);
    ag_free(cpu);
}

static ag_memory *cpu_memory(ag_backend *b) { return ag_cpu_of(b)->memory; }

static const char *cpu_describe(ag_backend *b) { return ag_cpu_of(b)->description; }

static uint32_t cpu_n_threads(const ag_backend *b) {
    return ag_pool_threads(((const ag_cpu_backend *)(const void *)b)->pool);
}

static uint32_t cpu_batch_invariant_rows(const ag_backend *b) {
    (void)b;
    return AG_CPU_BATCH_INVARIANT_ROWS;
}

static void cpu_for_each(ag_backend *b, size_t n, ag_work_fn work, void *ctx) {
    ag_pool_run(ag_cpu_of(b)->pool, n, 1, work, ctx);
}

static const ag_weight_rounding *cpu_rounding(const ag_backend *b) {
    return &((const ag_cpu_backend *)(const void *)b)->kernels.rounding;
}

static ag_rows_times_fn *cpu_rows_times(const ag_backend *b) {
    return ((const ag_cpu_backend *)(const void *)b)->kernels.rows_times;
}

static ag_status cpu_open_loader(ag_backend *b, ag_backend **out, ag_error *err);

static const ag_backend_ops cpu_ops = {
    .name = "cpu",
    .destroy = cpu_destroy,
    .memory = cpu_memory,
    .matmul = ag_cpu_matmul_plain,
    .matmul_transposed = ag_cpu_matmul_transposed,
    .rms_norm = ag_cpu_rms_norm,
    .softmax = ag_cpu_softmax,
    .rope = ag_cpu_rope,
    .silu_mul = ag_cpu_silu_mul,
    .add_assign = ag_cpu_add_assign,
    .scale = ag_cpu_scale,
    .cast = ag_cpu_cast,
    .describe = cpu_describe,
    .n_threads = cpu_n_threads,
    .batch_invariant_rows = cpu_batch_invariant_rows,
    .matmul_group = ag_cpu_matmul_group,
    .matmul_gated = ag_cpu_matmul_gated,
    .matmul_experts = ag_cpu_matmul_experts,
    .prepare_weight = ag_cpu_prepare_weight,
    .open_loader = cpu_open_loader,
    .prepare_weight_at = ag_cpu_prepare_weight_at,
    .prepared_bytes = ag_cpu_prepared_bytes,
    .add_bias = ag_cpu_add_bias,
    .gelu_mul = ag_cpu_gelu_mul,
    .softcap = ag_cpu_softcap,
    .mul = ag_cpu_mul,
    .sigmoid_mul = ag_cpu_sigmoid_mul,
    .swiglu_clamped = ag_cpu_swiglu_clamped,
    .causal_conv = ag_cpu_causal_conv,
    .delta_rule = ag_cpu_delta_rule,
    .gather = ag_cpu_gather,
    .kv_write = ag_cpu_kv_write,
    .attention = ag_cpu_attention,
    .attention_reserve = ag_cpu_attention_reserve,
    .for_each = cpu_for_each,
    .rounding = cpu_rounding,
    .unpack = ag_cpu_unpack,
    .key_scores = ag_cpu_key_scores,
    .rows_times = cpu_rows_times,
};

/* ---- scratch ---- */

static ag_status grow_memory(ag_cpu_backend *cpu, unsigned char **p, size_t *have, size_t want,
                             size_t n_threads) {
    if (want <= *have) return AG_OK;
    size_t bytes = *have;
    while (bytes < want && bytes <= SIZE_MAX / 2) bytes *= 2;
    unsigned char *grown = NULL;
    if (bytes >= want && bytes <= SIZE_MAX / n_threads) grown = ag_aligned_alloc(bytes * n_threads);
    if (!grown)
        return AG_FAIL(&cpu->base.err, NOMEM, "scratch of %zu bytes of the CPU backend", want);
    ag_pages_prefer_huge(grown, bytes * n_threads);
    ag_aligned_free(*p);
    *p = grown;
    *have = bytes;
    return AG_OK;
}

ag_status ag_cpu_need_shared(ag_cpu_backend *cpu, size_t bytes) {
    return grow_memory(cpu, &cpu->scratch.shared, &cpu->scratch.shared_bytes, bytes, 1);
}

ag_status ag_cpu_need_threads(ag_cpu_backend *cpu, size_t bytes_each) {
    return grow_memory(cpu, &cpu->scratch.threads, &cpu->scratch.thread_bytes, bytes_each,
                       ag_pool_threads(cpu->pool));
}

ag_status ag_cpu_need_rope(ag_cpu_backend *cpu, size_t bytes) {
    return grow_memory(cpu, &cpu->rope.memory, &cpu->rope.bytes, bytes, 1);
}

void *ag_cpu_thread_scratch(const ag_cpu_backend *cpu, uint32_t thread) {
    return cpu->scratch.threads + thread * cpu->scratch.thread_bytes;
}

size_t ag_cpu_grain(const ag_cpu_backend *cpu, size_t n_rows, size_t min_rows) {
    enum { CHUNKS_A_THREAD = 4, MOST = 256 };
    size_t grain = n_rows / ((size_t)ag_pool_threads(cpu->pool) * CHUNKS_A_THREAD);
    if (grain > MOST) grain = MOST;
    if (grain < min_rows) grain = min_rows;
    return grain ? grain : 1;
}

/* ---- rows that cannot be converted ---- */

void ag_cpu_bad_rows_clear(ag_cpu_backend *cpu) {
    for (uint32_t i = 0; i < ag_pool_threads(cpu->pool); i++) {
        cpu->bad_rows[i] = (ag_cpu_bad_row){.row = SIZE_MAX};
    }
}

bool ag_cpu_bad_row_seen(const ag_cpu_backend *cpu, uint32_t thread) {
    return cpu->bad_rows[thread].row != SIZE_MAX;
}

/* Chunks are claimed in ascending order and a thread stops at its first bad row. The lowest bad row
 * is therefore always recorded. */
ag_cpu_bad_row ag_cpu_bad_row_lowest(const ag_cpu_backend *cpu) {
    ag_cpu_bad_row lowest = cpu->bad_rows[0];
    for (uint32_t i = 1; i < ag_pool_threads(cpu->pool); i++) {
        if (cpu->bad_rows[i].row < lowest.row) lowest = cpu->bad_rows[i];
    }
    return lowest;
}

/* ---- life ---- */

static ag_status choose_kernels(ag_cpu_backend *cpu, const char **isa, ag_error *err) {
    char names[64];
    const char *cap = getenv("AG_CPU_ISA");
    *isa = ag_cpu_kernels_init(&cpu->kernels, cap && *cap ? cap : NULL);
    if (*isa) return AG_OK;
    uint32_t all = (1u << AG_CPU_ISA_COUNT) - 1;
    return AG_FAIL(err, INVALID, "AG_CPU_ISA: unknown instruction set '%s'; known: %s", cap,
                   ag_cpu_features_format(all, names, sizeof names));
}

static ag_status init(ag_cpu_backend *cpu, uint32_t n_wanted, ag_error *err) {
    const char *isa;
    AG_TRY(choose_kernels(cpu, &isa, err));
    if (!cpu->is_loader) AG_TRY(ag_galloc_create(&cpu->memory, err));
    AG_TRY(ag_pool_create(n_wanted, &cpu->pool, err));
    const size_t n_threads = ag_pool_threads(cpu->pool);
    cpu->scratch.shared_bytes = SHARED_BYTES;
    cpu->scratch.thread_bytes = THREAD_BYTES;
    cpu->rope.bytes = ROPE_BYTES;
    cpu->rope.memory = ag_aligned_alloc(ROPE_BYTES);
    cpu->scratch.shared = ag_aligned_alloc(SHARED_BYTES);
    cpu->scratch.threads = ag_aligned_alloc(n_threads * THREAD_BYTES);
    cpu->bad_rows = ag_calloc(n_threads, sizeof *cpu->bad_rows);
    cpu->parts = ag_aligned_alloc(n_threads * sizeof *cpu->parts);
    if (!cpu->rope.memory || !cpu->scratch.shared || !cpu->scratch.threads || !cpu->bad_rows ||
        !cpu->parts) {
        return AG_FAIL(err, NOMEM, "scratch of %zu threads of the CPU backend", n_threads);
    }
    char sets[64];
    snprintf(cpu->description, sizeof cpu->description, "cpu: %zu thread%s, %s (this machine: %s)",
             n_threads, n_threads == 1 ? "" : "s", isa,
             ag_cpu_features_format(ag_cpu_features(), sets, sizeof sets));
    return AG_OK;
}

/* Creates a backend. lender: whose memory it uses; NULL: its own. */
static ag_status create(ag_cpu_backend *lender, uint32_t n_threads, ag_backend **out,
                        ag_error *err) {
    *out = NULL;
    ag_cpu_backend *cpu = ag_calloc(1, sizeof *cpu);
    if (!cpu) return AG_FAIL(err, NOMEM, "CPU backend");
    cpu->base.ops = &cpu_ops;
    cpu->is_loader = lender != NULL;
    if (lender) cpu->memory = lender->memory;
    ag_status st = init(cpu, n_threads, err);
    if (st != AG_OK) {
        cpu_destroy(&cpu->base);
        return st;
    }
    *out = &cpu->base;
    return AG_OK;
}

static ag_status cpu_open_loader(ag_backend *b, ag_backend **out, ag_error *err) {
    return create(ag_cpu_of(b), cpu_n_threads(b), out, err);
}

ag_status ag_cpu_backend_create(const ag_backend_params *params, ag_backend **out, ag_error *err) {
    return create(NULL, params ? params->n_threads : 0, out, err);
}
