/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of a backend against straightforward double arithmetic: one table of cases, used
 * by test_backend and by the unit tests. */
#ifndef AG_TESTS_ORACLE_H
#define AG_TESTS_ORACLE_H

#include "core/backend_ops.h"

/* ---- data ---- */

typedef enum oracle_data {
    DATA_PLAIN,     /* uniform in [-1, 1) */
    DATA_EXTREME,   /* magnitudes from 2^-26 to 2^14, zeros, neighbours that cancel */
    DATA_NONFINITE, /* plain, with a NaN and an infinity in places of their own */
} oracle_data;

/* An operation that is done again and again. */
typedef struct oracle_timing {
    double least_s; /* time and runs that are enough, both; ten times the time is enough alone */
    size_t least_runs, most_runs;
    void (*before)(void *user); /* each run, not counted; NULL: nothing */
    void *user;
    bool unchecked;  /* no wanted values, which take long to compute */
    double *seconds; /* [most_runs] of each run, owned by the caller */
    size_t n_runs;
} oracle_timing;

/* Input and results of one run. */
typedef struct oracle_run {
    ag_backend *be;
    uint64_t random; /* state of the generator; the seed at first */
    oracle_data data;
    float *got;   /* [n] actual results, owned */
    double *want; /* [n] expected results, owned */
    size_t n, cap;
    size_t guard_faults; /* bytes written around a tensor, or into an input */
    ag_status status;    /* the operation's result */
    bool rounds_input;   /* in blocks: NaN and infinity may take each other's place */
    bool out_of_memory;
    bool results_only;     /* wanted values are not computed: there are none in `want` */
    oracle_timing *timing; /* NULL: the operation is done once */
    size_t n_started;
    double started_s;
} oracle_run;

void oracle_run_free(oracle_run *run);
uint32_t oracle_below(oracle_run *run, uint32_t n); /* 0 .. n-1 */
void oracle_fill(oracle_run *run, float *values, size_t n, oracle_data data);

/* Errors of a run: squares of the differences over squares of the wanted values, leaving out what
 * is NaN or infinite on both sides alike. */
typedef struct oracle_score {
    double nmse;
    size_t n_unlike; /* NaN or infinite on one side only */
} oracle_score;
oracle_score oracle_compare(const oracle_run *run);

/* ---- tensors between guard zones ---- */

typedef struct guarded {
    ag_tensor t;
    ag_buffer *buffer;
    float *values;        /* [numel] F32 values, as they are after rounding to the dtype */
    unsigned char *image; /* the entire buffer as it was uploaded */
    size_t bytes;         /* bytes of the image */
} guarded;

/* A tensor of random values; `skew` bytes past a 64-byte line. */
guarded guarded_make(oracle_run *run, ag_dtype dtype, ag_shape shape, size_t skew,
                     oracle_data data);
/* The same where operations take host memory: a weight to be prepared, angles. */
guarded guarded_make_on_host(oracle_run *run, ag_dtype dtype, ag_shape shape, size_t skew,
                             oracle_data data);
/* Counts writes outside the tensor, and writes into it unless it is the destination. */
void guarded_check(oracle_run *run, const guarded *g, bool is_destination);
void guarded_free(guarded *g);
/* Appends the values of the tensor to run->got. The caller writes one expected value for each at
 * the returned pointer. Returns NULL if out of memory or if no expected values are needed. */
double *oracle_take(oracle_run *run, const guarded *g);

/* while (oracle_again(run, NULL)) run->status = ag_operation(...);
 * Once, or as often as the timing wants, the first time for nothing but warming up. An operation
 * that overwrites an input of type F32 names it and finds the same values there each time. */
bool oracle_again(oracle_run *run, const guarded *overwritten);

/* ---- cases ---- */

typedef struct oracle_case {
    const char *op;
    ag_dtype type; /* type of the weight, table, cache or source */
    size_t m, n, k;
    oracle_data data;
    double nmse; /* tolerated error */
    void (*run)(const struct oracle_case *c, oracle_run *run);
} oracle_case;

/* The i-th case; false past the end. */
bool oracle_case_at(size_t i, oracle_case *out);
/* Returns the tolerated error on this backend: the case's own, or more for sums of products on a
 * device that may have no doubles. */
double oracle_tolerance(const oracle_case *c, const ag_backend *be);
/* Runs a case on a backend with random data of this seed. Free the run afterwards. */
void oracle_case_run(const oracle_case *c, ag_backend *be, uint64_t seed, oracle_run *run);
/* The same without wanted values, which take longest: for comparing the results of two backends. */
void oracle_case_results(const oracle_case *c, ag_backend *be, uint64_t seed, oracle_run *run);
/* Does what oracle_case_run does, and times the operation; its last run is the one whose results
 * are compared.
 */
