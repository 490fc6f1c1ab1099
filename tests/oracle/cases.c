/* SPDX-License-Identifier: Apache-2.0 */
/* A line for each operation: types, sizes, kinds of data, tolerance. Every combination is a case.
 */
#include "oracle/oracle.h"

#include "backend/cpu/kernels.h"

#include <stdlib.h>
#include <string.h>

/* Tolerances are mean squared errors over the mean square of the result. Sums in double and one
 * rounding to float leave about 1e-15; where data cancel, the sum is small and the error is not. */
#define ROUNDING 1e-13
/* Sums in float: a lane of 8 adds up to 1024 products, each addition off by 2^-25 at most. */
#define FLOAT_SUMS 1e-12
/* Products with prepared blocks round the input to 8 bits, 32 values together: errors of up to
 * 1/254 of the largest. Uniform values lose 1.6e-5, those of very different sizes more. */
#define ROUNDED_INPUT 2e-4
/* Matrix units multiply numbers of 8 bits of mantissa: products of prepared blocks are off by 5e-6
 * and stay below ROUNDED_INPUT; of attention, weights off by as much as a score of 8 is, and their
 * values. Measured: 1.5e-5. */
#define ATTENTION_TILES 5e-5
/* Tensor cores round queries, keys that are not F16, and weights to 11 bits. Measured: 1.7e-7. */
#define ATTENTION_F16 5e-7
/* Vector kernels round the queries of quantised keys to 16 bits, 32 values together: a score of up
 * to 60 is off by 1e-4 at most. Measured: 4.6e-10. */
#define ROUNDED_QUERIES 2e-9
/* Sums in float without a wider type at hand, where a single value of two that cancel may be all
 * there is to compare. A value left out is wrong by 1e-6 and more. */
#define FLOATS_ALONE 1e-10
#define EXACT 0.0
/* Attention rounds a score of up to 60 to float before its exponential is taken. */
#define ATTENTION 1e-10

typedef struct size {
    size_t m, n, k;
} size;

/* Around the widths of vectors, blocks and panels. */
static const size matmul_sizes[] = {{1, 1, 1},    {1, 7, 15},   {2, 15, 7},    {3, 17, 33},
                                    {7, 33, 17},  {1, 33, 127}, {5, 127, 1},   {33, 3, 127},
                                    {300, 2, 31}, {8, 64, 640}, {1, 65, 8200}, {70, 130, 192}};
static const size block_sizes[] = {{1, 1, 32},   {1, 33, 96},  {2, 15, 64},  {7, 17, 288},
                                   {33, 3, 128}, {300, 2, 32}, {8, 64, 640}, {1, 65, 8192}};
/* With enough products to average over. */
static const size prepared_sizes[] = {
    {1, 33, 96},   {2, 15, 64},    {3, 16, 32},    {7, 17, 288},    {16, 31, 96},  {17, 16, 64},
    {33, 3, 128},  {300, 2, 32},   {8, 64, 640},   {31, 48, 96},    {1, 65, 8192}, {64, 80, 2080},
    {65, 300, 96}, {96, 47, 2112}, {130, 17, 192}, {20, 150, 1024}, {64, 80, 1024}};
static const size weight_sizes[] = {{1, 33, 96}, {7, 17, 288}, {33, 3, 128}};
static const size sizes_of_256[] = {{1, 33, 512}, {7, 17, 768}, {33, 3, 256}};
static const size prepared_sizes_of_256[] = {
    {1, 33, 256},   {2, 15, 512},   {3, 16, 256},   {7, 17, 768},   {16, 31, 256},
    {17, 16, 512},  {33, 3, 256},   {8, 64, 512},   {1, 65, 8192},  {64, 80, 768},
    {65, 300, 256}, {96, 47, 2304}, {130, 17, 256}, {20, 150, 1024}};
static const size row_sizes[] = {{1, 1, 0},  {1, 7, 0},   {3, 15, 0},   {2, 17, 0},
                                 {5, 33, 0}, {2, 127, 0}, {1, 8192, 0}, {70, 257, 0}};
