/* SPDX-License-Identifier: Apache-2.0 */
/* Compactor: keeps slots that their own chunk of the prompt attends to, and keys that others do
 * not explain. The score is a + r l; r is the share of slots that will be removed. a: attention
 * inside chunks of 256 without a causal mask (AG_IMPORTANCE_CHUNK) times the length of the
 * value, averaged over three neighbours. l: the leverage of the key before its rotation, x (X^T
 * X)^-1 x^T; rows x of X are keys minus their mean, projected to 48 values. Both are normalised
 * over a layer to mean 0 and standard deviation 1. The first 8 positions and the last 4 slots
 * rank above all. Source: Compactor, arXiv:2507.08143; r as the weight, the normalisation over a
 * layer and the Cholesky factor as in kvpress 0.5. */
#include "cache/eviction/chunk_scores.h"
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"
#include "core/backend_ops.h"
#include "core/rows_times.h"
#include "quant/vectors.h"

#include <math.h>
#include <string.h>

enum { SKETCH = AG_SKINNY_COLS, BATCH = 16, POOL_SIDE = 1, POOL = 2 * POOL_SIDE + 1 };

static const double jitter = 1e-2;

/* ---- random numbers ---- */

static uint64_t next_bits(uint64_t *state) { /* SplitMix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Returns a number in (0, 1]. */
static double next_share(uint64_t *state) {
    return (double)((next_bits(state) >> 11) + 1) / 9007199254740992.0;
}

/* Fills x with n numbers of N(0, 1 / SKETCH), always the same ones, by the Box-Muller method. n
 * must be even. */
static void fill_normal(float *x, size_t n) {
    uint64_t state = 1;
    const double sd = sqrt(1.0 / SKETCH), turn = 6.283185307179586;
    for (size_t i = 0; i + 1 < n; i += 2) {
        const double r = sd * sqrt(-2 * log(next_share(&state)));
        const double angle = turn * next_share(&state);
        x[i] = (float)(r * cos(angle));
        x[i + 1] = (float)(r * sin(angle));
    }
}

static float square_of(const float *x, size_t n) {
    vec sums[2] = {0};
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        const vec a = v_load(x + i), b = v_load(x + i + LANES);
        sums[0] += a * a;
        sums[1] += b * b;
    }
    const vec sum = sums[0] + sums[1];
    float total = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    for (; i < n; i++) total += x[i] * x[i];
    return total;
}

/* ---- leverage ---- */

/* Scratch of a head. Rows have SKETCH values, of which the first k are used. */
typedef struct leverage_work {
    float *made_for; /* head size of the present sketch; 0: none */
    float *sketch;   /* [dim][SKETCH] */
    float *mean;     /* [dim] */
    float *inverse;  /* [SKETCH][SKETCH] inverse factor of the Gram matrix, transposed */
    float *rows;     /* [BATCH][SKETCH] */
    float *centred;  /* [BATCH][dim] */
    float *columns;  /* [SKETCH][BATCH]: `rows` transposed */
    float *partial;  /* [SKETCH][SKETCH] partial sums of the Gram matrix or of the mean */
    ag_rows_times_fn *rows_times;
} leverage_work;

static size_t sketched(size_t dim) { return dim < SKETCH ? dim : SKETCH; }

static size_t work_floats(void *user, size_t dim) {
    (void)user;
    const size_t partial = dim > SKETCH * SKETCH ? dim : SKETCH * SKETCH;
    const size_t at_hand = BATCH * (2 * SKETCH + dim);
    return 1 + dim * SKETCH + dim + SKETCH * SKETCH + at_hand + partial;
}

/* A custom sketch may differ from call to call. */
static void make_sketch(const leverage_work *w, size_t dim, const float *custom) {
    const size_t k = sketched(dim);
    if (!custom && *w->made_for == (float)dim) return;
    if (!custom) fill_normal(w->sketch, dim * SKETCH);
    for (size_t d = 0; d < dim; d++) {
        float *row = w->sketch + d * SKETCH;
        if (custom) memcpy(row, custom + d * k, k * sizeof *row);
        for (size_t i = k; i < SKETCH; i++) row[i] = 0;
    }
    *w->made_for = custom ? 0 : (float)dim;
}

static leverage_work work_in(float *p, size_t dim, const float *custom) {
    leverage_work w = {.made_for = p, .sketch = p + 1};
    w.mean = w.sketch + dim * SKETCH;
    w.inverse = w.mean + dim;
    w.rows = w.inverse + SKETCH * SKETCH;
    w.centred = w.rows + BATCH * SKETCH;
    w.columns = w.centred + BATCH * dim;
    w.partial = w.columns + BATCH * SKETCH;
    make_sketch(&w, dim, custom);
    return w;
}

static void add_row(float *restrict sum, const float *restrict x, size_t n) {
    for (size_t d = 0; d < n; d++) sum[d] += x[d];
}

