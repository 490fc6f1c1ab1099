/* SPDX-License-Identifier: Apache-2.0 */
/* Serving engine: loads on demand, beside other requests; loads that fail; removed models. */
#include "support/serving_demo.h"
#include "support/tiny_model.h"

#include <time.h>
#include <unistd.h>

static ag_served_model *other;

/* ---- loads beside the engine's thread ---- */

static atomic_bool has_load_begun, may_load_continue, must_load_fail;

/* Called by the load of `other`. Waits until the test lets it continue. */
static bool hold_load(void *user, uint64_t done, uint64_t total) {
    const struct timespec pause = {.tv_nsec = 1000000};
    (void)user, (void)done, (void)total;
    atomic_store(&has_load_begun, true);
    while (!atomic_load(&may_load_continue)) nanosleep(&pause, NULL);
    return !atomic_load(&must_load_fail);
}

static int start_two(void **state) {
    ag_served_model_params m = {.name = "other",
                                .path = DEMO,
                                .model = ag_model_defaults(),
                                .session = ag_session_defaults(),
                                .keep_alive_s = 3600};
    ag_error err;
    atomic_store(&has_load_begun, false);
    atomic_store(&may_load_continue, false);
    atomic_store(&must_load_fail, false);
    start(state);
    m.model.progress = hold_load;
    must(ag_serving_add_model(serving, &m, &other, &err), &err);
    must(ag_serving_load_model(serving, demo, &err), &err);
    return 0;
}

static void wait_for_flag(const atomic_bool *flag) {
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 120000 && !atomic_load(flag); i++) nanosleep(&pause, NULL);
    assert_true(atomic_load(flag));
}

static void requests_run_while_another_model_loads(void **state) {
    int32_t ids[40];
    (void)state;
    fill_ids(ids, 40, 3);
    ag_request_params p = request(ids, 40, 12);
    p.logprobs = true;
    p.model = other;
    send_request(&clients[0], &p);
    wait_for_flag(&has_load_begun);
    p.model = demo;
    for (size_t i = 1; i < 4; i++) {
        send_request(&clients[i], &p);
        finish(&clients[i], AG_OK);
    }
    assert_false(clients[0].started);
    assert_false(ag_served_model_is_loaded(other));
    atomic_store(&may_load_continue, true);
    finish(&clients[0], AG_OK);
    assert_true(ag_served_model_is_loaded(other));
    same_answer(&clients[0].answers[0], &clients[1].answers[0], 0);
    /* The model's own time applies after the load. */
    const double seconds = ag_served_model_expires_in(other);
    assert_true(seconds > 3000 && seconds <= 3600);
}

static bool count_progress(void *user, uint64_t done, uint64_t total) {
    (void)done, (void)total;
    atomic_fetch_add((atomic_int *)user, 1);
    return true;
}

/* A file that changes between the add and the load is another model than requests were made for.
 * Its weights are read once, not for each request. */