static const size hadamard_sizes[] = {{1, 1, 0}, {3, 2, 0}, {5, 40, 0}, {2, 96, 0}, {33, 128, 0}};
/* best, of a row */
static const size top_k_sizes[] = {{1, 1, 0},     {3, 2, 0},     {40, 33, 0},     {1, 2049, 0},
                                   {40, 4096, 0}, {64, 5000, 0}, {384, 20000, 0}, {104, 40000, 0}};
/* rope: rows, head_dim, heads */
static const size rope_sizes[] = {{1, 2, 1},  {3, 14, 1},  {1, 30, 7},
                                  {2, 34, 3}, {40, 64, 4}, {7, 126, 1}};
/* causal_conv: rows, channels, taps; delta_rule: rows, values, keys of a head */
static const size conv_sizes[] = {{1, 1, 2},   {2, 7, 3},   {3, 17, 4},  {1, 33, 8},
                                  {6, 127, 3}, {70, 65, 4}, {9, 4100, 3}};
static const size delta_sizes[] = {{1, 1, 1},    {2, 7, 3},    {3, 17, 15},
                                   {1, 33, 64},  {6, 40, 31},  {70, 64, 32},
                                   {5, 128, 64}, {5, 64, 128}, {5, 128, 128}};
/* gather: rows, columns, rows of the table; cast: rows, columns */
static const size table_sizes[] = {{1, 1, 1}, {3, 7, 2}, {5, 33, 17}, {200, 127, 33}};
static const size block_table_sizes[] = {{1, 32, 1}, {3, 64, 5}, {200, 96, 33}};
static const size table_sizes_of_256[] = {{1, 256, 1}, {3, 512, 5}};
/* attention: queries, slots, head_dim */
static const size attention_sizes[] = {{1, 1, 1},    {2, 7, 15},   {3, 127, 17},  {1, 128, 33},
                                       {9, 129, 40}, {1, 700, 64}, {33, 300, 64}, {64, 600, 128}};
static const size block_attention_sizes[] = {{1, 1, 32},    {3, 127, 32},  {1, 129, 96},
                                             {33, 300, 64}, {11, 513, 32}, {64, 600, 96}};
static const size weights_sizes[] = {{1, 1, 1},    {3, 127, 17},  {9, 129, 40},
                                     {9, 700, 64}, {33, 300, 64}, {40, 600, 128}};
static const size unscored_sizes[] = {{1, 1, 16},    {1, 300, 40},  {3, 127, 17},
                                      {13, 257, 80}, {33, 300, 64}, {22, 700, 128}};
static const size block_unscored_sizes[] = {{1, 129, 96}, {33, 300, 64}, {12, 600, 96}};
static const size softcap_sizes[] = {{1, 140, 64}, {3, 127, 17}, {33, 300, 64}};
static const size most_sizes[] = {{1, 1, 1}, {3, 127, 17}, {17, 140, 64}, {33, 600, 64}};
static const size block_softcap_sizes[] = {{1, 140, 64}, {33, 300, 64}};

/* route: rows, experts, experts of a row; matmul_experts: rows, rows and columns of an expert */
static const size route_sizes[] = {{1, 1, 1},   {2, 4, 4},   {3, 8, 2},   {1, 64, 6},
                                   {5, 128, 8}, {70, 12, 4}, {33, 100, 8}};
static const size expert_sizes[] = {{1, 1, 1},    {1, 33, 127}, {2, 16, 33}, {15, 7, 64},
                                    {16, 17, 40}, {70, 48, 15}, {300, 2, 31}};
static const size block_expert_sizes[] = {{1, 33, 96},  {2, 16, 64},   {15, 48, 96}, {16, 17, 64},
                                          {17, 31, 32}, {70, 48, 288}, {300, 32, 64}};
static const size expert_sizes_of_256[] = {
    {1, 33, 256}, {15, 16, 512}, {16, 17, 256}, {70, 48, 256}, {300, 32, 256}};

/* kv_rerotate: positions, layers, head_dim */
static const size turn_sizes[] = {{1, 1, 2}, {4, 2, 40}, {3, 3, 96}, {140, 1, 64}};
static const size block_turn_sizes[] = {{1, 1, 32}, {4, 2, 64}, {3, 3, 96}, {140, 1, 32}};

