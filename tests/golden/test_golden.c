/* SPDX-License-Identifier: Apache-2.0 */
/* usage: test_golden NAME [BACKEND | gguf [MODEL]]
 * Runs every prompt recorded in tests/data/golden/NAME.json with F32 weights and an F32 cache and
 * compares logits, nll and greedy tokens, however the tokens come; with a Q8_0 cache the nll. How a
 * record is read: tools/make_golden.py. gguf: of the F32 GGUF file that is
 * made of the model, or of the one at that path. */
#include "logits.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

static const char *name;
static const char *backend_name; /* NULL: the default */
static char model_dir[4096];
static json_t *records;           /* an array of records */
static size_t n_chosen;           /* choices of experts that were compared */
static double tolerance, largest; /* largest: difference that was seen */

enum { MAX_IDS = 512 };

typedef struct record {
    int32_t ids[MAX_IDS];
    size_t n;
    const json_t *json;
} record;

static record get_record(size_t i) {
    record r = {.json = json_array_get(records, i)};
    const json_t *ids = json_object_get(r.json, "ids");
    r.n = json_array_size(ids);
    assert_true(r.n > 0 && r.n <= MAX_IDS);
    for (size_t k = 0; k < r.n; k++) {
        r.ids[k] = (int32_t)json_integer_value(json_array_get(ids, k));
    }
    return r;
}

/* A backend, the model and a session, made and destroyed together. */
typedef struct engine {
    ag_backend *backend;
    ag_model *model;
    ag_session *session;
    int32_t n_vocab;
    uint32_t n_layers;
} engine;

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

/* Returns whether the record ends within the original length of longrope. Its sessions must stay
 * within that length too. */
static bool is_short(void) {
    const size_t n = strlen(name), suffix = strlen("-short");
    return n > suffix && !strcmp(name + n - suffix, "-short");
}

/* In place of the session that was there. */
static void begin_session(engine *e, uint32_t chunk, ag_dtype cache) {
    ag_error err;
    ag_session_params sp = ag_session_defaults();
    sp.k_type = sp.v_type = cache;
    sp.max_seq_len = is_short() ? 48 : 512;
    sp.prefill_chunk = chunk;
    ag_session_destroy(e->session);
    must(ag_session_create(e->model, &sp, &e->session, &err), &err);
}

/* A driver takes longer to build a program than to run it, even one that it has compiled before: a
 * device, which has no threads of ours, is opened once. */
static engine on_device;

static void open_engine(engine *e, uint32_t n_threads) {
    ag_error err;
    ag_backend_params bp = {.name = backend_name, .n_threads = n_threads};
    ag_model_params mp = ag_model_defaults();
    mp.weights = AG_F32;
    must(ag_backend_create(&bp, &e->backend, &err), &err);
    must(ag_model_load(e->backend, model_dir, &mp, &e->model, &err), &err);
}

static engine start(uint32_t n_threads, uint32_t chunk) {
    engine e = {0};
    if (backend_name && !on_device.backend) open_engine(&on_device, n_threads);
    if (backend_name) e = on_device;
    else open_engine(&e, n_threads);
    e.n_vocab = (int32_t)ag_model_get_info(e.model)->n_vocab;
    e.n_layers = ag_model_get_info(e.model)->n_layers;
    begin_session(&e, chunk, AG_F32);
    return e;
}

static void stop(engine *e) {
    ag_session_destroy(e->session);
    if (e->model != on_device.model) ag_model_destroy(e->model);
    if (e->backend != on_device.backend) ag_backend_destroy(e->backend);
}

static int close_device(void **state) {
    (void)state;
    ag_model_destroy(on_device.model);
    ag_backend_destroy(on_device.backend);
    return 0;
}

static void close_to(double have, double want, const char *what, size_t where) {
    if (fabs(have - want) > largest) largest = fabs(have - want);
    if (fabs(have - want) > tolerance || isnan(have)) {
        fail_msg("%s %zu: %.7f, recorded %.7f", what, where, have, want);
    }
}

/* ---- logits of every position ---- */

typedef struct row_check {
    const record *r;
    int32_t n_vocab;
} row_check;

static bool check_row(void *user, size_t i, const float *logits) {
    const row_check *c = user;
    const json_t *nll = json_object_get(c->r->json, "nll");
    if (i + 1 < c->r->n) {
        close_to(nll_of(logits, c->n_vocab, c->r->ids[i + 1]),
                 json_number_value(json_array_get(nll, i)), "nll at", i);
    }
    char key[32];
    snprintf(key, sizeof key, "%zu", i);
    const json_t *row = json_object_get(json_object_get(c->r->json, "logits_rows"), key);
    for (size_t k = 0; k < json_array_size(row); k++) {
        close_to(logits[k], json_number_value(json_array_get(row, k)), "logit", k);
    }
    return true;
}