/* Adds up to 64 rows as floats before they join the sums. */
static void mean_row(const float *x, size_t n, size_t dim, float *mean, float *partial) {
    enum { BATCH_ROWS = 64 };
    memset(mean, 0, dim * sizeof *mean);
    for (size_t i = 0; i < n;) {
        const size_t end = n - i < BATCH_ROWS ? n : i + BATCH_ROWS;
        memset(partial, 0, dim * sizeof *partial);
        for (; i < end; i++) add_row(partial, x + i * dim, dim);
        add_row(mean, partial, dim);
    }
    for (size_t d = 0; d < dim; d++) mean[d] /= (float)n;
}

/* Adds the outer products of n rows to the upper triangle of gram; the rest is not used. Sums a
 * batch in floats and the batches in double, since the matrix is badly conditioned: float sums
 * over all keys change the leverage of single keys by 1e-3. */
static void add_products(double *restrict gram, const leverage_work *w, const float *rows, size_t n,
                         size_t k) {
    for (size_t r = 0; r < n; r++)
        for (size_t i = 0; i < k; i++) w->columns[i * BATCH + r] = rows[r * SKETCH + i];
    w->rows_times(w->partial, w->columns, BATCH, k, rows, n);
    for (size_t i = 0; i < k; i++) {
        const float *partial = w->partial + i * SKETCH;
        for (size_t j = i / LANES * LANES; j < SKETCH; j++)
            gram[i * SKETCH + j] += (double)partial[j];
    }
}

static size_t rows_from(size_t i, size_t n) { return n - i < BATCH ? n - i : BATCH; }

static void centre(float *restrict out, const float *restrict x, const float *restrict mean,
                   size_t n, size_t dim) {
    for (size_t i = 0; i < n; i++)
        for (size_t d = 0; d < dim; d++) out[i * dim + d] = x[i * dim + d] - mean[d];
}

/* Turns keys [n, dim] into rows of X [n, k], in place of keys that have been read. Sets gram to
 * the sum of their outer products. */
static void sketch_keys(float *keys, size_t n, size_t dim, const leverage_work *w, double *gram) {
    const size_t k = sketched(dim);
    memset(gram, 0, (size_t)SKETCH * SKETCH * sizeof *gram);
    for (size_t i = 0; i < n; i += BATCH) {
        const size_t n_rows = rows_from(i, n);
        float *rows = k == SKETCH ? keys + i * k : w->rows;
        centre(w->centred, keys + i * dim, w->mean, n_rows, dim);
        w->rows_times(rows, w->centred, dim, n_rows, w->sketch, dim);
        add_products(gram, w, rows, n_rows, k);
        for (size_t r = 0; rows == w->rows && r < n_rows; r++)
            memcpy(keys + (i + r) * k, rows + r * SKETCH, k * sizeof *keys);
    }
}

/* Computes the Cholesky factor L of gram + add * I. Returns false if there is none. */
static bool factorise(const double *gram, double add, double *factor, size_t k) {
    for (size_t i = 0; i < k; i++) {
        for (size_t j = 0; j <= i; j++) {
            double sum = gram[j * SKETCH + i];
            if (i == j) sum += add;
            for (size_t m = 0; m < j; m++) sum -= factor[i * SKETCH + m] * factor[j * SKETCH + m];
            if (i == j && !(sum > 0)) return false;
            factor[i * SKETCH + j] = i == j ? sqrt(sum) : sum / factor[j * SKETCH + j];
        }
    }
    return true;
}

/* Sets out [SKETCH][SKETCH] = (L^-1)^T, so that x out = (L^-1 x^T)^T. */
static void invert(const double *factor, float *out, size_t k) {
    double column[SKETCH];
    memset(out, 0, (size_t)SKETCH * SKETCH * sizeof *out);
    for (size_t c = 0; c < k; c++) {
        for (size_t i = c; i < k; i++) {
            double sum = i == c;
            for (size_t m = c; m < i; m++) sum -= factor[i * SKETCH + m] * column[m];
            column[i] = sum / factor[i * SKETCH + i];
            out[c * SKETCH + i] = (float)column[i];
        }
    }
}

/* Computes leverage[n] of keys [n, dim], which are overwritten. All 0 if rounding leaves no
 * factor. */
static void find_leverage(float *keys, size_t n, size_t dim, const leverage_work *work,
                          float *leverage) {
    double gram[SKETCH * SKETCH], factor[SKETCH * SKETCH], add = jitter;
    const size_t k = sketched(dim);
    const leverage_work w = *work;
    mean_row(keys, n, dim, w.mean, w.partial);
    sketch_keys(keys, n, dim, &w, gram);
    int tries = 0;
    while (tries < 5 && !factorise(gram, add, factor, k)) {
        tries++;
        add *= 10;
    }
    memset(leverage, 0, n * sizeof *leverage);
    if (tries == 5) return;
    invert(factor, w.inverse, k);
    for (size_t i = 0; i < n; i += BATCH) {
        const size_t n_rows = rows_from(i, n);
        w.rows_times(w.rows, keys + i * k, k, n_rows, w.inverse, k);
        for (size_t r = 0; r < n_rows; r++)
            leverage[i + r] = square_of(w.rows + r * SKETCH, SKETCH);
    }
}