/* key_scores: slots, head_dim */
static const size score_sizes[] = {{1, 1, 4}, {1, 7, 15}, {1, 129, 40}, {1, 700, 64}};
static const size block_score_sizes[] = {{1, 1, 32}, {1, 127, 96}, {1, 700, 64}, {1, 300, 320}};

/* rows_times: rows, values of a row */
static const size narrow_sizes[] = {{1, 1, 1}, {1, 3, 40}, {1, 9, 64}, {1, 71, 128}};

#define SIZES(table) (table), sizeof(table) / sizeof((table)[0])

enum {
    ONLY_F32 = 1 << AG_F32,
    HALVES = 1 << AG_F16 | 1 << AG_BF16,
    FLOATS = ONLY_F32 | HALVES,
    BLOCKS = 1 << AG_Q4_0 | 1 << AG_Q4_1 | 1 << AG_Q8_0,
    WEIGHT_BLOCKS = 1 << AG_Q5_0 | 1 << AG_Q5_1 | 1 << AG_IQ4_NL | 1 << AG_MXFP4,
    BLOCKS_256 = 1 << AG_Q2_K | 1 << AG_Q3_K | 1 << AG_Q4_K | 1 << AG_Q5_K | 1 << AG_Q6_K,
};
enum {
    PLAIN = 1 << DATA_PLAIN,
    FINITE = PLAIN | 1 << DATA_EXTREME,
    ANYTHING = FINITE | 1 << DATA_NONFINITE,
};

typedef struct family {
    const char *op;
    void (*run)(const oracle_case *c, oracle_run *run);
    unsigned types;
    const size *sizes;
    size_t n_sizes;
    unsigned data;
    double nmse;
} family;

