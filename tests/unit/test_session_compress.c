/* SPDX-License-Identifier: Apache-2.0 */
/* A session that keeps what it needs to repeat its text: the scores are those of the definition,
 * the best slots stay, and the session goes on as any other does. */
#include "cache/kv_cache.h"
#include "core/backend_ops.h"
#include "session/replay.h"
#include "support/failing_allocator.h"
#include "support/named_backend.h"

#include <antigravity/antigravity.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MODEL AG_SOURCE_DIR "/tests/data/golden/models/gqa-llama3rope-sharded"
#define WINDOWS AG_SOURCE_DIR "/tests/data/golden/models/gemma3"
#define STATES AG_SOURCE_DIR "/tests/data/golden/models/lfm2"
enum { N = 150, CHUNK = 60, LAYERS = 3, KV_HEADS = 2, GROUP = 2, DIM = 64, HEADS = 6, SINKS = 4 };
enum { MOST_TEXT = 96, MOST_KEYS = SINKS + CHUNK + MOST_TEXT };

static const char *device; /* NULL: the CPU */
static ag_backend *backend;
static ag_model *model;
static int32_t text[N];

static const int32_t request[] = {7, 8, 9}, next_request[] = {7, 8, 10, 11}, suffix[] = {12, 13};

static ag_model *load(ag_backend *be, const char *path) {
    ag_model_params p = ag_model_defaults();
    ag_model *m;
    ag_error err;
    p.weights = AG_F32;
    if (ag_model_load(be, path, &p, &m, &err) != AG_OK) fail_msg("%s", err.msg);
    return m;
}

static int set_up(void **state) {
    (void)state;
    for (size_t i = 0; i < N; i++)
        text[i] = (int32_t)((i * 7 + i * i % 61 + i * i * i % 17) % 300) + 3;
    backend = open_backend(device, 2);
    if (!backend) return 1;
    model = load(backend, MODEL);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return 0;
}

static ag_session_params session_params(const char *policy) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 400;
    p.prefill_chunk = 32;
    p.k_type = p.v_type = AG_F32;
    p.eviction.policy = ag_eviction_policy_find(policy);
    p.eviction.budget_tokens = N;
    p.eviction.recent = 8;
    p.eviction.slack = 4;
    p.eviction.snapkv_window = 8;
    return p;
}

