/* SPDX-License-Identifier: Apache-2.0 */
/* Usage: test_run [all]: with 1, 2, 3 and 4 threads each.
 *
 * Passes of three sessions give the recorded bits for every golden model, type and instruction
 * set: logits, hidden rows, caches, states and sums. AG_RECORD_BITS=1 adds records of the
 * current instruction set; a change of rounding must give its reason. */
#include "cache/cache_manager.h"
#include "core/checksum.h"
#include "session/session_impl.h"
#include "support/stride.h"

#include <antigravity/expert.h>

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>

#define MODELS AG_GOLDEN_MODELS
#define RECORDS AG_SOURCE_DIR "/tests/data/programs/bits.txt"
enum { MAX_SEQ = 200, CHUNK = 64, N_SESSIONS = 3, N_STEPS = 8, MOST_THREADS = 4 };

static bool all_threads;
static ag_model *model;
static ag_checksum sum;
static uint64_t random_state;

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

/* Returns a number below n, the same on every machine. */
static uint32_t draw(uint32_t n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

/* ---- sessions ---- */

static ag_session *make_session(const char *policy) {
    ag_session_params p = ag_session_defaults();
    ag_session *s;
    ag_error err;
    p.max_seq_len = MAX_SEQ;
    p.prefill_chunk = CHUNK;
    p.eviction.policy = policy ? ag_eviction_policy_find(policy) : NULL;
    p.eviction.budget_tokens = policy ? 40 : 0;
    p.eviction.recent = 8;
    p.eviction.slack = 8;
    p.eviction.snapkv_window = 8;
    must(ag_session_create(model, &p, &s, &err), &err);
    return s;
}

static bool add_logits(void *user, size_t i, const float *values) {
    (void)user, (void)i;
    ag_checksum_add(&sum, values, ag_model_get_info(model)->n_vocab * sizeof *values);
    return true;
}

static bool add_hidden(void *user, size_t i, const float *values) {
    (void)user, (void)i;
    ag_checksum_add(&sum, values, ag_model_get_info(model)->hidden_size * sizeof *values);
    return true;
}

static ag_status add_bytes(void *user, const void *bytes, size_t n, ag_error *err) {
    (void)user, (void)err;
    ag_checksum_add(&sum, bytes, n);
    return AG_OK;
}

/* Adds all data that the next tokens depend on. */
static void add_session(ag_session *s) {
    ag_score_sums *sums = ag_cache_manager_sums(s->manager);
    assert_int_equal(ag_kv_cache_save(s->cache, add_bytes, NULL, NULL), AG_OK);
    assert_int_equal(ag_score_sums_save(sums, s->cache, add_bytes, NULL, NULL), AG_OK);
    assert_int_equal(ag_layer_state_save(s->state, add_bytes, NULL, NULL), AG_OK);
    if (ag_session_logits(s)) add_logits(NULL, 0, ag_session_logits(s));
}

/* ---- steps ---- */

static ag_step_item draw_item(ag_session *s, int32_t ids[CHUNK]) {
    static const uint32_t sizes[] = {0, 1, 1, 1, 5, 7, 16, 33, CHUNK};
    const uint32_t left = MAX_SEQ - ag_session_position(s);
    const uint32_t n_vocab = (uint32_t)ag_model_get_info(model)->n_vocab;
    ag_step_item item = {.session = s, .ids = ids, .row = add_logits};
    item.n = sizes[draw(sizeof sizes / sizeof *sizes)];
    if (item.n > left) item.n = left;
    for (size_t i = 0; i < item.n; i++) ids[i] = (int32_t)draw(n_vocab);
    item.phase = item.n > 1 ? AG_PHASE_PROMPT : AG_PHASE_DECODE;
    if (item.n > 1 && item.n < 8 && draw(2)) item.phase = AG_PHASE_VERIFY;
    item.logits = (ag_logits_rows)draw(3);
    if (!draw(4)) item.hidden = add_hidden;
    return item;
}

static void step(ag_session *const sessions[N_SESSIONS]) {
    int32_t ids[N_SESSIONS][CHUNK];
    ag_step_item items[N_SESSIONS];
    size_t n = 0;
    ag_error err;
    for (size_t i = 0; i < N_SESSIONS; i++) {
        items[n] = draw_item(sessions[i], ids[i]);
        n += items[n].n > 0;
    }
    if (n) must(ag_session_step(items, n, &err), &err);
    for (size_t i = 0; i < N_SESSIONS; i++) add_session(sessions[i]);
}

/* Truncates some tokens, if the session can. */
static void go_back(ag_session *s) {
    const uint32_t position = ag_session_position(s), to = position > 3 ? position - 3 : 0;
    if (draw(3) || to < ag_session_oldest_reachable(s)) return;
    (void)ag_session_truncate(s, to, NULL);
}

/* Replaces the session by a fork. */
static ag_session *fork_of(ag_session *s) {
    ag_session *fork;
    ag_error err;
    must(ag_session_fork(s, &fork, &err), &err);
    ag_session_destroy(s);
    return fork;
}

static void run_text(void) {
    ag_session *sessions[N_SESSIONS] = {make_session(NULL), make_session("h2o"),
                                        make_session("snapkv")};
    for (size_t k = 0; k < N_STEPS; k++) {
        step(sessions);
        for (size_t i = 0; i < N_SESSIONS; i++) go_back(sessions[i]);
        if (k == N_STEPS / 2) sessions[0] = fork_of(sessions[0]);
    }
    for (size_t i = 0; i < N_SESSIONS; i++) ag_session_destroy(sessions[i]);
}

/* ---- records ---- */

/* Checksum of C library functions: rotations and exponentials differ between libraries. */
static uint64_t libm_sum(void) {
    ag_checksum c;
    ag_checksum_begin(&c);
    for (int i = 1; i < 2000; i++) {
        const float x = 0.37f * (float)i;
        const double wide = 0.011 * i;
        const float f[] = {cosf(x), sinf(x), expf(-x / 20), logf(x), tanhf(x / 100)};
        const double d[] = {cos(wide), sin(wide), exp(-wide), log(wide), pow(10000, -wide / 22)};
        ag_checksum_add(&c, f, sizeof f);
        ag_checksum_add(&c, d, sizeof d);
    }
    return ag_checksum_value(&c);
}

/* "cpu: 2 threads, avx2 (...)" */
static const char *isa_of(ag_backend *backend) {
    static char isa[32];
    const char *text = strstr(ag_backend_describe(backend), "threads, ");
    if (!text) text = strstr(ag_backend_describe(backend), "thread, ");
    assert_non_null(text);
    assert_int_equal(sscanf(strchr(text, ' ') + 1, "%31[a-z0-9_]", isa), 1);
    return isa;
}

/* Returns the record, 0 if there is none. A line holds a model, a type, an instruction set and a
 * checksum. */
static uint64_t record_of(const char *name, const char *type, const char *isa) {
    char line[256], at[3][64];
    uint64_t have, found = 0;
    FILE *f = fopen(RECORDS, "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%63s %63s %63s %" SCNx64, at[0], at[1], at[2], &have) != 4) continue;
        if (!strcmp(at[0], name) && !strcmp(at[1], type) && !strcmp(at[2], isa)) found = have;
    }
    if (f) fclose(f);
    return found;
}