/* ---- the last position ---- */

/* Near-ties may change places: the ten are compared as a set, each with its own logit. */
static void check_top(const float *logits, const json_t *r, int32_t n_vocab) {
    const json_t *ids = json_object_get(r, "last_top_ids");
    const json_t *values = json_object_get(r, "last_top_logits");
    double least = 1e30;
    for (size_t k = 0; k < json_array_size(ids); k++) {
        json_int_t id = json_integer_value(json_array_get(ids, k));
        double want = json_number_value(json_array_get(values, k));
        close_to(logits[id], want, "top logit", k);
        if (want < least) least = want;
    }
    size_t above = 0;
    for (int32_t i = 0; i < n_vocab; i++) above += logits[i] > least + tolerance;
    assert_true(above < json_array_size(ids));
}

/* ---- however the tokens come ---- */

static void consume_in_chunks(engine *e, const record *r, row_check *check) {
    ag_error err;
    must(ag_session_score(e->session, r->ids, r->n, check_row, check, &err), &err);
}

/* Each of them is decoded, as if it had been chosen. */
static void consume_one_by_one(engine *e, const record *r, row_check *check) {
    ag_error err;
    for (size_t i = 0; i < r->n; i++) {
        must(ag_session_decode(e->session, r->ids[i], &err), &err);
        check_row(check, i, ag_session_logits(e->session));
    }
}

static void every_position_gives_the_recorded_logits(void **state) {
    (void)state;
    const struct {
        uint32_t chunk;
        void (*consume)(engine *e, const record *r, row_check *check);
    } methods[] = {{512, consume_in_chunks}, {7, consume_in_chunks}, {512, consume_one_by_one}};
    const uint32_t n_threads[] = {2, 1, 8};
    const size_t n_pools = backend_name ? 1 : sizeof n_threads / sizeof n_threads[0];
    for (size_t t = 0; t < n_pools; t++) {
        engine e = start(n_threads[t], 512);
        for (size_t w = 0; w < sizeof methods / sizeof methods[0]; w++) {
            begin_session(&e, methods[w].chunk, AG_F32);
            for (size_t i = 0; i < json_array_size(records); i++) {
                record r = get_record(i);
                row_check check = {&r, e.n_vocab};
                ag_session_reset(e.session);
                methods[w].consume(&e, &r, &check);
                check_top(ag_session_logits(e.session), r.json, e.n_vocab);
            }
        }
        stop(&e);
    }
}

/* ---- weights as the files have them ---- */

static size_t bytes_of_weights(engine *e, bool as_is) {
    ag_error err;
    ag_model_params mp = ag_model_defaults();
    mp.weights = AG_F32;
    mp.as_is = as_is;
    ag_session_destroy(e->session);
    if (e->model != on_device.model) ag_model_destroy(e->model);
    e->session = NULL;
    must(ag_model_load(e->backend, model_dir, &mp, &e->model, &err), &err);
    return ag_model_memory_bytes(e->model);
}

/* Products with quantised weights round their input to 8 bits: compares the mean nll of all
 * tokens. */
static void check_mean_nll(engine *e) {
    ag_error err;
    double have = 0, want = 0;
    for (size_t i = 0; i < json_array_size(records); i++) {
        const record r = get_record(i);
        ag_session_reset(e->session);
        for (size_t k = 0; k + 1 < r.n; k++) {
            must(ag_session_decode(e->session, r.ids[k], &err), &err);
            have += nll_of(ag_session_logits(e->session), e->n_vocab, r.ids[k + 1]);
            want += json_number_value(json_array_get(json_object_get(r.json, "nll"), k));
        }
    }
    printf("mean nll with 8-bit activations: %.3f %% from the record\n", 100 * (have / want - 1));
    assert_true(fabs(have / want - 1) < 0.005);
}

static void weights_may_stay_as_they_are(void **state) {
    (void)state;
    engine e = start(2, 512);
    const size_t plain = bytes_of_weights(&e, false), kept = bytes_of_weights(&e, true);
    const ag_model_info *info = ag_model_get_info(e.model);
    assert_int_equal(info->weight_type, info->file_type);
    assert_int_equal(info->n_kept, 0);
    /* Norms and biases are F32 in any case. */
    if (info->file_type == AG_F32) assert_int_equal(kept, plain);
    else assert_true(kept < plain * 6 / 10);
    begin_session(&e, 512, AG_F32);
    const bool rounds = ag_dtype_is_quantized(info->file_type);
    if (rounds) check_mean_nll(&e);
    for (size_t i = 0; i < json_array_size(records) && !rounds; i++) {
        record r = get_record(i);
        row_check check = {&r, e.n_vocab};
        ag_session_reset(e.session);
        consume_one_by_one(&e, &r, &check);
    }
    stop(&e);
}

/* ---- a cache of eight bits ---- */