/* One that has read the text. */
static ag_session *reader_of(ag_model *m, const char *policy) {
    const ag_session_params p = session_params(policy);
    ag_session *s;
    ag_error err;
    if (ag_session_create(m, &p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    if (ag_session_prefill(s, text, N, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static ag_compress_params params(float keep_ratio, float share) {
    ag_compress_params p = ag_compress_defaults();
    p.keep_ratio = keep_ratio;
    p.replay = share;
    p.chunk = CHUNK;
    p.instruction = request;
    p.n_instruction = 3;
    p.instruction_next = next_request;
    p.n_instruction_next = 4;
    p.suffix = suffix;
    p.n_suffix = 2;
    return p;
}

static ag_compress_report compress(ag_session *s, float keep_ratio, float share) {
    const ag_compress_params p = params(keep_ratio, share);
    ag_compress_report report;
    ag_error err;
    if (ag_session_compress(s, text, N, &p, &report, &err) != AG_OK) fail_msg("%s", err.msg);
    return report;
}

/* ---- the definition, of the first layer ---- */

/* Queries or keys of tokens that begin at `position`: [n][heads][DIM]. */
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
    const float *norm = ag_tensor_f32(&layer->attention_norm);
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

/* The mean over all heads of -cos(key, mean of the keys as unit vectors), for each token. */
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

/* What is fed for a chunk. */
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

/* One KV head of a chunk: the largest weights that its tokens receive from the replay, which sees
 * the sinks, the chunk and itself. */
static void want_chunk(ag_session *s, uint32_t head, uint32_t begin, uint32_t end, float share,
                       double *want) {
    static double q[MOST_TEXT][KV_HEADS * GROUP][DIM], k[MOST_KEYS][KV_HEADS][DIM];
    const ag_layer *layer = &model->weights.layers[0];
    int32_t replayed[MOST_TEXT];
    const size_t n = replay_text(s, begin, end, share, replayed);
    const size_t sinks = begin ? SINKS : 0, held = sinks + end - begin;
    project(&layer->wk, KV_HEADS, text, sinks ? sinks : 1, 0, k[0][0]);
    project(&layer->wk, KV_HEADS, text + begin, end - begin, begin, k[sinks][0]);
    project(&layer->wk, KV_HEADS, replayed, n, N, k[held][0]);
    project(&layer->wq, KV_HEADS * GROUP, replayed, n, N, q[0][0]);
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

static void scores_are_those_of_the_definition(void **state) {
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

/* ---- what stays ---- */

static uint32_t n_slots(ag_session *s, uint32_t head) {
    return ag_kv_cache_n_slots(ag_session_kv_cache(s), head / KV_HEADS, head % KV_HEADS);
}

static uint32_t position(ag_session *s, uint32_t head, uint32_t slot) {
    return ag_kv_cache_position(ag_session_kv_cache(s), head / KV_HEADS, head % KV_HEADS, slot);
}

static size_t all_slots(ag_session *s) {
    size_t n = 0;
    for (uint32_t head = 0; head < HEADS; head++) n += n_slots(s, head);
    return n;
}

static void the_best_of_all_heads_stay(void **state) {
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
    float least = INFINITY, most = 0; /* of those that stay, and of those that leave */
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
        assert_int_equal(at, n_slots(s, head)); /* ascending, none twice */
    }
    assert_true(least >= most);
    assert_true(uneven);
    ag_slot_scores_release(&scores);
    ag_session_destroy(s);
}

static void what_must_stay_stays_even_if_it_is_more(void **state) {
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

/* ---- going on ---- */

static void feed(ag_session *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const int32_t id = (int32_t)(ag_session_position(s) * 11 % 300) + 3;
        ag_error err;
        if (ag_session_decode(s, id, &err) != AG_OK) fail_msg("%s", err.msg);
    }
}

static void same_slots(ag_session *a, ag_session *b) {
    for (uint32_t head = 0; head < HEADS; head++) {
        assert_int_equal(n_slots(a, head), n_slots(b, head));
        for (uint32_t i = 0; i < n_slots(a, head); i++)
            assert_int_equal(position(a, head, i), position(b, head, i));
    }
}

/* Both go on alike. */
static void same_sessions(ag_session *a, ag_session *b) {
    const size_t bytes = model->info.n_vocab * sizeof(float);
    for (size_t i = 0; i < 12; i++) {
        same_slots(a, b);
        feed(a, 1);
        feed(b, 1);
        assert_memory_equal(ag_session_logits(a), ag_session_logits(b), bytes);
    }
}

static void heads_are_worth_their_largest_scores(void **state) {
    (void)state;
    ag_session *s = reader_of(model, "keydiff"), *other = reader_of(model, "keydiff");
    const ag_compress_params p = params(0.25f, 1);
    ag_slot_scores scores;
    size_t n_replayed;
    float maxima[HEADS];
    ag_error err;
    assert_int_equal(ag_slot_scores_create(s, &scores, NULL), AG_OK);
    assert_int_equal(ag_session_replay(s, text, &p, &scores, &n_replayed, NULL), AG_OK);
    assert_int_equal(ag_session_head_maxima(s, text, N, &p, maxima, HEADS, NULL), AG_OK);
    for (uint32_t head = 0; head < HEADS; head++) {
        float most = 0;
        for (uint32_t i = SINKS; i < N; i++) most = fmaxf(most, scores.of[scores.first[head] + i]);
        assert_true(most > 0 && maxima[head] == most);
    }
    assert_int_equal(ag_session_head_maxima(s, text, N, &p, maxima, HEADS - 1, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "5 heads of a cache of 6"));
    assert_int_equal(ag_session_head_maxima(s, text, N - 1, &p, maxima, HEADS, &err), AG_INVALID);
    ag_session_cancel(s);
    assert_int_equal(ag_session_head_maxima(s, text, N, &p, maxima, HEADS, &err), AG_CANCELLED);
    same_sessions(s, other);
    ag_slot_scores_release(&scores);
    ag_session_destroy(s);
    ag_session_destroy(other);
}

static void nothing_leaves_where_all_may_stay(void **state) {
    (void)state;
    ag_session *s = reader_of(model, "none"), *other = reader_of(model, "none");
    const ag_compress_report report = compress(s, 1, 1);
    assert_int_equal(report.n_kept, N * HEADS);
    assert_int_equal(report.n_replayed, 0);
    same_sessions(s, other);
    ag_session_destroy(s);
    ag_session_destroy(other);
}

static void logits_of_the_last_token_remain(void **state) {
    (void)state;
    ag_session *s = reader_of(model, "none"), *other = reader_of(model, "none");
    compress(s, 0.25f, 1);
    assert_memory_equal(ag_session_logits(s), ag_session_logits(other),
                        model->info.n_vocab * sizeof(float));
    ag_session_destroy(s);
    ag_session_destroy(other);
}

static void a_fork_and_a_file_hold_the_same(void **state) {
    (void)state;
    const char *policies[] = {"none", "keydiff", "h2o", "tova", "streaming"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        char path[] = "/tmp/ag_compress_XXXXXX";
        ag_session *s = reader_of(model, policies[i]), *fork, *other;
        const ag_session_params p = session_params(policies[i]);
        ag_error err;
        compress(s, 0.98f, 1); /* so that a policy has to evict soon */
        const int fd = mkstemp(path);
        assert_true(fd >= 0);
        close(fd);
        assert_int_equal(ag_session_fork(s, &fork, NULL), AG_OK);
        assert_int_equal(ag_session_create(model, &p, &other, NULL), AG_OK);
        if (ag_session_save(s, path, NULL, text, N, &err) != AG_OK) fail_msg("%s", err.msg);
        if (ag_session_restore(other, path, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
        remove(path);
        ag_session *last;
        assert_int_equal(ag_session_fork(s, &last, NULL), AG_OK);
        same_sessions(s, fork);
        same_sessions(last, other);
        ag_session_destroy(s);
        ag_session_destroy(fork);
        ag_session_destroy(last);
        ag_session_destroy(other);
    }
}

/* A policy's budget is what heads hold in the mean: the choice is not undone by the next eviction.
 */
static void a_policy_keeps_the_heads_uneven(void **state) {
    (void)state;
    const char *policies[] = {"keydiff", "h2o", "tova", "streaming", "snapkv", "sliding"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        ag_session_params sp = session_params(policies[i]);
        sp.eviction.budget_tokens = 100;
        sp.eviction.prefill = AG_KV_PREFILL_WHOLE;
        ag_session *s;
        ag_error err;
        int32_t more[70];
        uint32_t before[HEADS];
        bool uneven = false;
        if (ag_session_create(model, &sp, &s, &err) != AG_OK) fail_msg("%s", err.msg);
        assert_int_equal(ag_session_prefill(s, text, N, NULL, NULL, NULL), AG_OK);
        compress(s, 0.5f, 1);
        for (uint32_t h = 0; h < HEADS; h++) {
            before[h] = n_slots(s, h);
            uneven |= before[h] != before[0];
        }
        assert_true(uneven);
        feed(s, 45); /* below the budget */
        for (uint32_t h = 0; h < HEADS; h++) assert_int_equal(n_slots(s, h), before[h] + 45);
        for (size_t step = 0; step < 60; step++) {
            feed(s, 1);
            assert_true(all_slots(s) <= (100 + 4) * HEADS);
        }
        for (uint32_t h = 0; h < HEADS; h++) {
            assert_int_equal((int)n_slots(s, h) - (int)n_slots(s, 0),
                             (int)before[h] - (int)before[0]);
        }
        for (size_t k = 0; k < 70; k++) more[k] = text[k];
        if (ag_session_prefill(s, more, 70, NULL, NULL, &err) != AG_OK)
            fail_msg("%s: %s", policies[i], err.msg);
        assert_true(all_slots(s) <= 100 * HEADS);
        ag_session_destroy(s);
    }
}

/* A head that holds nearly all that fits stays below that, though the mean is far from the budget.
 */
static void no_head_outgrows_the_cache(void **state) {
    (void)state;
    ag_session_params sp = session_params("keydiff");
    sp.max_seq_len = 160;
    sp.eviction.budget_tokens = 155;
    ag_session *s;
    ag_error err;
    assert_int_equal(ag_session_create(model, &sp, &s, &err), AG_OK);
    assert_int_equal(ag_session_prefill(s, text, N, NULL, NULL, NULL), AG_OK);
    for (uint32_t h = 1; h < HEADS; h++) {
        const uint32_t keep[] = {0, 1, 2, 3, N - 1};
        assert_int_equal(ag_kv_cache_compact(s->cache, h / KV_HEADS, h % KV_HEADS, keep, 5, NULL),
                         AG_OK);
    }
    s->is_uneven = true;
    ag_cache_manager_set_uneven(s->manager, true);
    for (size_t step = 0; step < 40; step++) {
        feed(s, 1);
        assert_true(n_slots(s, 0) < 160);
        assert_int_equal(n_slots(s, 1), n_slots(s, 5));
    }
    if (ag_session_prefill(s, text, 70, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    assert_true(n_slots(s, 0) > n_slots(s, 1));
    ag_session_destroy(s);
}

static void sums_of_attention_move_with_their_slots(void **state) {
    (void)state;
    ag_session *s = reader_of(model, "h2o"), *before = reader_of(model, "h2o");
    compress(s, 0.5f, 1);
    const ag_score_sums *sums = ag_cache_manager_sums(s->manager);
    const ag_score_sums *old = ag_cache_manager_sums(before->manager);
    for (uint32_t h = 0; h < HEADS; h++) {
        const float *now = ag_score_sums_of(sums, h / KV_HEADS, h % KV_HEADS);
        const float *then = ag_score_sums_of(old, h / KV_HEADS, h % KV_HEADS);
        for (uint32_t i = 0; i < n_slots(s, h); i++)
            assert_memory_equal(&now[i], &then[position(s, h, i)], sizeof *now);
    }
    ag_session_destroy(s);
    ag_session_destroy(before);
}

/* ---- failures ---- */

static bool stop_at_once(void *user, uint64_t done, uint64_t total) {
    uint64_t *left = user;
    assert_true(done <= total);
    return (*left)-- > 1;
}

static void a_cancelled_one_changes_nothing(void **state) {
    (void)state;
    for (uint64_t steps = 1; steps < 6; steps++) {
        ag_session *s = reader_of(model, "h2o"), *other = reader_of(model, "h2o");
        ag_compress_params p = params(0.5f, 1);
        uint64_t left = steps;
        p.progress = stop_at_once;
        p.progress_user = &left;
        assert_int_equal(ag_session_compress(s, text, N, &p, NULL, NULL), AG_CANCELLED);
        ag_session_cancel(s);
        p.progress = NULL;
        assert_int_equal(ag_session_compress(s, text, N, &p, NULL, NULL), AG_CANCELLED);
        same_sessions(s, other);
        ag_session_destroy(s);
        ag_session_destroy(other);
    }
}

static void without_memory_nothing_changes(void **state) {
    (void)state;
    const ag_compress_params p = params(0.5f, 0.5f);
    ag_status st = AG_NOMEM;
    for (size_t nth = 0; st != AG_OK; nth += nth < 40 ? 1 : 7) {
        ag_session *s = reader_of(model, "h2o"), *other = reader_of(model, "h2o");
        failing_allocator f;
        failing_install(&f, nth);
        st = ag_session_compress(s, text, N, &p, NULL, NULL);
        ag_set_allocator(NULL);
        if (st != AG_OK) {
            assert_int_equal(st, AG_NOMEM);
            same_sessions(s, other);
        } else {
            assert_false(atomic_load(&f.failed));
        }
        ag_session_destroy(s);
        ag_session_destroy(other);
    }
}

static void expect(ag_session *s, size_t n_ids, const ag_compress_params *p, ag_status want,
                   const char *named) {
    ag_error err;
    assert_int_equal(ag_session_compress(s, text, n_ids, p, NULL, &err), want);
    if (!strstr(err.msg, named)) fail_msg("'%s' does not name '%s'", err.msg, named);
}

static void what_makes_no_sense_is_named(void **state) {
    (void)state;
    ag_session *s = reader_of(model, "none");
    const int32_t outside[] = {320};
    ag_compress_params p = params(0.5f, 1);
    expect(s, N - 1, &p, AG_INVALID, "149 ids");
    p = params(0, 1);
    expect(s, N, &p, AG_INVALID, "0 times the cache");
    p = params(0.5f, 0);
    expect(s, N, &p, AG_INVALID, "replay of 0");
    p = params(0.5f, 1);
    p.suffix = outside;
    p.n_suffix = 1;
    expect(s, N, &p, AG_INVALID, "token id 320");
    p = params(0.5f, 1);
    p.chunk = 15;
    expect(s, N, &p, AG_INVALID, "chunks of 15 tokens");
    p = params(0.5f, 1);
    assert_int_equal(ag_session_begin_prompt(s, 9, NULL), AG_OK);
    expect(s, N, &p, AG_INVALID, "9 tokens of a prompt");
    ag_session_destroy(s);
    ag_model *hybrid = load(backend, STATES);
    s = reader_of(hybrid, "none");
    expect(s, N, &p, AG_UNSUPPORTED, "layers with a state");
    ag_session_destroy(s);
    ag_model_destroy(hybrid);
}

/* Layers with a window keep what they have. */
static void layers_with_a_window_are_left_alone(void **state) {
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

/* Slots that stay with the CPU's reference and elsewhere, but for those that nearly do not. */
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

static void every_backend_keeps_the_same(void **state) {
    (void)state;
    const char *isas[] = {"common", "avx2", "avx512", "amx", "neon"};
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
        cmocka_unit_test(scores_are_those_of_the_definition),
        cmocka_unit_test(the_best_of_all_heads_stay),
        cmocka_unit_test(heads_are_worth_their_largest_scores),
        cmocka_unit_test(what_must_stay_stays_even_if_it_is_more),
        cmocka_unit_test(nothing_leaves_where_all_may_stay),
        cmocka_unit_test(logits_of_the_last_token_remain),
        cmocka_unit_test(a_fork_and_a_file_hold_the_same),
        cmocka_unit_test(a_policy_keeps_the_heads_uneven),
        cmocka_unit_test(no_head_outgrows_the_cache),
        cmocka_unit_test(sums_of_attention_move_with_their_slots),
        cmocka_unit_test(a_cancelled_one_changes_nothing),
        cmocka_unit_test(without_memory_nothing_changes),
        cmocka_unit_test(what_makes_no_sense_is_named),
        cmocka_unit_test(layers_with_a_window_are_left_alone),
        cmocka_unit_test(every_backend_keeps_the_same),
    };
    if (argc > 1) {
        device = argv[1];
        return on_device();
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