static void check_sum(const char *name, const char *type, const char *isa, uint64_t have) {
    const uint64_t want = record_of(name, type, isa);
    if (!want && getenv("AG_RECORD_BITS")) {
        FILE *f = fopen(RECORDS, "a");
        assert_non_null(f);
        fprintf(f, "%s %s %s %016" PRIx64 "\n", name, type, isa, have);
        assert_int_equal(fclose(f), 0);
    } else if (!want) {
        print_message("%s as %s: no record of %s\n", name, type, isa);
    } else if (have != want) {
        fail_msg("%s as %s, %s: other bits than recorded", name, type, isa);
    }
}

/* ---- models ---- */

static void run_model(const char *name, ag_dtype type, uint32_t n_threads) {
    const ag_model_params params = {.weights = type};
    const ag_backend_params bp = {.n_threads = n_threads};
    ag_backend *backend;
    char dir[512];
    ag_error err;
    must(ag_backend_create(&bp, &backend, &err), &err);
    snprintf(dir, sizeof dir, "%s/%s", MODELS, name);
    must(ag_model_load(backend, dir, &params, &model, &err), &err);
    ag_checksum_begin(&sum);
    random_state = 7 + strlen(name);
    run_text();
    check_sum(name, ag_dtype_name(type), isa_of(backend), ag_checksum_value(&sum));
    ag_model_destroy(model);
    ag_backend_destroy(backend);
}

static void passes_give_the_bits_that_are_recorded(void **state) {
    (void)state;
    static const ag_dtype types[] = {AG_F32, AG_Q4_0};
    size_t n = 0;
    const uint64_t libm = record_of("libm", "all", "any");
    if (libm && libm != libm_sum()) {
        print_message(
            "another C library than that of the records: its functions round otherwise\n");
        skip();
    }
    check_sum("libm", "all", "any", libm_sum());
    DIR *d = opendir(MODELS);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        for (size_t t = 0; t < 2; t++, n++) {
            if (n % test_stride()) continue;
            for (uint32_t k = 1; k <= MOST_THREADS; k++) {
                if (!all_threads && k != 1 + n % MOST_THREADS) continue;
                run_model(e->d_name, types[t], k);
            }
        }
    }
    closedir(d);
    assert_true(n >= 40);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(passes_give_the_bits_that_are_recorded)};
    all_threads = argc > 1 && !strcmp(argv[1], "all");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
