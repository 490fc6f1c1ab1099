/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that ollama's command sends for list, ps, show, run and stop, and what it reads from the
 * replies. */
#include "served_group.h"

#include <string.h>
#include <unistd.h>

#define SHOW(name)                                                                          \
    "{\"model\":\"\",\"system\":\"\",\"template\":\"\",\"verbose\":false,\"options\":null," \
    "\"name\":\"" name "\"}"
/* A generate request; `more` begins with a comma. */
#define GENERATE(name, prompt, more)               \
    "{\"model\":\"" name "\",\"prompt\":\"" prompt \
    "\",\"suffix\":\"\",\"system\":\"\",\"template\":\"\"" more "}"

/* The command sends it before each of its requests. */
static void heartbeat(void) {
    static const char head[] = "HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    char status[13] = "";
    const int fd = serve_connect(&server);
    serve_send(fd, head, sizeof head - 1);
    for (size_t n = 0; n < sizeof status - 1;) {
        const ssize_t got = read(fd, status + n, sizeof status - 1 - n);
        assert_true(got > 0);
        n += (size_t)got;
    }
    close(fd);
    assert_string_equal(status, "HTTP/1.1 200");
}

static void assert_entry(const json_t *model) {
    const char *digest = json_string_at(model, "digest");
    assert_string_equal(json_string_at(model, "name"), "demo:latest");
    assert_string_equal(json_string_at(model, "model"), "demo:latest");
    assert_int_equal(strlen(digest), 64);
    assert_int_equal(strspn(digest, "0123456789abcdef"), 64);
    assert_true(json_number_at(model, "size") > 1000000);
    assert_string_equal(json_string_at(model, "details.format"), "gguf");
    assert_string_equal(json_string_at(model, "details.family"), "llama");
}

static json_t *running_models(void) {
    heartbeat();
    return serve_json(&server, "GET /api/ps", NULL, 200);
}

/* Waits until ps lists n models. */
static void wait_running(size_t n) {
    for (int i = 0; i < 24000; i++) {
        json_t *v = running_models();
        const bool done = json_array_size(json_at(v, "models")) == n;
        json_decref(v);
        if (done) return;
        pause_ms(5);
    }
    fail_msg("ps does not list %zu models", n);
}

/* Returns the seconds from now to the expiry of the only running model. */
static double expires_in(void) {
    struct tm t = {0};
    json_t *v = running_models();
    const char *text = json_string_at(v, "models.0.expires_at");
    assert_int_equal(sscanf(text, "%d-%d-%dT%d:%d:%d", &t.tm_year, &t.tm_mon, &t.tm_mday,
                            &t.tm_hour, &t.tm_min, &t.tm_sec),
                     6);
    assert_int_equal(text[strlen(text) - 1], 'Z');
    t.tm_year -= 1900;
    t.tm_mon--;
    const double seconds = difftime(timegm(&t), time(NULL));
    json_decref(v);
    return seconds;
}

static void list_shows_a_digest_and_a_tag(void **state) {
    (void)state;
    heartbeat();
    json_t *v = serve_json(&server, "GET /api/tags", NULL, 200);
    assert_int_equal(json_array_size(json_at(v, "models")), 1);
    assert_entry(json_at(v, "models.0"));
    json_t *ps = running_models();
    assert_string_equal(json_string_at(ps, "models.0.digest"),
                        json_string_at(v, "models.0.digest"));
    json_decref(ps);
    json_decref(v);
}

static void show_names_the_architecture(void **state) {
    (void)state;
    static const char *const bodies[] = {SHOW("demo"), SHOW("demo:latest"), SHOW("other-name")};
    for (size_t i = 0; i < 3; i++) {
        heartbeat();
        json_t *v = serve_json(&server, "POST /api/show", bodies[i], 200);
        const json_t *info = json_at(v, "model_info"), *able = json_at(v, "capabilities");
        assert_string_equal(json_string_value(json_object_get(info, "general.architecture")),
                            "llama");
        assert_int_equal(json_integer_value(json_object_get(info, "llama.context_length")), 2048);
        assert_true(json_is_string(json_at(v, "details.quantization_level")));
        /* The command does nothing but embed with a model that lists "embedding". */
        for (size_t k = 0; k < json_array_size(able); k++)
            assert_string_not_equal(json_string_value(json_array_get(able, k)), "embedding");
        json_decref(v);
    }
    serve_reply r = serve_fetch(&server, "POST /api/show", "", SHOW("missing"));
    assert_int_equal(r.status, 404); /* then the command pulls */
    assert_non_null(strstr(r.body, "not found"));
    serve_reply_free(&r);
}

static void run_generates_and_ps_lists_the_model(void **state) {
    (void)state;
    heartbeat();
    serve_reply r =
        serve_fetch(&server, "POST /api/generate", "",
                    GENERATE("demo", "Once upon a time", ",\"options\":{\"num_predict\":8}"));
    size_t n = 0;
    bool done = false;
    assert_int_equal(r.status, 200);
    for (char *line = strtok(r.body, "\n"); line; line = strtok(NULL, "\n"), n++) {
        json_t *v = json_loads(line, 0, NULL);
        assert_true(json_is_string(json_at(v, "response")));
        done = json_is_true(json_at(v, "done"));
        json_decref(v);
    }
    assert_true(done && n > 1);
    serve_reply_free(&r);
    json_t *v = running_models();
    assert_entry(json_at(v, "models.0"));
    assert_int_equal(json_number_at(v, "models.0.size_vram"), 0);
    assert_int_equal(json_number_at(v, "models.0.context_length"), 2048);
    json_decref(v);
    assert_true(expires_in() > 20 * 365 * 86400.0); /* shown as "Forever" */
}