typedef struct nll_sum {
    const record *r;
    int32_t n_vocab;
    double sum; /* sum of distances from the record */
    size_t n;
} nll_sum;

static bool add_row(void *user, size_t i, const float *logits) {
    nll_sum *s = user;
    if (i + 1 == s->r->n) return true;
    const json_t *nll = json_array_get(json_object_get(s->r->json, "nll"), i);
    s->sum += fabs(nll_of(logits, s->n_vocab, s->r->ids[i + 1]) - json_number_value(nll));
    s->n++;
    return true;
}

static void q8_0_cache_stays_close(void **state) {
    (void)state;
    engine e = start(2, 512);
    ag_error err;
    if (ag_model_get_info(e.model)->head_dim % 32) {
        stop(&e);
        return;
    }
    begin_session(&e, 512, AG_Q8_0);
    nll_sum s = {.n_vocab = e.n_vocab};
    for (size_t i = 0; i < json_array_size(records); i++) {
        record r = get_record(i);
        s.r = &r;
        ag_session_reset(e.session);
        must(ag_session_score(e.session, r.ids, r.n, add_row, &s, &err), &err);
    }
    const double mean = s.sum / (double)s.n;
    /* Rounding adds up over layers: demo has ten of them, the others at most seven. */
    double most = e.n_layers > 7 ? 0.04 : 0.02;
    if (!strncmp(name, "gemma4", 6)) most = 0.08; /* its scores are not scaled down */
    if (!(mean < most)) fail_msg("mean distance of nll %.5f with a Q8_0 cache", mean);
    assert_true(mean > 0);
    stop(&e);
}

/* ---- greedily ---- */

static void greedy_tokens_are_the_recorded_ones(void **state) {
    (void)state;
    engine e = start(2, 512);
    ag_error err;
    for (size_t i = 0; i < json_array_size(records); i++) {
        record r = get_record(i);
        ag_session_reset(e.session);
        must(ag_session_prefill(e.session, r.ids, r.n, NULL, NULL, &err), &err);
        check_top(ag_session_logits(e.session), r.json, e.n_vocab);
        const json_t *greedy = json_object_get(r.json, "greedy");
        const json_t *margin = json_object_get(r.json, "greedy_margin");
        for (size_t k = 0; k < json_array_size(greedy); k++) {
            int32_t want = (int32_t)json_integer_value(json_array_get(greedy, k));
            int32_t have = argmax(ag_session_logits(e.session), e.n_vocab);
            if (have != want && json_number_value(json_array_get(margin, k)) > 1e-3) {
                fail_msg("prompt %zu, greedy token %zu: %d, recorded %d", i, k, have, want);
            }
            must(ag_session_decode(e.session, want, &err), &err);
        }
    }
    stop(&e);
}

/* ---- experts ---- */

/* Compares with the records of the first tokens. */
static void check_chosen(void *user, const ag_chosen_experts *chosen) {
    char layer[16];
    snprintf(layer, sizeof layer, "%u", chosen->layer);
    const json_t *of_layer = json_object_get(user, layer);
    const json_t *experts = json_array_get(json_object_get(of_layer, "experts"), chosen->row);
    const json_t *weights = json_array_get(json_object_get(of_layer, "weights"), chosen->row);
    assert_non_null(of_layer);
    if (!experts) return;
    n_chosen++;
    assert_int_equal(json_array_size(experts), chosen->n);
    for (size_t k = 0; k < chosen->n; k++) {
        if (json_integer_value(json_array_get(experts, k)) != chosen->experts[k])
            fail_msg("layer %s, token %zu: expert %u", layer, chosen->row, chosen->experts[k]);
        close_to((double)chosen->weights[k], json_number_value(json_array_get(weights, k)),
                 "weight of expert", chosen->experts[k]);
    }
}

static void experts_are_the_recorded_ones(void **state) {
    (void)state;
    engine e = start(2, 512);
    ag_error err;
    for (size_t i = 0; i < json_array_size(records); i++) {
        record r = get_record(i);
        json_t *routing = json_object_get(r.json, "routing");
        if (!routing) continue;
        ag_model_observe_experts(e.model, check_chosen, routing);
        ag_session_reset(e.session);
        row_check check = {&r, e.n_vocab};
        must(ag_session_score(e.session, r.ids, r.n, check_row, &check, &err), &err);
        ag_model_observe_experts(e.model, NULL, NULL);
        assert_int_equal(n_chosen, 32 * json_object_size(routing));
        n_chosen = 0;
    }
    stop(&e);
}

/* ---- the same whatever the threads and chunks ---- */

/* The CPU adds in one order whatever the work; kernels for one row and for many need not. */
static void same_logits(const float *have, const float *want, size_t n) {
    if (!backend_name) assert_memory_equal(have, want, n * sizeof *want);
    for (size_t i = 0; i < n; i++) close_to(have[i], want[i], "logit", i);
}

