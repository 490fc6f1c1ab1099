/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the OpenCL calls of a token, and fails each of them. A failure gives an error with a
 * message, or the right logits, but never a crash and never other logits.
 * "test_opencl_faults token" checks a token in one launch, whose kernel takes a driver longest. */
#include "memory/galloc.h"
#include "models/model_impl.h"
#include "unit/opencl_forwarded.h"

#include <antigravity/antigravity.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL AG_GOLDEN_MODELS "/gqa-llama3rope-sharded"

enum { N_PROMPT = 3, MAX_VOCAB = 4096 };

static forwarder_controls *forwarder;
static ag_backend *shared_backend;
static ag_model *shared_model;
static const int32_t prompt[N_PROMPT] = {3, 40, 77};
static float expected[MAX_VOCAB];
static size_t n_vocab;

static ag_status open_model(ag_backend **be, ag_model **model, ag_error *err) {
    ag_backend_params bp = {.name = "opencl"};
    *be = NULL;
    *model = NULL;
    ag_status st = ag_backend_create(&bp, be, err);
    return st == AG_OK ? ag_model_load(*be, MODEL, NULL, model, err) : st;
}

/* The prompt, then a token after the other. */
static ag_status step(ag_session *s, int32_t i, ag_error *err) {
    return i ? ag_session_decode(s, 8 + i, err)
             : ag_session_prefill(s, prompt, N_PROMPT, NULL, NULL, err);
}

/* Runs a prompt and three more tokens in a new session, and destroys it. A failed step does not
 * change the session, and works when repeated. */
static ag_status run(ag_model *model, float *logits, ag_error *err) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 64;
    ag_session *s;
    ag_error again;
    ag_status first = AG_OK;
    ag_status st = ag_session_create(model, &p, &s, err);
    if (st != AG_OK) return st;
    for (int32_t i = 0; i < 4; i++) {
        const uint32_t position = ag_session_position(s);
        st = step(s, i, err);
        if (st == AG_OK) continue;
        assert_int_equal(first, AG_OK);
        assert_int_equal(ag_session_position(s), position);
        first = st;
        forwarder->fail_at = 0;
        if (step(s, i, &again) != AG_OK) fail_msg("the next step: %s", again.msg);
    }
    memcpy(logits, ag_session_logits(s), n_vocab * sizeof *logits);
    ag_session_destroy(s);
    (void)ag_sync(shared_backend);
    return first;
}

static int prepare(void **state) {
    (void)state;
    ag_error err;
    forwarder->fail_at = 0;
    if (open_model(&shared_backend, &shared_model, &err) != AG_OK) {
        print_error("%s\n", err.msg);
        return 1;
    }
    n_vocab = ag_model_get_info(shared_model)->n_vocab;
    return n_vocab > MAX_VOCAB || run(shared_model, expected, &err) != AG_OK;
}

static int finish(void **state) {
    (void)state;
    ag_model_destroy(shared_model);
    ag_backend_destroy(shared_backend);
    return 0;
}

/* ---- cost of a token, operation by operation ---- */

static int by_operations(void **state) {
    (void)state;
    ag_cl_of(shared_backend)->switches.token = AG_CL_OFF;
    return 0;
}

static int by_default(void **state) {
    (void)state;
    ag_cl_of(shared_backend)->switches.token = AG_CL_AUTO;
    return ag_sync(shared_backend); /* nothing of sessions that are gone is left */
}

static void decoding_reads_once_per_token(void **state) {
    (void)state;
    enum { TOKENS = 10 };
    ag_error err;
    ag_session *s;
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 64;
    assert_int_equal(ag_session_create(shared_model, &p, &s, &err), AG_OK);
    assert_int_equal(ag_session_prefill(s, prompt, N_PROMPT, NULL, NULL, &err), AG_OK);
    assert_int_equal(ag_session_decode(s, 9, &err), AG_OK);
    size_t per_token = 0, most = 0;
    for (int i = 0; i < TOKENS; i++) {
        const forwarder_controls before = *forwarder;
        assert_int_equal(ag_session_decode(s, 10 + i, &err), AG_OK);
        assert_int_equal(forwarder->n_reads - before.n_reads, 1);
        assert_int_equal(forwarder->read_bytes - before.read_bytes, n_vocab * sizeof(float));
        assert_int_equal(forwarder->n_finishes, before.n_finishes);
        assert_int_equal(forwarder->n_buffers, before.n_buffers);
        assert_true(forwarder->n_writes - before.n_writes <= 5);
        const size_t launches = forwarder->n_launches - before.n_launches;
        const size_t arguments = forwarder->n_arguments - before.n_arguments;
        if (i) assert_int_equal(launches, per_token);
        per_token = launches;
        most = arguments > most ? arguments : most;
    }
    /* Most of the 551 are as in the layer before. */
    print_message("%zu launches, up to %zu arguments a token\n", per_token, most);
    assert_true(most < 300);
    ag_session_destroy(s);
    assert_int_equal(ag_sync(shared_backend), AG_OK);
}

