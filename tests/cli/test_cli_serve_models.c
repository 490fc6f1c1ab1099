/* SPDX-License-Identifier: Apache-2.0 */
/* `antigravity serve` with a directory of models: they are listed, loaded when a request names
 * them, and unloaded. */
#include "../support/sanitized.h"
#include "served_group.h"

#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>

static char models[64];

static int remove_any(const char *path, const struct stat *s, int type, struct FTW *at) {
    (void)s, (void)type, (void)at;
    return remove(path);
}

static void copy_demo_file(const char *to_dir, const char *name) {
    char from[256], data[4096];
    snprintf(from, sizeof from, DEMO "/%s", name);
    FILE *in = fopen(from, "rb");
    assert_non_null(in);
    char to[256];
    snprintf(to, sizeof to, "%s/%s", to_dir, name);
    FILE *out = fopen(to, "wb");
    assert_non_null(out);
    for (size_t n; (n = fread(data, 1, sizeof data, in)) > 0;)
        assert_int_equal(fwrite(data, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void make_model(const char *name) {
    static const char *const links[] = {"config.json", "tokenizer.json", "generation_config.json"};
    char dir[256];
    snprintf(dir, sizeof dir, "%s/%s", models, name);
    assert_int_equal(mkdir(dir, 0777), 0);
    for (size_t i = 0; i < 3; i++) link_file(dir, DEMO, links[i]);
    copy_demo_file(dir, "model.safetensors");
}

/* Makes a directory of two models, a file that is none, and a partial model. */
static int make_models(void **state) {
    (void)state;
    make_directory(models);
    make_model("Fox");
    make_model("Tale-1.5B-Chat");
    make_model("Half.part");
    write_file(models, "broken.gguf", "GGUF", 4);
    write_file(models, "notes.txt", "x", 1);
    return 0;
}

static int remove_models(void **state) {
    (void)state;
    nftw(models, remove_any, 8, FTW_DEPTH | FTW_PHYS);
    return 0;
}

static size_t n_loaded(void) {
    json_t *v = serve_json(&server, "GET /health", NULL, 200);
    const size_t n = (size_t)json_number_at(v, "models.loaded");
    json_decref(v);
    return n;
}

static void wait_loaded(size_t n) {
    for (int i = 0; i < 24000 && n_loaded() != n; i++) pause_ms(5);
    assert_int_equal(n_loaded(), n);
}

static serve_reply complete(const char *model) {
    char body[256];
    snprintf(body, sizeof body, "{\"model\":\"%s\",\"prompt\":\"Once\",\"max_tokens\":2}", model);
    return serve_fetch(&server, "POST /v1/completions", "", body);
}

static void expect_completion(const char *model, int status) {
    serve_reply r = complete(model);
    if (r.status != status) fail_msg("%s: %d: %s", model, r.status, r.body);
    serve_reply_free(&r);
}

/* Fails the test unless /v1/models lists exactly these. */
static void expect_models(const char *const *names, size_t n) {
    json_t *v = serve_json(&server, "GET /v1/models", NULL, 200);
    const json_t *data = json_at(v, "data");
    assert_int_equal(json_array_size(data), n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(json_string_at(json_array_get(data, i), "id"), names[i]);
    json_decref(v);
}

static void lists_models_and_loads_them_on_demand(void **state) {
    static const char *const names[] = {"Fox", "Tale-1.5B-Chat"};
    char line[512];
    (void)state;
    SERVE_START(&server, models, "--keep-alive", "300ms");
    assert_non_null(strstr(server.log, "broken.gguf"));
    assert_non_null(strstr(server.log, "do not load: 1"));
    expect_models(names, 2);
    assert_int_equal(n_loaded(), 0);
    while (!strstr(server.log, "models: ")) assert_true(serve_read_log(&server));
    snprintf(line, sizeof line, "page: http://127.0.0.1:%d/; models: Fox, Tale-1.5B-Chat\n",
             server.port);
    assert_says(server.log, line);
    static const char *const spellings[] = {"Fox", "fox:latest", "tale:1.5b", "tale:1.5B-chat",
                                            "Tale-1.5B-Chat:latest"};
    for (size_t i = 0; i < 5; i++) expect_completion(spellings[i], 200);
    expect_completion("tale:2b", 404);
    expect_completion("broken", 404);
    wait_loaded(0); /* after --keep-alive */
    stop_server(NULL);
}

static void a_model_whose_files_break_is_not_listed(void **state) {
    static const char *const names[] = {"Tale-1.5B-Chat", "Fox"};
    char path[256];
    (void)state;
    snprintf(path, sizeof path, "%s/Fox/model.safetensors", models);
    SERVE_START(&server, models, "-q");
    assert_int_equal(truncate(path, 1000), 0);
    expect_completion("Fox", 500);
    expect_models(names, 1);
    json_t *v = serve_json(&server, "GET /api/tags", NULL, 200);
    assert_int_equal(json_array_size(json_at(v, "models")), 1);
    json_decref(v);
    expect_completion("Tale-1.5B-Chat", 200);
    stop_server(NULL);
}

/* Returns the limit that suffices for one model, in MiB. */
static double limit_for_one(void) {
    static const char before[] = "; a limit of ";
    cli_result r = CLI("serve", "-m", DEMO, "-q", "--port", "0", "--memory", "40M", "--weights",
                       "f32", "-t", "1");
    assert_code(&r, 1);
    const char *at = strstr(r.err, before);
    if (!at) fail_msg("%s", r.err);
    const double mib = atof(at + strlen(before));
    cli_free(&r);
    return mib;
}

static void models_that_do_not_fit_together_replace_each_other_twice(void **state) {
    char limit[32];
    (void)state;
#if SANITIZED
    skip(); /* a sanitizer's own memory exceeds the limit */
#endif
    snprintf(limit, sizeof limit, "%.1fM", limit_for_one() + 16);
    SERVE_START(&server, models, "-q", "--memory", limit, "--weights", "f32", "-t", "1");
    expect_completion("Fox", 200);
    expect_completion("Tale", 200);
    assert_int_equal(n_loaded(), 1);
    serve_reply r = complete("Fox");
    assert_int_equal(r.status, 503);
    const char *after = strstr(r.head, "Retry-After: ");
    assert_non_null(after);
    const int seconds = atoi(after + strlen("Retry-After: "));
    assert_true(seconds > 1 && seconds <= 30);
    assert_non_null(strstr(r.body, "model_busy"));
    serve_reply_free(&r);
    r = serve_fetch(&server, "POST /api/generate", "", "{\"model\":\"Fox\"}"); /* only loads */
    assert_int_equal(r.status, 503);
    serve_reply_free(&r);
    expect_completion("Tale", 200);
    stop_server(NULL);
}

static void the_store_is_served_without_arguments(void **state) {
    static const char *const names[] = {"Fox", "Tale-1.5B-Chat"};
    (void)state;
    setenv("ANTIGRAVITY_MODELS", models, 1);
    SERVE_START(&server, "-q");
    expect_models(names, 2);
    stop_server(NULL);
    unsetenv("ANTIGRAVITY_MODELS");
    SERVE_START(&server, "-q");
    static const char *const demo[] = {"demo"};
    expect_models(demo, 1);
    stop_server(NULL);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup_teardown(f, make_models, remove_models)
    const struct CMUnitTest tests[] = {
        CASE(lists_models_and_loads_them_on_demand),
        CASE(a_model_whose_files_break_is_not_listed),
        CASE(models_that_do_not_fit_together_replace_each_other_twice),
        CASE(the_store_is_served_without_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