static const family families[] = {
    {"matmul", oracle_matmul, ONLY_F32, SIZES(matmul_sizes), ANYTHING, ROUNDING},
    {"matmul_transposed", oracle_matmul_transposed, FLOATS, SIZES(matmul_sizes), ANYTHING,
     FLOAT_SUMS},
    {"matmul_transposed", oracle_matmul_transposed, BLOCKS, SIZES(block_sizes), ANYTHING, ROUNDING},
    {"matmul_prepared", oracle_matmul_prepared, FLOATS, SIZES(matmul_sizes), ANYTHING, FLOAT_SUMS},
    {"matmul_prepared", oracle_matmul_prepared, BLOCKS, SIZES(prepared_sizes), ANYTHING,
     ROUNDED_INPUT},
    {"matmul_slice", oracle_matmul_slice, FLOATS | BLOCKS, SIZES(block_sizes), PLAIN, FLOAT_SUMS},
    {"matmul_group", oracle_matmul_group, FLOATS | BLOCKS, SIZES(block_sizes), FINITE, FLOAT_SUMS},
    {"matmul_group_prepared", oracle_matmul_group_prepared, FLOATS, SIZES(block_sizes), FINITE,
     FLOAT_SUMS},
    {"matmul_group_prepared", oracle_matmul_group_prepared, BLOCKS, SIZES(prepared_sizes), FINITE,
     ROUNDED_INPUT},
    {"rms_norm", oracle_rms_norm, ONLY_F32, SIZES(row_sizes), ANYTHING, ROUNDING},
    {"add_rms_norm", oracle_add_rms_norm, ONLY_F32, SIZES(row_sizes), FINITE, ROUNDING},
    {"softmax", oracle_softmax, ONLY_F32, SIZES(row_sizes), ANYTHING, ROUNDING},
    {"add_assign", oracle_add_assign, ONLY_F32, SIZES(row_sizes), ANYTHING, ROUNDING},
    {"add_bias", oracle_add_bias, ONLY_F32, SIZES(row_sizes), ANYTHING, ROUNDING},
    {"scale", oracle_scale, ONLY_F32, SIZES(row_sizes), ANYTHING, ROUNDING},
    {"silu_mul", oracle_silu_mul, ONLY_F32, SIZES(row_sizes), ANYTHING, ROUNDING},
    {"gelu_mul", oracle_gelu_mul, ONLY_F32, SIZES(row_sizes), ANYTHING, ROUNDING},
    {"mul", oracle_mul, ONLY_F32, SIZES(row_sizes), ANYTHING, ROUNDING},
    {"sigmoid_mul", oracle_sigmoid_mul, ONLY_F32, SIZES(row_sizes), ANYTHING, ROUNDING},
    {"softcap", oracle_softcap, ONLY_F32, SIZES(row_sizes), ANYTHING, ROUNDING},
    {"route", oracle_route, ONLY_F32, SIZES(route_sizes), PLAIN, FLOAT_SUMS},
    {"matmul_experts", oracle_matmul_experts, FLOATS, SIZES(expert_sizes), FINITE, FLOAT_SUMS},
    {"matmul_experts", oracle_matmul_experts, BLOCKS | WEIGHT_BLOCKS, SIZES(block_expert_sizes),
     FINITE, ROUNDED_INPUT},
    {"matmul_experts", oracle_matmul_experts, BLOCKS_256, SIZES(expert_sizes_of_256), PLAIN,
     ROUNDED_INPUT},
    {"matmul_experts_picked", oracle_matmul_experts_picked, FLOATS, SIZES(expert_sizes), PLAIN,
     FLOAT_SUMS},
    {"matmul_experts_picked", oracle_matmul_experts_picked, BLOCKS, SIZES(block_expert_sizes),
     PLAIN, ROUNDED_INPUT},
    {"combine_experts", oracle_combine_experts, ONLY_F32, SIZES(row_sizes), FINITE, FLOAT_SUMS},
    {"add_expert_bias", oracle_add_expert_bias, ONLY_F32, SIZES(row_sizes), FINITE, ROUNDING},
    {"gate_rows", oracle_gate_rows, ONLY_F32, SIZES(row_sizes), FINITE, ROUNDING},
    {"swiglu_clamped", oracle_swiglu_clamped, ONLY_F32, SIZES(row_sizes), FINITE, ROUNDING},
    {"hadamard", oracle_hadamard, ONLY_F32, SIZES(hadamard_sizes), FINITE, FLOAT_SUMS},
    {"top_k", oracle_top_k, ONLY_F32, SIZES(top_k_sizes), ANYTHING, EXACT},
    {"rope", oracle_rope, ONLY_F32, SIZES(rope_sizes), ANYTHING, ROUNDING},
    {"rope_pair", oracle_rope_pair, ONLY_F32, SIZES(rope_sizes), ANYTHING, ROUNDING},
    {"rope_part", oracle_rope_part, ONLY_F32, SIZES(rope_sizes), ANYTHING, ROUNDING},
    {"rope_pair_part", oracle_rope_pair_part, ONLY_F32, SIZES(rope_sizes), PLAIN, ROUNDING},
    {"causal_conv", oracle_causal_conv, ONLY_F32, SIZES(conv_sizes), PLAIN, FLOAT_SUMS},
    {"delta_rule", oracle_delta_rule, ONLY_F32, SIZES(delta_sizes), PLAIN, FLOAT_SUMS},
    {"gather", oracle_gather, FLOATS, SIZES(table_sizes), ANYTHING, EXACT},
    {"gather", oracle_gather, BLOCKS, SIZES(block_table_sizes), FINITE, EXACT},
    {"cast_from", oracle_cast_from, HALVES, SIZES(table_sizes), ANYTHING, EXACT},
    {"cast_from", oracle_cast_from, BLOCKS, SIZES(block_table_sizes), FINITE, EXACT},
    {"cast_to", oracle_cast_to, HALVES, SIZES(table_sizes), FINITE, EXACT},
    {"cast_to", oracle_cast_to, BLOCKS, SIZES(block_table_sizes), FINITE, EXACT},
    {"kv_rerotate", oracle_kv_rerotate, FLOATS & ~(1 << AG_BF16), SIZES(turn_sizes), PLAIN, EXACT},
    {"kv_rerotate", oracle_kv_rerotate, BLOCKS & ~(1 << AG_Q4_1), SIZES(block_turn_sizes), PLAIN,
     EXACT},
    {"key_scores", oracle_key_scores, FLOATS & ~(1 << AG_BF16), SIZES(score_sizes), PLAIN,
     FLOATS_ALONE},
    {"key_scores", oracle_key_scores, BLOCKS & ~(1 << AG_Q4_1), SIZES(block_score_sizes), PLAIN,
     FLOATS_ALONE},
    {"rows_times", oracle_rows_times, ONLY_F32, SIZES(narrow_sizes), PLAIN, FLOATS_ALONE},
    {"attention", oracle_attention, FLOATS, SIZES(attention_sizes), PLAIN, ATTENTION},
    {"attention", oracle_attention, BLOCKS, SIZES(block_attention_sizes), PLAIN, ATTENTION},
    {"attention_window", oracle_attention_window, FLOATS, SIZES(attention_sizes), PLAIN, ATTENTION},
    {"attention_window", oracle_attention_window, BLOCKS, SIZES(block_attention_sizes), PLAIN,
     ATTENTION},
    {"attention_softcap", oracle_attention_softcap, FLOATS, SIZES(softcap_sizes), PLAIN, ATTENTION},
    {"attention_softcap", oracle_attention_softcap, BLOCKS, SIZES(block_softcap_sizes), PLAIN,
     ATTENTION},
    {"attention_window_softcap", oracle_attention_window_softcap, FLOATS, SIZES(softcap_sizes),
     PLAIN, ATTENTION},
    {"attention_window_softcap", oracle_attention_window_softcap, BLOCKS,
     SIZES(block_softcap_sizes), PLAIN, ATTENTION},
    {"attention_most", oracle_attention_most, FLOATS, SIZES(most_sizes), PLAIN, ATTENTION},
    {"attention_most", oracle_attention_most, BLOCKS, SIZES(block_softcap_sizes), PLAIN, ATTENTION},
    {"attention_window_softcap_most", oracle_attention_window_softcap_most, FLOATS,
     SIZES(softcap_sizes), PLAIN, ATTENTION},
    {"attention_sinks", oracle_attention_sinks, FLOATS, SIZES(attention_sizes), PLAIN, ATTENTION},
    {"attention_sinks", oracle_attention_sinks, BLOCKS, SIZES(block_attention_sizes), PLAIN,
     ATTENTION},
    {"attention_sinks_most", oracle_attention_sinks_most, FLOATS, SIZES(most_sizes), PLAIN,
     ATTENTION},
    {"attention_sinks_weights", oracle_attention_sinks_weights, FLOATS, SIZES(weights_sizes), PLAIN,
     ATTENTION},
    {"attention_weights", oracle_attention_weights, FLOATS, SIZES(weights_sizes), PLAIN, ATTENTION},
    {"attention_weights", oracle_attention_weights, BLOCKS, SIZES(block_attention_sizes), PLAIN,
     ATTENTION},
    {"attention_weights_softcap", oracle_attention_weights_softcap, FLOATS, SIZES(softcap_sizes),
     PLAIN, ATTENTION},
    {"attention_unscored", oracle_attention_unscored, FLOATS, SIZES(unscored_sizes), PLAIN,
     ATTENTION},
    {"attention_unscored", oracle_attention_unscored, BLOCKS, SIZES(block_unscored_sizes), PLAIN,
     ATTENTION},
    {"attention_window_unscored", oracle_attention_window_unscored, FLOATS, SIZES(unscored_sizes),
     PLAIN, ATTENTION},
    {"attention_window_unscored", oracle_attention_window_unscored, BLOCKS,
     SIZES(block_unscored_sizes), PLAIN, ATTENTION},
    {"attention_window_softcap_unscored", oracle_attention_window_softcap_unscored, FLOATS,
     SIZES(unscored_sizes), PLAIN, ATTENTION},
    {"matmul_transposed", oracle_matmul_transposed, WEIGHT_BLOCKS, SIZES(weight_sizes), FINITE,
     ROUNDING},
    {"matmul_transposed", oracle_matmul_transposed, BLOCKS_256, SIZES(sizes_of_256), FINITE,
     ROUNDING},
    {"matmul_prepared", oracle_matmul_prepared, WEIGHT_BLOCKS, SIZES(prepared_sizes), ANYTHING,
     ROUNDED_INPUT},
    {"matmul_prepared", oracle_matmul_prepared, BLOCKS_256, SIZES(prepared_sizes_of_256), ANYTHING,
     ROUNDED_INPUT},
    {"matmul_slice", oracle_matmul_slice, BLOCKS_256, SIZES(sizes_of_256), PLAIN, FLOAT_SUMS},
    {"matmul_group_prepared", oracle_matmul_group_prepared, BLOCKS_256, SIZES(sizes_of_256), PLAIN,
     ROUNDED_INPUT},
    {"gather", oracle_gather, WEIGHT_BLOCKS, SIZES(block_table_sizes), FINITE, EXACT},
    {"gather", oracle_gather, BLOCKS_256, SIZES(table_sizes_of_256), FINITE, EXACT},
    {"cast_from", oracle_cast_from, WEIGHT_BLOCKS, SIZES(block_table_sizes), FINITE, EXACT},
    {"cast_from", oracle_cast_from, BLOCKS_256, SIZES(table_sizes_of_256), FINITE, EXACT},
    {"cast_to", oracle_cast_to, WEIGHT_BLOCKS, SIZES(block_table_sizes), FINITE, EXACT},
    {"cast_to", oracle_cast_to, BLOCKS_256, SIZES(table_sizes_of_256), FINITE, EXACT},
};