static void queries_and_keys_are_rotated_in_one_launch(void **state) {
    (void)state;
    enum { ROWS = 2, HEADS = 3, DIM = 8 };
    ag_tensor q, freq;
    ag_buffer *q_owner, *freq_owner;
    ag_memory *host;
    const uint32_t positions[ROWS] = {4, 5};
    ag_memory *device = ag_backend_memory(shared_backend);
    assert_int_equal(ag_tensor_alloc(&q, &q_owner, device, AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_3d(ROWS, HEADS, DIM), NULL),
                     AG_OK);
    assert_int_equal(ag_galloc_create(&host, NULL), AG_OK);
    assert_int_equal(ag_tensor_alloc(&freq, &freq_owner, host, AG_USAGE_SCRATCH, AG_F32,
                                     ag_shape_1d(DIM / 2), NULL),
                     AG_OK);
    ag_tensor k = q;
    const size_t before = forwarder->n_launches;
    assert_int_equal(ag_rope_pair(shared_backend, &q, &k, positions, &freq, 1), AG_OK);
    assert_int_equal(forwarder->n_launches - before, 1);
    assert_int_equal(ag_sync(shared_backend), AG_OK);
    ag_buffer_release(&freq_owner);
    ag_buffer_release(&q_owner);
    ag_galloc_destroy(host);
}

static size_t arguments_of_a_scale(ag_tensor *x) {
    const size_t before = forwarder->n_arguments;
    assert_int_equal(ag_scale(shared_backend, x, 2), AG_OK);
    return forwarder->n_arguments - before;
}

/* A kernel keeps its arguments, but a buffer that is gone may have left its handle to another. */
static void sets_arguments_only_when_they_may_differ(void **state) {
    (void)state;
    ag_tensor x;
    ag_buffer *owner, *other;
    ag_memory *device = ag_backend_memory(shared_backend);
    assert_int_equal(
        ag_tensor_alloc(&x, &owner, device, AG_USAGE_SCRATCH, AG_F32, ag_shape_1d(8), NULL), AG_OK);
    assert_true(arguments_of_a_scale(&x) > 1);
    assert_int_equal(arguments_of_a_scale(&x), 0);
    assert_int_equal(ag_memory_alloc(device, 8, AG_USAGE_SCRATCH, &other, NULL), AG_OK);
    assert_int_equal(arguments_of_a_scale(&x), 0);
    ag_buffer_release(&other);
    assert_int_equal(arguments_of_a_scale(&x), 1);
    ag_buffer_release(&owner);
}

enum { CHOSEN = 16, WARM = 3 }; /* small, so that the choice keeps its size */

typedef struct costs {
    forwarder_controls at[CHOSEN];
    size_t n;
} costs;

static bool note_costs(void *user, int32_t id, const char *text, size_t len) {
    costs *c = user;
    (void)id;
    (void)text;
    (void)len;
    if (c->n < CHOSEN) c->at[c->n++] = *forwarder;
    return true;
}

/* The choice is read, not the row of logits. */
static void generation_reads_only_the_choice(void **state) {
    (void)state;
    ag_error err;
    ag_session *s;
    costs c = {.n = 0};
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 64;
    ag_sampler_params sampling = ag_sampler_defaults();
    sampling.seed = 1;
    ag_generate_params g = ag_generate_defaults();
    g.max_tokens = CHOSEN;
    g.ignore_eos = true;
    g.on_token = note_costs;
    g.on_token_user = &c;
    assert_int_equal(ag_session_create(shared_model, &p, &s, &err), AG_OK);
    assert_int_equal(ag_sampler_create(&sampling, (int32_t)n_vocab, &g.sampler, &err), AG_OK);
    assert_int_equal(ag_session_generate(s, prompt, N_PROMPT, &g, NULL, &err), AG_OK);
    for (size_t i = WARM; i < CHOSEN; i++) {
        const forwarder_controls *now = &c.at[i], *before = &c.at[i - 1];
        assert_int_equal(now->n_reads - before->n_reads, 1);
        assert_true(now->read_bytes - before->read_bytes < 1024);
        assert_int_equal(now->n_finishes, before->n_finishes);
        assert_int_equal(now->n_buffers, before->n_buffers);
    }
    ag_sampler_destroy(g.sampler);
    ag_session_destroy(s);
    assert_int_equal(ag_sync(shared_backend), AG_OK);
}