/* ---- attention ---- */

/* Averages each value with its neighbours. Beyond the ends it counts zeros. NAN if no attention
 * is known. */
static void average_neighbours(const float *x, const float *sums, size_t n, float *out) {
    for (size_t i = 0; i < n; i++) {
        float sum = x[i];
        if (i) sum += x[i - 1];
        if (i + 1 < n) sum += x[i + 1];
        out[i] = sums[i] != 0 ? sum / POOL : NAN;
    }
}

/* ---- the policy ---- */

/* Sets [*first, *end) to the slots that are ranked by their scores. */
static void ranked_range(const ag_eviction_inputs *in, size_t *first, size_t *end) {
    *first = in->n_protected;
    while (*first < in->n_slots && in->positions[*first] < AG_CHUNK_FIRST) ++*first;
    *end = in->n_slots > AG_CHUNK_LAST ? in->n_slots - AG_CHUNK_LAST : 0;
    if (*end < *first) *end = *first;
}

/* Writes attention to importance and leverage to more, for normalise_layer(). */
static void from_keys(void *user, const ag_eviction_params *p, const ag_eviction_inputs *in) {
    const ag_compactor_params *params = p->policy_params;
    size_t first, end;
    (void)user;
    ranked_range(in, &first, &end);
    for (size_t s = 0; s < in->n_slots; s++) in->importance[s] = in->more[s] = INFINITY;
    if (first == end) return;
    const size_t n = end - first, dim = in->dim;
    float *weighted = in->more + first;
    for (size_t i = 0; i < n; i++)
        weighted[i] = in->sums[first + i] * sqrtf(square_of(in->values + (first + i) * dim, dim));
    average_neighbours(weighted, in->sums + first, n, in->importance + first);
    leverage_work work = work_in(in->work, dim, params ? params->sketch : NULL);
    work.rows_times = in->backend ? ag_rows_times_of(in->backend) : ag_rows_times_reference;
    find_leverage(in->keys + first * dim, n, dim, &work, weighted);
}

/* Sums of the known numbers of a layer. */
typedef struct moments {
    double n, sum, squares;
} moments;

static void add_to_moments(moments *m, double x) {
    m->n++;
    m->sum += x;
    m->squares += x * x;
}

static double mean_of_moments(const moments *m) { return m->n > 0 ? m->sum / m->n : 0; }

/* Returns the standard deviation of a sample. */
static double deviation_of_moments(const moments *m) {
    if (m->n < 2) return 1e-6;
    const double variance = (m->squares - m->sum * m->sum / m->n) / (m->n - 1);
    return variance > 1e-12 ? sqrt(variance) : 1e-6;
}

static void normalise_layer(void *user, const ag_eviction_params *p,
                            const ag_eviction_inputs *heads, size_t n_heads) {
    moments a = {0}, l = {0};
    (void)user, (void)p;
    for (size_t h = 0; h < n_heads; h++) {
        const ag_eviction_inputs *in = &heads[h];
        for (size_t s = 0; s < in->n_slots; s++) {
            if (isinf(in->importance[s])) continue;
            if (!isnan(in->importance[s])) add_to_moments(&a, in->importance[s]);
            add_to_moments(&l, in->more[s]);
        }
    }
    const double a_mean = mean_of_moments(&a), a_sd = deviation_of_moments(&a);
    const double l_mean = mean_of_moments(&l), l_sd = deviation_of_moments(&l);
    for (size_t h = 0; h < n_heads; h++) {
        const ag_eviction_inputs *in = &heads[h];
        for (size_t s = 0; s < in->n_slots; s++) {
            float *x = &in->importance[s];
            if (isinf(*x)) continue;
            const double attention = isnan(*x) ? 0 : (*x - a_mean) / a_sd;
            *x = (float)(attention + (double)in->removed * (in->more[s] - l_mean) / l_sd);
        }
    }
}

float ag_compactor_query_scale(const ag_eviction_params *p) {
    const ag_compactor_params *params = p->policy->from_keys == from_keys ? p->policy_params : NULL;
    return params ? params->query_scale : 0;
}

const ag_eviction_policy ag_eviction_compactor = {
    .name = "compactor",
    .importance = AG_IMPORTANCE_CHUNK,
    .prefill_block = AG_CHUNK,
    .whole_prefill = true,
    .select = ag_select_best,
    .from_keys = from_keys,
    .unrotated = true,
    .with_values = true,
    .work_floats = work_floats,
    .compare = normalise_layer,
};