void oracle_case_time(const oracle_case *c, ag_backend *be, uint64_t seed, oracle_timing *timing,
                      oracle_run *run);

/* ---- operations by file: each runs one case ---- */

/* ops_matmul.c */
void oracle_matmul(const oracle_case *c, oracle_run *run);
void oracle_matmul_transposed(const oracle_case *c, oracle_run *run);
void oracle_matmul_prepared(const oracle_case *c, oracle_run *run);
void oracle_matmul_slice(const oracle_case *c, oracle_run *run);
void oracle_matmul_group(const oracle_case *c, oracle_run *run);
void oracle_matmul_group_prepared(const oracle_case *c, oracle_run *run);
/* ops_rows.c */
void oracle_rms_norm(const oracle_case *c, oracle_run *run);
void oracle_add_rms_norm(const oracle_case *c, oracle_run *run);
void oracle_softmax(const oracle_case *c, oracle_run *run);
void oracle_add_assign(const oracle_case *c, oracle_run *run);
void oracle_add_bias(const oracle_case *c, oracle_run *run);
void oracle_scale(const oracle_case *c, oracle_run *run);
void oracle_silu_mul(const oracle_case *c, oracle_run *run);
void oracle_gelu_mul(const oracle_case *c, oracle_run *run);
void oracle_mul(const oracle_case *c, oracle_run *run);
void oracle_sigmoid_mul(const oracle_case *c, oracle_run *run);
void oracle_softcap(const oracle_case *c, oracle_run *run);
void oracle_hadamard(const oracle_case *c, oracle_run *run);
void oracle_top_k(const oracle_case *c, oracle_run *run);
void oracle_rope(const oracle_case *c, oracle_run *run);
void oracle_rope_pair(const oracle_case *c, oracle_run *run);
/* The same, of a part of each head's values. */
void oracle_rope_part(const oracle_case *c, oracle_run *run);
void oracle_rope_pair_part(const oracle_case *c, oracle_run *run);
void oracle_gather(const oracle_case *c, oracle_run *run);
void oracle_cast_from(const oracle_case *c, oracle_run *run);
void oracle_cast_to(const oracle_case *c, oracle_run *run);
/* ops_experts.c */
void oracle_route(const oracle_case *c, oracle_run *run);
void oracle_matmul_experts(const oracle_case *c, oracle_run *run);
void oracle_matmul_experts_picked(const oracle_case *c, oracle_run *run);
void oracle_combine_experts(const oracle_case *c, oracle_run *run);
void oracle_add_expert_bias(const oracle_case *c, oracle_run *run);
void oracle_gate_rows(const oracle_case *c, oracle_run *run);
void oracle_swiglu_clamped(const oracle_case *c, oracle_run *run);
/* ops_recurrence.c */
void oracle_causal_conv(const oracle_case *c, oracle_run *run);
void oracle_delta_rule(const oracle_case *c, oracle_run *run);
/* ops_cache.c */
void oracle_kv_rerotate(const oracle_case *c, oracle_run *run);
void oracle_key_scores(const oracle_case *c, oracle_run *run);
void oracle_rows_times(const oracle_case *c, oracle_run *run);
/* ops_attention.c */
void oracle_attention(const oracle_case *c, oracle_run *run);
void oracle_attention_window(const oracle_case *c, oracle_run *run);
void oracle_attention_softcap(const oracle_case *c, oracle_run *run);
void oracle_attention_window_softcap(const oracle_case *c, oracle_run *run);
void oracle_attention_most(const oracle_case *c, oracle_run *run);
void oracle_attention_window_softcap_most(const oracle_case *c, oracle_run *run);
void oracle_attention_sinks(const oracle_case *c, oracle_run *run);
void oracle_attention_sinks_most(const oracle_case *c, oracle_run *run);
void oracle_attention_sinks_weights(const oracle_case *c, oracle_run *run);
void oracle_attention_weights(const oracle_case *c, oracle_run *run);
void oracle_attention_weights_softcap(const oracle_case *c, oracle_run *run);
void oracle_attention_unscored(const oracle_case *c, oracle_run *run);
void oracle_attention_window_unscored(const oracle_case *c, oracle_run *run);
void oracle_attention_window_softcap_unscored(const oracle_case *c, oracle_run *run);
/* Returns whether matrix units would run a case with m queries and heads of k values. */
bool oracle_attention_fits_tiles(ag_dtype type, size_t m, size_t k);

#endif
