/* SPDX-License-Identifier: Apache-2.0 */
/* Compression: scores match their definition, and every backend retains the best slots. */
#include "core/backend_ops.h"
#include "unit/compressed_session.h"

#include <math.h>
#include <string.h>

#define WINDOWS AG_GOLDEN_MODELS "/gemma3"
enum { GROUP = 2, DIM = 64, MOST_TEXT = 96, MOST_KEYS = SINKS + CHUNK + MOST_TEXT };

/* ---- definition, for the first layer ---- */

/* Returns queries or keys of tokens that begin at `position`: [n][heads][DIM]. */
static void project(const ag_tensor *w, uint32_t heads, const int32_t *ids, size_t n,
                    uint32_t position, double *out) {
    const ag_layer *layer = &model->weights.layers[0];
    const ag_tensor *inv_freq = &model->inv_freq[0][0];
    const size_t dim = model->info.hidden_size, cols = (size_t)heads * DIM;
    ag_tensor x, y;
    ag_buffer *owners[2];
    ag_memory *memory = ag_backend_memory(backend);
    assert_int_equal(ag_tensor_alloc(&x, &owners[0], memory, AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_2d(n, dim), NULL),
                     AG_OK);
    assert_int_equal(ag_tensor_alloc(&y, &owners[1], memory, AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_2d(n, cols), NULL),
                     AG_OK);
    float *rows = ag_tensor_f32(&x);
    const float *norm = ag_tensor_f32(&layer->of[AG_LT_ATTENTION_NORM]);
    assert_int_equal(ag_embedding_lookup(&model->embedding, rows, ids, n, NULL), AG_OK);
    for (size_t i = 0; i < n; i++) {
        double square = 0;
        for (size_t c = 0; c < dim; c++) square += (double)rows[i * dim + c] * rows[i * dim + c];
        const double scale = 1 / sqrt(square / (double)dim + 1e-5);
        for (size_t c = 0; c < dim; c++)
            rows[i * dim + c] = (float)(rows[i * dim + c] * scale * norm[c]);
    }
    assert_int_equal(ag_matmul_transposed(backend, &y, &x, w), AG_OK);
    const float *from = ag_tensor_f32(&y), *freq = ag_tensor_f32(inv_freq);
    for (size_t i = 0; i < n * heads; i++) {
        for (size_t c = 0; c < DIM / 2; c++) {
            const double angle = (double)(position + i / heads) * freq[c];
            const double a = from[i * DIM + c], b = from[i * DIM + c + DIM / 2];
            out[i * DIM + c] = a * cos(angle) - b * sin(angle);
            out[i * DIM + c + DIM / 2] = b * cos(angle) + a * sin(angle);
        }
    }
    for (int i = 0; i < 2; i++) ag_buffer_release(&owners[i]);
}