static void a_load_fails_if_the_file_has_changed(void **state) {
    static const char *const files[] = {"config.json", "generation_config.json",
                                        "model.safetensors"};
    char dir[] = "/tmp/ag-serving-load-XXXXXX", from[256], to[256];
    ag_error err;
    ag_served_model *changed;
    (void)state;
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < 3; i++) {
        snprintf(from, sizeof from, AG_GOLDEN_MODELS "/qwen2/%s", files[i]);
        snprintf(to, sizeof to, "%s/%s", dir, files[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    ag_served_model_params m = {.name = "changed",
                                .path = dir,
                                .model = ag_model_defaults(),
                                .session = ag_session_defaults()};
    atomic_int n_progress = 0;
    m.model.progress = count_progress;
    m.model.progress_user = &n_progress;
    must(ag_serving_add_model(serving, &m, &changed, &err), &err);
    for (size_t i = 0; i < 3; i++) {
        snprintf(from, sizeof from, AG_GOLDEN_MODELS "/qwen3/%s", files[i]);
        snprintf(to, sizeof to, "%s/%s", dir, files[i]);
        assert_int_equal(unlink(to), 0);
        assert_int_equal(symlink(from, to), 0);
    }
    assert_int_equal(ag_serving_load_model(serving, changed, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "the file has changed"));
    assert_false(ag_served_model_is_loaded(changed));
    assert_true(atomic_load(&n_progress) > 0);
    atomic_store(&n_progress, 0);
    assert_int_equal(ag_serving_load_model(serving, changed, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "the file has changed"));
    assert_int_equal(atomic_load(&n_progress), 0);
    for (size_t i = 0; i < 3; i++) {
        snprintf(to, sizeof to, "%s/%s", dir, files[i]);
        unlink(to);
    }
    rmdir(dir);
}

static void *destroy_engine(void *user) {
    (void)user;
    ag_serving_destroy(serving);
    serving = NULL;
    return NULL;
}

static void destroy_cancels_a_load(void **state) {
    int32_t ids[10];
    pthread_t thread;
    (void)state;
    fill_ids(ids, 10, 3);
    ag_request_params p = request(ids, 10, 4);
    p.model = other;
    send_request(&clients[0], &p);
    wait_for_flag(&has_load_begun);
    assert_int_equal(pthread_create(&thread, NULL, destroy_engine, NULL), 0);
    atomic_store(&may_load_continue, true);
    pthread_join(thread, NULL);
    assert_true(clients[0].ended);
    assert_int_equal(clients[0].status, AG_CANCELLED);
}

/* Requests that waited for one load share its failure; a later one loads again. */
static void a_failed_load_ends_all_that_waited(void **state) {
    int32_t ids[10];
    (void)state;
    fill_ids(ids, 10, 3);
    ag_request_params p = request(ids, 10, 4);
    p.model = other;
    atomic_store(&must_load_fail, true);
    for (size_t i = 0; i < 3; i++) send_request(&clients[i], &p);
    wait_for_flag(&has_load_begun);
    atomic_store(&may_load_continue, true);
    for (size_t i = 0; i < 3; i++) {
        finish(&clients[i], AG_CANCELLED);
        assert_non_null(strstr(clients[i].error.msg, "other: loading was cancelled"));
    }
    atomic_store(&must_load_fail, false);
    run_request(&clients[0], &p);
}

/* ---- files ---- */

static void copy_file(const char *from, const char *to) {
    char block[4096];
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_true(in && out);
    for (size_t n; (n = fread(block, 1, sizeof block, in)) > 0;)
        assert_int_equal(fwrite(block, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void files_that_do_not_load_break_the_model(void **state) {
    const tiny_model tiny = {.with_tokenizer = true};
    char dir[256], weights[300], copy[300];
    int32_t ids[10] = {10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
    (void)state;
    assert_true(tiny_model_write(&tiny, dir, sizeof dir));
    snprintf(weights, sizeof weights, "%s/model.safetensors", dir);
    snprintf(copy, sizeof copy, "%s/copy", dir);
    other = add_model("tiny", dir);
    ag_request_params p = request(ids, 10, 3);
    p.model = other;
    p.session = *ag_served_model_session(other);
    p.session.max_seq_len = 64;
    copy_file(weights, copy);
    assert_int_equal(truncate(weights, 100), 0);
    send_request(&clients[0], &p);
    assert_true(client_wait(&clients[0]));
    assert_int_not_equal(clients[0].status, AG_OK);
    assert_non_null(strstr(clients[0].error.msg, "tiny: "));
    assert_true(ag_served_model_is_broken(other));
    copy_file(copy, weights);
    run_request(&clients[0], &p);
    assert_false(ag_served_model_is_broken(other));
    unlink(copy);
    tiny_model_remove(dir);
}

static void a_removed_model_frees_its_name(void **state) {
    int32_t ids[10];
    ag_error err;
    (void)state;
    fill_ids(ids, 10, 3);
    ag_request_params p = request(ids, 10, 60);
    other = add_model("second", DEMO);
    send_request(&clients[0], &p);
    client_wait_tokens(&clients[0], 2);
    ag_serving_remove_model(serving, demo);
    assert_null(ag_serving_model(serving, "demo"));
    assert_ptr_equal(ag_serving_model(serving, NULL), other);
    assert_int_equal(ag_serving_n_models(serving), 1);
    assert_ptr_equal(ag_serving_model_at(serving, 0), other);
    assert_int_equal(client_send(&clients[1], serving, &p, &err), AG_NOT_FOUND);
    assert_int_equal(ag_serving_load_model(serving, demo, &err), AG_NOT_FOUND);
    finish(&clients[0], AG_OK); /* it was submitted before */
    ag_served_model *removed = demo;
    const struct timespec pause = {.tv_nsec = 2000000};
    for (int i = 0; i < 60000 && ag_served_model_is_loaded(removed); i++) nanosleep(&pause, NULL);
    assert_false(ag_served_model_is_loaded(removed));
    demo = add_model("demo", DEMO);
    p.model = demo;
    run_request(&clients[0], &p);
}

static void a_removal_at_the_limit_lets_another_model_in(void **state) {
    enum { LIMIT = 128 };
    char name[16];
    ag_error err;
    ag_served_model *added;
    ag_served_model_params m = {.name = name,
                                .path = AG_GOLDEN_MODELS "/qwen2",
                                .model = ag_model_defaults(),
                                .session = ag_session_defaults()};
    (void)state;
    for (size_t i = ag_serving_n_models(serving); i < LIMIT; i++) {
        snprintf(name, sizeof name, "m%zu", i);
        must(ag_serving_add_model(serving, &m, &added, &err), &err);
    }
    snprintf(name, sizeof name, "last");
    assert_int_equal(ag_serving_add_model(serving, &m, NULL, &err), AG_LIMIT);
    assert_non_null(strstr(err.msg, "128 models is the maximum"));
    ag_serving_remove_model(serving, added);
    must(ag_serving_add_model(serving, &m, &added, &err), &err);
    assert_int_equal(ag_serving_n_models(serving), LIMIT);
    assert_ptr_equal(ag_serving_model_at(serving, LIMIT - 1), added);
    assert_ptr_equal(ag_serving_model(serving, name), added);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(requests_run_while_another_model_loads, start_two, stop),
        cmocka_unit_test_setup_teardown(a_load_fails_if_the_file_has_changed, start_two, stop),
        cmocka_unit_test_setup_teardown(destroy_cancels_a_load, start_two, stop),
        cmocka_unit_test_setup_teardown(a_failed_load_ends_all_that_waited, start_two, stop),
        cmocka_unit_test_setup_teardown(files_that_do_not_load_break_the_model, start, stop),
        cmocka_unit_test_setup_teardown(a_removed_model_frees_its_name, start, stop),
        cmocka_unit_test_setup_teardown(a_removal_at_the_limit_lets_another_model_in, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