/* ---- faults ---- */

static size_t armed; /* index of the call that must fail */

/* Checks the status `st` of a run with an armed call. Returns whether that call has failed. */
static bool check_outcome(ag_status st, const ag_error *err, const float *logits) {
    if (!forwarder->failed) {
        assert_int_equal(st, AG_OK);
        return false;
    }
    if (logits && memcmp(logits, expected, n_vocab * sizeof *logits) != 0)
        fail_msg("other logits after %s, call %zu, failed", forwarder->failed, armed);
    if (st != AG_OK && (!err->msg[0] || err->status != st))
        fail_msg("no message after %s, call %zu, failed", forwarder->failed, armed);
    return true;
}

static void arm(size_t call) {
    armed = call;
    forwarder->n_calls = 0;
    forwarder->failed = NULL;
    forwarder->fail_at = call;
}

static void every_call_of_a_generation_may_fail(void **state) {
    (void)state;
    float logits[MAX_VOCAB];
    ag_error err;
    size_t n = 1, n_errors = 0;
    const size_t n_live = forwarder->n_live;
    for (;; n++) {
        arm(n);
        err = (ag_error){0};
        memcpy(logits, expected, sizeof logits); /* stay if the session cannot be created */
        ag_status st = run(shared_model, logits, &err);
        assert_int_equal(forwarder->n_live, n_live);
        if (!check_outcome(st, &err, logits)) break;
        n_errors += st != AG_OK;
    }
    print_message("%zu calls, %zu of them errors\n", n - 1, n_errors);
    assert_true(n > 100);
    /* Calls that only save time later, or wait for work that is known to be done, may fail
     * silently. */
    assert_true(n_errors > (n - 1) / 10 * 9);
    arm(0);
    assert_int_equal(run(shared_model, logits, &err), AG_OK);
    assert_memory_equal(logits, expected, n_vocab * sizeof *logits);
}

static void every_call_of_loading_may_fail(void **state) {
    (void)state;
    ag_error err;
    size_t n = 1, n_errors = 0;
    const size_t n_live = forwarder->n_live;
    for (;; n++) {
        ag_backend *be;
        ag_model *model;
        arm(n);
        err = (ag_error){0};
        ag_status st = open_model(&be, &model, &err);
        bool more = check_outcome(st, &err, NULL);
        forwarder->fail_at = 0;
        ag_model_destroy(model);
        ag_backend_destroy(be);
        assert_int_equal(forwarder->n_live, n_live);
        if (!more) break;
        n_errors += st != AG_OK;
    }
    print_message("%zu calls, %zu of them errors\n", n - 1, n_errors);
    assert_true(n_errors > 20);
}

/* From source until that succeeds, then from the binary that it left. */
static void every_call_of_building_a_program_may_fail(void **state) {
    (void)state;
    ag_error err;
    bool more = true;
    const size_t n_live = forwarder->n_live;
    for (size_t n = 1; more; n++) {
        ag_backend *be;
        ag_backend_params bp = {.name = "opencl"};
        arm(0);
        assert_int_equal(ag_backend_create(&bp, &be, &err), AG_OK);
        arm(n);
        cl_kernel kernel;
        ag_cl_known_arg *args;
        ag_status st = ag_cl_kernel(ag_cl_of(be), "rows.cl", "scale", "-DFAULTS", &kernel, &args);
        more = check_outcome(st, ag_backend_error(be), NULL);
        ag_backend_destroy(be);
        assert_int_equal(forwarder->n_live, n_live);
    }
}

/* ---- a token in one launch ---- */

enum { EDGE = 128 }; /* slots of a block: the next token's is in another buffer */

/* One layer and one KV head, so that all addresses but that of the step's last block are listed
 * when that one fails to come: of another head they would be sent with the next step. */