enum { N_FAMILIES = sizeof families / sizeof families[0], N_DATA = DATA_NONFINITE + 1 };

/* Returns the tolerated error. Attention's depends on the CPU kernels of this process. */
static double tolerance(const family *f, ag_dtype type, const size *s) {
    ag_cpu_kernels table;
    if (strncmp(f->op, "attention", strlen("attention")) != 0) return f->nmse;
    const char *isa = ag_cpu_kernels_init(&table, getenv("AG_CPU_ISA"));
    if (!isa || !strcmp(isa, "common")) return f->nmse;
    if (table.attention_queries && oracle_attention_fits_tiles(type, s->m, s->k)) {
        return ATTENTION_TILES;
    }
    return type == AG_Q8_0 || type == AG_Q4_0 ? ROUNDED_QUERIES : f->nmse;
}

bool oracle_case_at(size_t i, oracle_case *out) {
    for (size_t f = 0; f < N_FAMILIES; f++) {
        const family *fam = &families[f];
        for (unsigned type = 0; type < AG_DTYPE_COUNT; type++) {
            for (unsigned data = 0; data < N_DATA; data++) {
                if (!(fam->types >> type & 1) || !(fam->data >> data & 1)) continue;
                if (i >= fam->n_sizes) {
                    i -= fam->n_sizes;
                    continue;
                }
                const size *s = &fam->sizes[i];
                const double nmse = tolerance(fam, (ag_dtype)type, s);
                *out = (oracle_case){fam->op, (ag_dtype)type,    s->m, s->n,
                                     s->k,    (oracle_data)data, nmse, fam->run};
                return true;
            }
        }
    }
    return false;
}