static void last_logits(uint32_t n_threads, uint32_t chunk, const record *r, float *out) {
    engine e = start(n_threads, chunk);
    ag_error err;
    must(ag_session_prefill(e.session, r->ids, r->n, NULL, NULL, &err), &err);
    memcpy(out, ag_session_logits(e.session), (size_t)e.n_vocab * sizeof *out);
    stop(&e);
}

static void threads_and_chunks_change_nothing(void **state) {
    (void)state;
    engine e = start(1, 512);
    size_t bytes = (size_t)e.n_vocab * sizeof(float);
    stop(&e);
    record r = get_record(json_array_size(records) - 1);
    float *want = malloc(bytes), *have = malloc(bytes);
    assert_true(want && have);
    last_logits(1, 512, &r, want);
    const struct {
        uint32_t n_threads, chunk;
    } cases[] = {{2, 512}, {3, 7}, {8, 1}, {1, 33}, {4, 128}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        last_logits(cases[i].n_threads, cases[i].chunk, &r, have);
        same_logits(have, want, bytes / sizeof *want);
    }
    free(want);
    free(have);
}

/* ---- where things are ---- */

static bool find_model(void) {
    const char *const places[] = {
        AG_GOLDEN_MODELS "/%.*s",
        AG_SOURCE_DIR "/models/%.*s",
        AG_SHARED_DIR "/models/%.*s",
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char config[4200];
        const int n = (int)strlen(name) - (is_short() ? (int)strlen("-short") : 0);
        snprintf(model_dir, sizeof model_dir, places[i], n, name);
        snprintf(config, sizeof config, "%s/config.json", model_dir);
        if (!access(config, R_OK)) return true;
    }
    return false;
}

/* Converts model_dir to a GGUF file and sets model_dir to that file. */
static bool make_gguf(void) {
    static char file[64] = "/tmp/ag-golden-XXXXXX";
    const ag_quantize_params params = {.type = "f32", .overwrite = true};
    ag_error err;
    const int fd = mkstemp(file);
    if (fd < 0) return false;
    close(fd);
    if (ag_quantize(model_dir, file, &params, NULL, &err) != AG_OK) {
        fprintf(stderr, "%s\n", err.msg);
        remove(file);
        return false;
    }
    strcpy(model_dir, file);
    return true;
}

static bool read_records(void) {
    char path[4096];
    snprintf(path, sizeof path, AG_SOURCE_DIR "/tests/data/golden/%s.json", name);
    json_error_t je;
    json_t *root = json_load_file(path, 0, &je);
    if (!root) {
        fprintf(stderr, "%s: %s\n", path, je.text);
        return false;
    }
    records = json_is_array(root) ? root : json_pack("[o]", root);
    return records && json_array_size(records) > 0;
}

static bool has_device(void) {
    const ag_backend_params params = {.name = backend_name};
    ag_backend *be;
    ag_error err;
    if (ag_backend_create(&params, &be, &err) == AG_OK) {
        ag_backend_destroy(be);
        return true;
    }
    printf("skipped: %s\n", err.msg);
    return false;
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 4) {
        fprintf(stderr, "usage: test_golden NAME [BACKEND | gguf [MODEL]]\n");
        return 2;
    }
    name = argv[1];
    const bool as_gguf = argc == 3 && !strcmp(argv[2], "gguf");
    backend_name = argc == 3 && !as_gguf ? argv[2] : NULL;
    if (!read_records()) return 1;
    if (!has_device()) return 77;
    if (argc == 4) snprintf(model_dir, sizeof model_dir, "%s", argv[3]);
    if (argc == 4 ? access(model_dir, R_OK) : !find_model()) {
        printf("skipped: the model %s is not part of this repository\n",
               argc == 4 ? model_dir : name);
        return 77;
    }
    if (as_gguf && !make_gguf()) return 1;
    /* Its norm epsilon, 1e-6, differs from the others' by less than 1e-4 shows. */
    tolerance = strcmp(name, "tinystories-656k") ? 1e-4 : 5e-5;
    if (!strcmp(name, "gemma4")) tolerance = 3e-4; /* the record's own error is 1.3e-4 */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_position_gives_the_recorded_logits),
        cmocka_unit_test(weights_may_stay_as_they_are),
        cmocka_unit_test(q8_0_cache_stays_close),
        cmocka_unit_test(greedy_tokens_are_the_recorded_ones),
        cmocka_unit_test(experts_are_the_recorded_ones),
        cmocka_unit_test(threads_and_chunks_change_nothing),
    };
    int failed = cmocka_run_group_tests(tests, NULL, close_device);
    printf("largest difference from the record: %.1e\n", largest);
    if (as_gguf) remove(model_dir);
    json_decref(records);
    return failed;
}