static ag_model *model_of_one_layer(void) {
    ag_model_spec spec = ag_spec_plain(2, 1, 64);
    spec.vocab_size = spec.max_positions = 512;
    spec.hidden_size = 64;
    spec.intermediate_size = 768; /* the kernel of test_opencl_token */
    spec.n_layers = 1;
    const ag_model_params params = ag_model_defaults();
    ag_model *model;
    ag_error err;
    if (ag_model_random(shared_backend, &spec, &params, &model, &err) != AG_OK) {
        fail_msg("%s", err.msg);
    }
    return model;
}

static const char *policy_of_steps; /* NULL: none */

/* After n tokens, all by operations. */
static ag_session *session_of(ag_model *model, int32_t first_id, size_t n) {
    int32_t ids[EDGE];
    ag_error err;
    ag_session *s;
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)(i + (size_t)first_id) % 500;
    ag_cl_of(shared_backend)->switches.token = AG_CL_OFF;
    ag_session_params p = ag_session_defaults();
    if (policy_of_steps) {
        p.eviction.policy = ag_eviction_policy_find(policy_of_steps);
        p.eviction.budget_tokens = 2 * EDGE;
    }
    if (ag_session_create(model, &p, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    if (ag_session_prefill(s, ids, n, NULL, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    ag_cl_of(shared_backend)->switches.token = AG_CL_ON;
    return s;
}

/* Fails call n of a session's first step in one launch. A later, smaller step must not use device
 * state of another session. Returns false if the step has fewer calls. */
static bool take_a_step_after_call_fails(ag_model *model, size_t n, const float *want) {
    ag_error err = {0};
    ag_session *other = session_of(model, 77, 20), *s = session_of(model, 3, EDGE);
    assert_int_equal(ag_session_decode(other, 9, &err), AG_OK);
    arm(n);
    const ag_status st = ag_session_decode(s, 11, &err);
    const bool failed = forwarder->failed != NULL;
    arm(0);
    assert_true(st == AG_OK || err.msg[0]);
    assert_int_equal(ag_session_position(s), EDGE + (st == AG_OK));
    assert_int_equal(ag_session_truncate(s, EDGE - 8, &err), AG_OK);
    assert_int_equal(ag_session_decode(s, 12, &err), AG_OK);
    if (memcmp(ag_session_logits(s), want, 512 * sizeof *want) != 0) {
        fail_msg("other logits after a step whose call %zu failed", n);
    }
    ag_session_destroy(s);
    ag_session_destroy(other);
    return failed;
}

/* state: a policy. With one, a second kernel adds attention weights to its sums. */
static void single_launch_step_works_after_a_failed_one(void **state) {
    policy_of_steps = *state;
    ag_model *model = model_of_one_layer();
    float want[512];
    size_t n = 1;
    ag_error err;
    ag_session *s = session_of(model, 3, EDGE - 8);
    assert_int_equal(ag_session_decode(s, 12, &err), AG_OK);
    memcpy(want, ag_session_logits(s), sizeof want);
    ag_session_destroy(s);
    while (take_a_step_after_call_fails(model, n, want)) n++;
    print_message("%zu calls\n", n - 1);
    assert_true(n > 8);
    ag_model_destroy(model);
}

int main(int argc, char **argv) {
    const bool in_one_launch = argc > 1 && strcmp(argv[1], "token") == 0;
    const int unfit = open_forwarded(AG_FORWARDER, &forwarder, NULL);
    if (unfit) return unfit;
    static char h2o[] = "h2o";
    const struct CMUnitTest token[] = {
        cmocka_unit_test_teardown(single_launch_step_works_after_a_failed_one, by_default),
        {"single_launch_step_that_adds_weights", single_launch_step_works_after_a_failed_one, NULL,
         by_default, h2o},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(decoding_reads_once_per_token, by_operations, by_default),
        cmocka_unit_test(queries_and_keys_are_rotated_in_one_launch),
        cmocka_unit_test(sets_arguments_only_when_they_may_differ),
        cmocka_unit_test_setup_teardown(generation_reads_only_the_choice, by_operations,
                                        by_default),
        cmocka_unit_test(every_call_of_a_generation_may_fail),
        cmocka_unit_test(every_call_of_loading_may_fail),
        cmocka_unit_test(every_call_of_building_a_program_may_fail),
    };
    if (in_one_launch) return cmocka_run_group_tests(token, prepare, finish);
    return cmocka_run_group_tests(tests, prepare, finish);
}