static int by_number(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Computes for each token the mean over all heads of -cos(key, mean of the keys as unit vectors).
 */
static void key_differences(ag_session *s, double out[N]) {
    ag_kv_cache *c = ag_session_kv_cache(s);
    static float keys[N][DIM];
    memset(out, 0, N * sizeof *out);
    for (uint32_t head = 0; head < HEADS; head++) {
        double mean[DIM] = {0}, length = 0, lengths[N];
        for (uint32_t i = 0; i < N; i++) {
            assert_int_equal(
                ag_kv_cache_read(c, head / KV_HEADS, head % KV_HEADS, i, keys[i], NULL, NULL),
                AG_OK);
            lengths[i] = 0;
            for (size_t k = 0; k < DIM; k++) lengths[i] += (double)keys[i][k] * keys[i][k];
            lengths[i] = sqrt(lengths[i]);
            for (size_t k = 0; k < DIM; k++) mean[k] += keys[i][k] / lengths[i];
        }
        for (size_t k = 0; k < DIM; k++) length += mean[k] * mean[k];
        for (uint32_t i = 0; i < N; i++) {
            for (size_t k = 0; k < DIM; k++)
                out[i] -= keys[i][k] * mean[k] / (lengths[i] * sqrt(length) * HEADS);
        }
    }
}

/* Writes the tokens that are fed for a chunk. */
static size_t replay_text(ag_session *s, uint32_t begin, uint32_t end, float share, int32_t *out) {
    size_t n = 0;
    if (!begin) {
        for (int i = 0; i < 3; i++) out[n++] = request[i];
    } else {
        for (int i = 0; i < 4; i++) out[n++] = next_request[i];
        for (uint32_t i = begin - 8; i < begin; i++) out[n++] = text[i];
    }
    for (int i = 0; i < 2; i++) out[n++] = suffix[i];
    double difference[N], sorted[N];
    key_differences(s, difference);
    memcpy(sorted, difference + begin, (end - begin) * sizeof *sorted);
    qsort(sorted, end - begin, sizeof *sorted, by_number);
    const size_t chosen = share < 1 ? (size_t)((double)share * (end - begin)) : end - begin;
    for (uint32_t i = begin; i < end; i++) {
        if (difference[i] >= sorted[end - begin - chosen] - 1e-9) out[n++] = text[i];
    }
    return n;
}

/* Computes for one KV head the largest weights that a chunk's tokens receive from the replay, which
 * attends to the sinks, the chunk and itself. */
static void want_chunk(ag_session *s, uint32_t head, uint32_t begin, uint32_t end, float share,
                       double *want) {
    static double q[MOST_TEXT][KV_HEADS * GROUP][DIM], k[MOST_KEYS][KV_HEADS][DIM];
    const ag_layer *layer = &model->weights.layers[0];
    int32_t replayed[MOST_TEXT];
    const size_t n = replay_text(s, begin, end, share, replayed);
    const size_t sinks = begin ? SINKS : 0, held = sinks + end - begin;
    project(&layer->of[AG_LT_WK], KV_HEADS, text, sinks ? sinks : 1, 0, k[0][0]);
    project(&layer->of[AG_LT_WK], KV_HEADS, text + begin, end - begin, begin, k[sinks][0]);
    project(&layer->of[AG_LT_WK], KV_HEADS, replayed, n, N, k[held][0]);
    project(&layer->of[AG_LT_WQ], KV_HEADS * GROUP, replayed, n, N, q[0][0]);
    memset(want, 0, (end - begin) * sizeof *want);
    for (size_t i = 0; i < n * GROUP; i++) {
        const double *query = q[i / GROUP][head * GROUP + i % GROUP];
        double weights[MOST_KEYS], sum = 0;
        for (size_t at = 0; at <= held + i / GROUP; at++) {
            double dot = 0;
            for (size_t c = 0; c < DIM; c++) dot += query[c] * k[at][head][c];
            sum += weights[at] = exp(dot / 8);
        }
        for (size_t at = sinks; at < held; at++)
            want[at - sinks] = fmax(want[at - sinks], weights[at] / sum);
    }
}

static void scores_match_their_definition(void **state) {
    (void)state;
    const float shares[] = {1, 0.3f};
    for (int i = 0; i < 2; i++) {
        ag_session *s = reader_of(model, "none");
        const ag_compress_params p = params(0.5f, shares[i]);
        ag_slot_scores scores;
        ag_error err;
        size_t n_replayed;
        assert_int_equal(ag_slot_scores_create(s, &scores, &err), AG_OK);
        if (ag_session_replay(s, text, &p, &scores, &n_replayed, &err) != AG_OK)
            fail_msg("%s", err.msg);
        for (uint32_t head = 0; head < KV_HEADS; head++) {
            double want[N];
            for (uint32_t begin = 0, end; begin < N; begin = end) {
                end = begin + CHUNK < N ? begin + CHUNK : N;
                want_chunk(s, head, begin, end, shares[i], want + begin);
            }
            const float *got = scores.of + scores.first[head];
            for (uint32_t slot = 0; slot < N; slot++) {
                if (fabs(got[slot] - want[slot]) > 1e-4 * want[slot])
                    fail_msg("head %u, slot %u: %g, not %g", head, slot, (double)got[slot],
                             want[slot]);
            }
        }
        for (size_t k = 0; k < scores.first[HEADS]; k++) assert_true(scores.of[k] > 0);
        assert_int_equal(n_replayed, shares[i] < 1 ? 5 + 2 * 14 + 18 + 18 + 9 : 5 + 2 * 14 + N);
        ag_slot_scores_release(&scores);
        ag_session_destroy(s);
    }
}

/* ---- retained slots ---- */

static void retains_the_best_slots_of_all_heads(void **state) {
    (void)state;
    ag_session *s = reader_of(model, "none");
    const ag_compress_params p = params(0.25f, 1);
    ag_slot_scores scores;
    size_t n_replayed;
    bool uneven = false;
    assert_int_equal(ag_slot_scores_create(s, &scores, NULL), AG_OK);
    assert_int_equal(ag_session_replay(s, text, &p, &scores, &n_replayed, NULL), AG_OK);
    const ag_compress_report report = compress(s, 0.25f, 1);
    assert_int_equal(report.n_heads, HEADS);
    assert_int_equal(report.n_before, N * HEADS);
    assert_int_equal(report.n_kept, N * HEADS / 4);
    assert_int_equal(report.n_replayed, n_replayed);
    assert_int_equal(all_slots(s), N * HEADS / 4);
    assert_int_equal(ag_session_position(s), N);
    float least = INFINITY, most = 0; /* scores of retained and of evicted slots */
    for (uint32_t head = 0; head < HEADS; head++) {
        const float *of = scores.of + scores.first[head];
        uint32_t at = 0;
        uneven |= n_slots(s, head) != n_slots(s, 0);
        for (uint32_t i = 0; i < N; i++) {
            const bool stays = at < n_slots(s, head) && position(s, head, at) == i;
            if (i < SINKS) assert_true(stays);
            else if (stays) least = fminf(least, of[i]);
            else most = fmaxf(most, of[i]);
            at += stays;
        }
        assert_int_equal(at, n_slots(s, head)); /* ascending and unique */
    }
    assert_true(least >= most);
    assert_true(uneven);
    ag_slot_scores_release(&scores);
    ag_session_destroy(s);
}

static void retains_protected_slots_above_the_target(void **state) {
    (void)state;
    ag_session_params sp = session_params("keydiff");
    sp.eviction.protected_prefix = 20;
    ag_session *s;
    assert_int_equal(ag_session_create(model, &sp, &s, NULL), AG_OK);
    assert_int_equal(ag_session_prefill(s, text, N, NULL, NULL, NULL), AG_OK);
    ag_compress_params p = params(0, 1);
    p.keep_tokens = 22;
    p.recent = 5;
    ag_compress_report report;
    assert_int_equal(ag_session_compress(s, text, N, &p, &report, NULL), AG_OK);
    assert_int_equal(report.n_kept, 25 * HEADS);
    for (uint32_t head = 0; head < HEADS; head++) {
        assert_int_equal(n_slots(s, head), 25);
        for (uint32_t i = 0; i < 25; i++)
            assert_int_equal(position(s, head, i), i < 20 ? i : N - 25 + i);
    }
    ag_session_destroy(s);
}

static void leaves_layers_with_a_window_unchanged(void **state) {
    (void)state;
    ag_model *m = load(backend, WINDOWS);
    ag_session *s = reader_of(m, "none");
    ag_kv_cache *c = ag_session_kv_cache(s);
    const ag_kv_layer *layer;
    uint32_t before[64] = {0}, n_windows = 0, n_shrunk = 0;
    for (uint32_t l = 0; (layer = ag_kv_cache_layer(c, l)); l++)
        before[l] = ag_kv_layer_length(c, l);
    compress(s, 0.3f, 1);
    for (uint32_t l = 0; (layer = ag_kv_cache_layer(c, l)); l++) {
        if (layer->window) assert_int_equal(ag_kv_layer_length(c, l), before[l]);
        n_windows += layer->window != 0;
        n_shrunk += ag_kv_layer_length(c, l) < before[l];
    }
    assert_true(n_windows && n_shrunk);
    feed(s, 3);
    ag_session_destroy(s);
    ag_model_destroy(m);
}

/* ---- backends ---- */

/* Compares the slots that the CPU's reference and `be` retain. Slots near the threshold may differ.
 */
static void same_choice_on(ag_backend *be, const ag_slot_scores *scores) {
    ag_model *m = load(be, MODEL);
    ag_session *s = reader_of(m, "none"), *reference = reader_of(model, "none");
    size_t differ = 0;
    compress(s, 0.4f, 0.5f);
    compress(reference, 0.4f, 0.5f);
    float least = INFINITY;
    bool stays[2][HEADS][N] = {{{false}}};
    for (uint32_t h = 0; h < HEADS; h++) {
        for (uint32_t i = 0; i < n_slots(s, h); i++) stays[0][h][position(s, h, i)] = true;
        for (uint32_t i = 0; i < n_slots(reference, h); i++) {
            const uint32_t at = position(reference, h, i);
            stays[1][h][at] = true;
            if (at >= SINKS) least = fminf(least, scores->of[scores->first[h] + at]);
        }
    }
    for (uint32_t h = 0; h < HEADS; h++) {
        for (uint32_t i = 0; i < N; i++) {
            if (stays[0][h][i] == stays[1][h][i]) continue;
            differ++;
            assert_true(fabsf(scores->of[scores->first[h] + i] - least) < 1e-4f * least);
        }
    }
    assert_true(differ < 4);
    ag_session_destroy(s);
    ag_session_destroy(reference);
    ag_model_destroy(m);
}

static void every_backend_retains_equal_slots(void **state) {
    (void)state;
    const char *isas[] = {"common", "avx2", "avxvnni", "avx512", "amx", "neon"};
    ag_session *s = reader_of(model, "none");
    const ag_compress_params p = params(0.4f, 0.5f);
    ag_slot_scores scores;
    size_t n_replayed;
    assert_int_equal(ag_slot_scores_create(s, &scores, NULL), AG_OK);
    assert_int_equal(ag_session_replay(s, text, &p, &scores, &n_replayed, NULL), AG_OK);
    for (size_t i = 0; i < sizeof isas / sizeof *isas; i++) {
        setenv("AG_CPU_ISA", isas[i], 1);
        ag_backend *be = open_backend(NULL, 2);
        unsetenv("AG_CPU_ISA");
        if (!be) continue;
        same_choice_on(be, &scores);
        ag_backend_destroy(be);
    }
    ag_slot_scores_release(&scores);
    ag_session_destroy(s);
}

static int on_device(void) {
    ag_slot_scores scores;
    size_t n_replayed;
    ag_backend *be = open_backend(device, 0);
    if (!be) return EXIT_SKIPPED;
    device = NULL;
    if (set_up(NULL)) return 1;
    ag_session *s = reader_of(model, "none");
    const ag_compress_params p = params(0.4f, 0.5f);
    assert_int_equal(ag_slot_scores_create(s, &scores, NULL), AG_OK);
    assert_int_equal(ag_session_replay(s, text, &p, &scores, &n_replayed, NULL), AG_OK);
    same_choice_on(be, &scores);
    ag_slot_scores_release(&scores);
    ag_session_destroy(s);
    tear_down(NULL);
    ag_backend_destroy(be);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_match_their_definition),
        cmocka_unit_test(retains_the_best_slots_of_all_heads),
        cmocka_unit_test(retains_protected_slots_above_the_target),
        cmocka_unit_test(leaves_layers_with_a_window_unchanged),
        cmocka_unit_test(every_backend_retains_equal_slots),
    };
    if (argc > 1) {
        device = argv[1];
        return on_device();
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