/* The backend's description is not const. */
static bool oracle_uses_tensor_cores(const ag_backend *be) {
    return strstr(ag_backend_describe((ag_backend *)(uintptr_t)be), "tensor cores") != NULL;
}

double oracle_tolerance(const oracle_case *c, const ag_backend *be) {
    double least = 0;
    if (strcmp(ag_backend_name(be), "cpu") == 0) return c->nmse;
    if (strncmp(c->op, "matmul", 6) == 0) least = FLOATS_ALONE;
    if (strncmp(c->op, "attention", 9) == 0 && c->type != AG_F32 && oracle_uses_tensor_cores(be))
        least = ATTENTION_F16;
    return c->nmse > least ? c->nmse : least;
}

void oracle_case_run(const oracle_case *c, ag_backend *be, uint64_t seed, oracle_run *run) {
    oracle_case_time(c, be, seed, NULL, run);
}

static void run_case(const oracle_case *c, oracle_run start, oracle_run *run) {
    start.data = c->data;
    *run = start;
    c->run(c, run);
}

void oracle_case_results(const oracle_case *c, ag_backend *be, uint64_t seed, oracle_run *run) {
    run_case(c, (oracle_run){.be = be, .random = seed, .results_only = true}, run);
}

void oracle_case_time(const oracle_case *c, ag_backend *be, uint64_t seed, oracle_timing *timing,
                      oracle_run *run) {
    run_case(c, (oracle_run){.be = be, .random = seed, .timing = timing}, run);
}