static void stop_frees_the_model(void **state) {
    (void)state;
    wait_running(1);
    heartbeat();
    json_decref(serve_json(&server, "POST /api/show", SHOW("demo"), 200));
    json_t *v = serve_json(&server, "POST /api/generate",
                           GENERATE("demo", "", ",\"keep_alive\":\"0s\",\"options\":null"), 200);
    assert_true(json_is_true(json_at(v, "done")));
    assert_string_equal(json_string_at(v, "done_reason"), "unload");
    assert_string_equal(json_string_at(v, "response"), "");
    json_decref(v);
    wait_running(0);
    v = serve_json(&server, "GET /health", NULL, 200);
    assert_int_equal(json_number_at(v, "models.loaded"), 0);
    json_decref(v);
}

static void empty_requests_load_the_model(void **state) {
    (void)state;
    static const struct {
        const char *line, *body;
        double min, max;
    } cases[] = {
        {"POST /api/generate", GENERATE("demo", "", ",\"keep_alive\":\"1h30m\",\"options\":null"),
         5000, 5401},
        {"POST /api/chat", "{\"model\":\"demo\",\"messages\":[],\"keep_alive\":600,\"options\":{}}",
         500, 601},
        {"POST /api/chat", "{\"model\":\"demo\",\"messages\":null,\"keep_alive\":-1}", 1e8, 1e11},
        {"POST /api/generate", "{\"model\":\"demo\"}", 1e8, 1e11},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *v = serve_json(&server, cases[i].line, cases[i].body, 200);
        assert_string_equal(json_string_at(v, "done_reason"), "load");
        if (i % 3) assert_string_equal(json_string_at(v, "message.role"), "assistant");
        json_decref(v);
        const double seconds = expires_in();
        if (seconds < cases[i].min || seconds > cases[i].max)
            fail_msg("request %zu: the model expires in %g s", i, seconds);
    }
}

static void keep_alive_begins_after_the_answer(void **state) {
    (void)state;
    json_decref(serve_json(&server, "POST /api/generate",
                           GENERATE("demo", "Once",
                                    ",\"stream\":false,\"keep_alive\":0.05,"
                                    "\"options\":{\"num_predict\":4}"),
                           200));
    wait_running(0);
    json_decref(serve_json(&server, "POST /api/embed",
                           "{\"model\":\"demo\",\"input\":\"a\",\"keep_alive\":\"1h\"}", 200));
    const double seconds = expires_in();
    assert_true(seconds > 3000 && seconds <= 3601);
    static const char *const bad[] = {"\"5\"", "\"m\"", "\"\"", "\"1h-2m\"", "true", "\"5 m\""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"model\":\"demo\",\"prompt\":\"a\",\"keep_alive\":%s}",
                 bad[i]);
        json_t *v = serve_json(&server, "POST /api/generate", body, 400);
        assert_non_null(strstr(json_string_at(v, "error"), "keep_alive"));
        json_decref(v);
    }
}

static void num_ctx_limits_the_context(void **state) {
    (void)state;
    json_t *v = serve_json(&server, "POST /api/generate",
                           "{\"model\":\"demo\",\"prompt\":\"Once upon a time\",\"stream\":false,"
                           "\"options\":{\"num_ctx\":16,\"seed\":3}}",
                           200);
    assert_string_equal(json_string_at(v, "done_reason"), "length");
    assert_true(json_number_at(v, "prompt_eval_count") + json_number_at(v, "eval_count") <= 17);
    json_decref(v);
    v = serve_json(&server, "POST /api/generate",
                   "{\"model\":\"demo\",\"prompt\":\"Once upon a time there was a fox\","
                   "\"options\":{\"num_ctx\":4}}",
                   400);
    assert_non_null(strstr(json_string_at(v, "error"), "the context holds 4"));
    json_decref(v);
    json_decref(serve_json(&server, "POST /api/generate",
                           "{\"model\":\"demo\",\"prompt\":\"Once\",\"stream\":false,"
                           "\"options\":{\"num_ctx\":1000000,\"num_predict\":2}}",
                           200));
}

static int start_server(void **state) {
    (void)state;
    SERVE_START(&server, "--alias", "other-name", "-q");
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(list_shows_a_digest_and_a_tag),
        cmocka_unit_test(show_names_the_architecture),
        cmocka_unit_test(run_generates_and_ps_lists_the_model),
        cmocka_unit_test(stop_frees_the_model),
        cmocka_unit_test(empty_requests_load_the_model),
        cmocka_unit_test(keep_alive_begins_after_the_answer),
        cmocka_unit_test(num_ctx_limits_the_context),
    };
    return cmocka_run_group_tests(tests, start_server, stop_server);
}
