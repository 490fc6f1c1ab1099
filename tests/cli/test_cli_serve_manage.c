/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of ollama's client that change models (pull, cp, create, rm), and who may send them. */
#include "../../programs/antigravity/support/sha256.h"
#include "hub_server.h"
#include "pull_store.h"
#include "served_group.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_OBJECTS = 8, OWL = 5 };

static hub_object objects[MAX_OBJECTS];
static size_t n_objects;
static char keys_dir[64], keys[128], outside[64];

/* ---- the hub ---- */

static void add_object(const char *repo, const char *path, const void *data, size_t n) {
    char *hex = malloc(SHA256_HEX);
    sha256 sum;
    assert_true(hex && n_objects < MAX_OBJECTS);
    sha256_begin(&sum);
    sha256_add(&sum, data, n);
    sha256_hex(&sum, hex);
    objects[n_objects++] = (hub_object){repo, path, data, n, hex};
}

static void add_file(const char *repo, const char *dir, const char *name) {
    char path[256];
    struct stat s;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    assert_true(f && fstat(fileno(f), &s) == 0);
    char *data = malloc((size_t)s.st_size);
    assert_int_equal(fread(data, 1, (size_t)s.st_size, f), s.st_size);
    fclose(f);
    add_object(repo, name, data, (size_t)s.st_size);
}

/* Adds the bundled model as one file. */
static void add_gguf(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", outside, name);
    cli_result r = CLI("quantize", DEMO, path, "--type", "q4_0");
    assert_code(&r, 0);
    cli_free(&r);
    add_file("org/Owl-1M", outside, name);
}

static int start_hub(void **state) {
    static const char *const files[] = {"config.json", "tokenizer.json", "generation_config.json",
                                        "model.safetensors"};
    static char not_a_model[] = "GGUF but no more";
    char url[64];
    (void)state;
    if (lacks_libcurl()) return 77;
    for (size_t i = 0; i < 4; i++) add_file("org/Fox-1M", DEMO, files[i]);
    add_object("org/broken", "Broken.gguf", not_a_model, sizeof not_a_model);
    make_directory(store);
    make_directory(keys_dir);
    make_directory(outside);
    add_gguf("Owl.gguf");
    write_file(outside, "precious.gguf", "x", 1);
    write_file(keys_dir, "keys", "user-key\nboss-key admin\n", 24);
    snprintf(keys, sizeof keys, "%s/keys", keys_dir);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", hub_start(objects, n_objects));
    setenv("HF_ENDPOINT", url, 1);
    setenv("ANTIGRAVITY_MODELS", store, 1);
    unsetenv("HF_TOKEN");
    return 0;
}

static int end_hub(void **state) {
    (void)state;
    remove_store();
    remove_directory(keys_dir);
    remove_directory(outside);
    return 0;
}

static int clean_store(void **state) {
    (void)state;
    empty_store();
    hub_fault = (hub_faults){.cut_after = 0};
    return 0;
}

/* ---- requests ---- */

/* Sends a request as the client with that key; NULL: none. The caller frees the reply. */
static serve_reply send_as(const char *key, const char *line, const char *body) {
    char header[96] = "";
    if (key) snprintf(header, sizeof header, "Authorization: Bearer %s\r\n", key);
    return serve_fetch(&server, line, header, body);
}

static void expect(const char *key, const char *line, const char *body, int status,
                   const char *part) {
    serve_reply r = send_as(key, line, body);
    if (r.status != status || (part && !strstr(r.body, part)))
        fail_msg("%s %s: %d %s", line, body ? body : "", r.status, r.body);
    serve_reply_free(&r);
}

/* Fails the test unless /api/tags lists these names, separated by blanks, in any order. */
static void expect_tags(const char *names) {
    json_t *v = serve_json(&server, "GET /api/tags", NULL, 200);
    const json_t *list = json_at(v, "models");
    size_t n = 0;
    for (const char *c = names; *c; c++) n += *c == ' ';
    if (json_array_size(list) != n + 1) fail_msg("%zu models", json_array_size(list));
    for (size_t i = 0; i <= n; i++)
        assert_non_null(strstr(names, json_string_at(json_array_get(list, i), "name")));
    json_decref(v);
}

/* Bodies as the command `ollama` of August 2026 sends them. */
#define PULL(name) "{\"model\":\"\",\"username\":\"\",\"password\":\"\",\"name\":\"" name "\"}"
#define SHOW(name)                                                                 \
    "{\"model\":\"" name "\",\"system\":\"\",\"template\":\"\",\"verbose\":false," \
    "\"options\":null,\"name\":\"\"}"
#define UNLOAD(name)                                                                             \
    "{\"model\":\"" name "\",\"prompt\":\"\",\"suffix\":\"\",\"system\":\"\",\"template\":\"\"," \
    "\"keep_alive\":\"0s\",\"options\":null}"
#define DELETE(name) "{\"model\":\"\",\"name\":\"" name "\"}"
/* `ollama rm`: shows, unloads and deletes the model. */
#define RM(name)                                                                             \
    do {                                                                                     \
        expect(NULL, "POST /api/show", SHOW(name), 200, "capabilities");                     \
        expect(NULL, "POST /api/generate", UNLOAD(name), 200, "\"done_reason\":\"unload\""); \
        expect(NULL, "DELETE /api/delete", DELETE(name), 200, "");                           \
    } while (0)
#define RUN(name)                                                   \
    "{\"model\":\"" name "\",\"prompt\":\"Once\",\"stream\":false," \
    "\"options\":{\"num_predict\":3}}"

/* Returns the last line of a stream as JSON. */
static json_t *last_line(serve_reply *r) {
    assert_int_equal(r->status, 200);
    char *end = r->body + strlen(r->body);
    assert_true(end > r->body && end[-1] == '\n');
    end[-1] = '\0';
    char *line = strrchr(r->body, '\n');
    return json_loads(line ? line + 1 : r->body, 0, NULL);
}

static void pull_fox(void) {
    serve_reply r = send_as(NULL, "POST /api/pull", PULL("hf.co/org/Fox-1M:latest"));
    assert_non_null(strstr(r.body, "\"success\""));
    serve_reply_free(&r);
}

/* ---- tests ---- */

static void pull_streams_progress_and_adds_the_model(void **state) {
    (void)state;
    SERVE_START(&server, "-q", "--allow-pull");
    expect(NULL, "POST /api/show", "{\"name\":\"hf.co/org/Fox-1M\"}", 404, "not found");
    hub_fault.pause_every = 65536; /* slow enough to report progress */
    serve_reply r = send_as(NULL, "POST /api/pull", PULL("hf.co/org/Fox-1M:latest"));
    assert_non_null(strstr(r.body, "{\"status\":\"pulling manifest\"}\n"));
    const char *progress = strstr(r.body, "\"digest\":\"sha256:");
    assert_non_null(progress);
    assert_int_equal(strspn(progress + 17, "0123456789abcdef"), 64);
    assert_non_null(strstr(progress, "\"total\":"));
    assert_non_null(strstr(progress, "\"completed\":"));
    json_t *v = last_line(&r);
    assert_string_equal(json_string_at(v, "status"), "success");
    json_decref(v);
    serve_reply_free(&r);
    assert_true(is_there("Fox-1M"));
    expect_tags("demo:latest Fox-1M:latest");
    /* By its name in the store, by the name that was pulled, and shortened. */
    static const char *const names[] = {"Fox-1M", "hf.co/org/Fox-1M:latest", "hf.co/org/Fox-1M",
                                        "fox:1m"};
    for (size_t i = 0; i < 4; i++) {
        char body[256];
        snprintf(body, sizeof body, RUN("%s"), names[i]);
        expect(NULL, "POST /api/generate", body, 200, "\"done\":true");
    }
    expect(NULL, "POST /api/pull", "{\"model\":\"org/Fox-1M\",\"stream\":false}", 200,
           "{\"status\":\"success\"}"); /* it is there */
    stop_server(NULL);
    SERVE_START(&server, "-q"); /* names survive a restart */
    expect(NULL, "POST /api/generate", RUN("hf.co/org/Fox-1M"), 200, "\"done\":true");
    expect(NULL, "POST /api/pull", PULL("org/Fox-1M"), 403, "--allow-pull");
    stop_server(NULL);
}

static void pull_reports_failures(void **state) {
    (void)state;
    SERVE_START(&server, "-q", "--allow-pull", "--store-limit", "2M");
    static const struct {
        const char *name, *part;
    } all[] = {
        {"org/absent", "404"},
        {"llama3", "neither a URL nor a repository"},
        {"org/Fox-1M", "--store-limit"},
        {"org/broken", "does not load"},
    };
    for (size_t i = 0; i < 4; i++) {
        char body[128];
        snprintf(body, sizeof body, PULL("%s"), all[i].name);
        serve_reply r = send_as(NULL, "POST /api/pull", body);
        json_t *v = last_line(&r);
        const char *error = json_string_at(v, "error");
        if (!strstr(error, all[i].part)) fail_msg("%s: %s", all[i].name, error);
        json_decref(v);
        serve_reply_free(&r);
        expect(NULL, "POST /api/pull", "{\"model\":\"org/absent\",\"stream\":false}", 500,
               "{\"error\":\"");
    }
    assert_false(is_there("Fox-1M"));
    static const char *const bad[] = {"http://127.0.0.1/x.gguf",
                                      "../x",
                                      "/etc/passwd",
                                      "-h",
                                      "org/../x",
                                      "a b",
                                      "org/x@main",
                                      "x:y:z",
                                      "x:",
                                      ""};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char body[128];
        snprintf(body, sizeof body, "{\"model\":\"%s\"}", bad[i]);
        expect(NULL, "POST /api/pull", body, 400, "not the name");
    }
    expect_tags("demo:latest");
    stop_server(NULL);
}

/* The pull's process writes nothing while the hub sends nothing. */
static void a_silent_pull_ends_with_its_client(void **state) {
    enum { PATIENCE = 150 };
    static const char body[] = "{\"model\":\"org/absent\",\"stream\":false}";
    static const struct timespec interval = {.tv_nsec = 100000000};
    char text[256];
    int n = 0, status = 503;
    (void)state;
    SERVE_START(&server, "-q", "--allow-pull");
    hub_fault.silent = 1;
    hub_forget();
    const int fd = serve_connect(&server);
    const int k = snprintf(text, sizeof text,
                           "POST /api/pull HTTP/1.1\r\nHost: localhost\r\n"
                           "Content-Length: %zu\r\n\r\n%s",
                           strlen(PULL("org/Owl-1M")), PULL("org/Owl-1M"));
    serve_send(fd, text, (size_t)k);
    for (; !hub_log()[0] && n < PATIENCE; n++) nanosleep(&interval, NULL);
    close(fd);
    /* Another pull starts as soon as this one has ended. */
    for (; status == 503 && n < PATIENCE; n++) {
        serve_reply r = send_as(NULL, "POST /api/pull", body);
        status = r.status;
        serve_reply_free(&r);
        nanosleep(&interval, NULL);
    }
    assert_int_equal(status, 500);
    stop_server(NULL);
}

/* Writes a text that /api/tags lists for the model; "" if it is not listed. */
static void listed(const char *name, const char *field, char out[SHA256_HEX]) {
    json_t *v = serve_json(&server, "GET /api/tags", NULL, 200);
    const json_t *list = json_at(v, "models"), *item;
    size_t i;
    out[0] = '\0';
    json_array_foreach(list, i, item) {
        if (!strcmp(json_string_at(item, "name"), name))
            snprintf(out, SHA256_HEX, "%s", json_string_at(item, field));
    }
    json_decref(v);
}

static void digest_of(const char *name, char digest[SHA256_HEX]) { listed(name, "digest", digest); }

/* Sets the time of change of a file in the store. */
static void touch(const char *name, time_t seconds) {
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    assert_int_equal(utimensat(AT_FDCWD, in_store(name), times, 0), 0);
}

/* The digest of a model that is one file is its SHA-256 while the file does not change. */
static void lists_the_hash_that_pull_verified(void **state) {
    char digest[SHA256_HEX], changed[SHA256_HEX];
    const char *hash = objects[OWL].sha256;
    (void)state;
    SERVE_START(&server, "-q", "--allow-pull");
    expect(NULL, "POST /api/pull", PULL("org/Owl-1M"), 200, "success");
    digest_of("Owl:latest", digest);
    assert_string_equal(digest, hash);
    stop_server(NULL);
    SERVE_START(&server, "-q", "--allow-pull");
    digest_of("Owl:latest", digest);
    assert_string_equal(digest, hash);
    stop_server(NULL);
    touch("Owl.gguf", 1000000000);
    SERVE_START(&server, "-q", "--allow-pull");
    digest_of("Owl:latest", changed);
    assert_int_equal(strlen(changed), SHA256_HEX - 1);
    assert_string_not_equal(changed, hash);
    expect(NULL, "POST /api/copy", "{\"source\":\"Owl\",\"destination\":\"kite\"}", 200, "");
    digest_of("kite:latest", digest);
    listed("Owl:latest", "modified_at", changed);
    assert_int_equal(strncmp(changed, "2001-09-09", 10), 0);
    touch("Owl.gguf", 1100000000);
    /* A pull that finds the model present verifies it. */
    expect(NULL, "POST /api/pull", PULL("org/Owl-1M"), 200, "success");
    listed("Owl:latest", "modified_at", changed);
    assert_int_equal(strncmp(changed, "2004-11-09", 10), 0);
    digest_of("Owl:latest", changed);
    assert_string_equal(changed, hash);
    digest_of("kite:latest", changed);
    assert_string_not_equal(changed, digest);
    RM("kite");
    assert_true(is_there(".sha256/Owl.gguf"));
    RM("Owl");
    assert_false(is_there(".sha256/Owl.gguf"));
    stop_server(NULL);
}

static void copies_derived_models_and_deletes(void **state) {
    (void)state;
    SERVE_START(&server, "-q", "--allow-pull");
    pull_fox();
    expect(NULL, "POST /api/copy", "{\"source\":\"fox-1m\",\"destination\":\"team/copy:v1\"}", 200,
           "");
    expect(NULL, "POST /api/create",
           "{\"model\":\"tale:latest\",\"from\":\"Fox-1M\",\"system\":\"Speak of foxes.\","
           "\"parameters\":{\"num_predict\":2,\"temperature\":0,\"stop\":[\"xyz\"]},\"name\":\"\"}",
           200, "{\"status\":\"success\"}\n");
    expect_tags("demo:latest Fox-1M:latest team/copy:v1 tale:latest");
    json_t *v = serve_json(&server, "POST /api/show", "{\"name\":\"tale\"}", 200);
    assert_string_equal(json_string_at(v, "system"), "Speak of foxes.");
    assert_non_null(strstr(json_string_at(v, "parameters"), "num_predict"));
    json_decref(v);
    stop_server(NULL);
    SERVE_START(&server, "-q", "--allow-pull");
    /* Parameters and system prompt apply, and the request's own win. */
    v = serve_json(&server, "POST /api/chat",
                   "{\"model\":\"tale\",\"stream\":false,\"messages\":[{\"role\":\"user\","
                   "\"content\":\"Once\"}]}",
                   200);
    const json_int_t n_long = json_number_at(v, "prompt_eval_count");
    assert_int_equal(json_number_at(v, "eval_count"), 2);
    json_decref(v);
    v = serve_json(&server, "POST /api/chat",
                   "{\"model\":\"tale\",\"stream\":false,\"options\":{\"num_predict\":4},"
                   "\"messages\":[{\"role\":\"system\",\"content\":\"x\"},{\"role\":\"user\","
                   "\"content\":\"Once\"}]}",
                   200);
    assert_int_equal(json_number_at(v, "eval_count"), 4);
    assert_true(json_number_at(v, "prompt_eval_count") < n_long);
    json_decref(v);
    v = serve_json(&server, "POST /v1/chat/completions",
                   "{\"model\":\"tale\",\"messages\":[{\"role\":\"user\",\"content\":\"Once\"}]}",
                   200);
    assert_int_equal(json_number_at(v, "usage.completion_tokens"), 2);
    json_decref(v);
    v = serve_json(&server, "POST /api/generate",
                   "{\"model\":\"\",\"name\":\"tale\",\"prompt\":\"Once\",\"stream\":false}", 200);
    assert_int_equal(json_number_at(v, "eval_count"), 2);
    json_decref(v);
    /* Files that other models use stay. Models outside of the store stay. */
    expect(NULL, "DELETE /api/delete", "{\"model\":\"Fox-1M\"}", 409, "team/copy:v1, tale");
    expect(NULL, "DELETE /api/delete", "{\"model\":\"demo\"}", 404, "not found");
    expect(NULL, "DELETE /api/delete", "{\"name\":\"fox\"}", 404, "full name");
    expect(NULL, "DELETE /api/delete", "{\"model\":\"../precious\"}", 404, "");
    RM("tale:latest");
    RM("team/copy:v1");
    RM("Fox-1M");
    assert_false(is_there("Fox-1M"));
    expect(NULL, "POST /api/generate", RUN("Fox-1M"), 404, "not found");
    expect(NULL, "POST /api/generate", RUN("hf.co/org/fox-1m"), 404, "not found");
    pull_fox(); /* the name is free */
    expect(NULL, "POST /api/generate", RUN("Fox-1M"), 200, "\"done\":true");
    stop_server(NULL);
}

static void keeps_names_that_it_cannot_read_or_replace(void **state) {
    static const char copy[] = "{\"source\":\"Fox-1M\",\"destination\":\"copy\"}";
    static const char malformed[] = "{\"tale\": {\"from\": \"Fox-1M\"},}";
    char path[128], text[64] = "";
    (void)state;
    SERVE_START(&server, "-q", "--allow-pull");
    pull_fox();
    expect(NULL, "POST /api/create",
           "{\"model\":\"tale\",\"from\":\"Fox-1M\",\"parameters\":{\"num_predict\":2}}", 200,
           NULL);
    expect(NULL, "POST /api/create", "{\"model\":\"tail\",\"from\":\"Fox-1M\"}", 200, NULL);
    expect(NULL, "POST /api/generate", RUN("ta"), 404, "not found");
    write_file(store, ".names.json", malformed, sizeof malformed - 1);
    expect(NULL, "POST /api/copy", copy, 500, "cannot read the names");
    expect(NULL, "POST /api/create",
           "{\"model\":\"tale\",\"from\":\"Fox-1M\",\"parameters\":{\"num_predict\":1}}", 500,
           "cannot read the names");
    expect(NULL, "DELETE /api/delete", "{\"model\":\"tale\"}", 500, "cannot read the names");
    expect_tags("demo:latest Fox-1M:latest tale:latest tail:latest");
    expect(NULL, "POST /api/generate", "{\"model\":\"tale\",\"prompt\":\"Once\",\"stream\":false}",
           200, "\"eval_count\":2");
    snprintf(path, sizeof path, "%s/.names.json", store);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    assert_string_equal(text, malformed);
    stop_server(NULL);
}

static void rejects_what_it_cannot_create(void **state) {
    static const struct {
        const char *body;
        int status;
        const char *part;
    } all[] = {
        {"{\"model\":\"a\",\"from\":\"absent\"}", 404, "not found"},
        {"{\"model\":\"a\"}", 400, "from"},
        {"{\"model\":\"a b\",\"from\":\"Fox-1M\"}", 400, "not a name"},
        {"{\"model\":\"a/../b\",\"from\":\"Fox-1M\"}", 400, "not a name"},
        {"{\"model\":\"a\",\"from\":\"Fox-1M\",\"template\":\"{{ .Prompt }}\"}", 400,
         "template: not supported"},
        {"{\"model\":\"a\",\"from\":\"Fox-1M\",\"quantize\":\"q4_0\"}", 400, "quantize"},
        {"{\"model\":\"a\",\"from\":\"Fox-1M\",\"parameters\":{\"mirostat\":1}}", 400, "mirostat"},
        {"{\"model\":\"a\",\"files\":{\"x.gguf\":\"sha256:0\"},\"from\":\"Fox-1M\"}", 400, "files"},
        {"{\"model\":\"a\",\"from\":\"Fox-1M\",\"parameters\":{\"temperature\":\"hot\"}}", 400,
         "temperature"},
        {"{\"model\":\"Fox-1M\",\"from\":\"Fox-1M\"}", 400, "another model has this name"},
        {"{\"model\":\"a\",\"from\":\"Fox-1M\",\"template\":\"\",\"license\":\"x\",\"stream\":"
         "false}",
         200, "success"},
    };
    (void)state;
    SERVE_START(&server, "-q", "--allow-pull");
    pull_fox();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        expect(NULL, "POST /api/create", all[i].body, all[i].status, all[i].part);
    expect(NULL, "POST /api/copy", "{\"source\":\"demo\",\"destination\":\"b\"}", 403,
           "not in the store");
    expect(NULL, "POST /api/push", "{\"model\":\"a\"}", 403, "");
    stop_server(NULL);
}

/* Returns the number of loaded models. */
static json_int_t n_loaded(void) {
    json_t *v = serve_json(&server, "GET /health", NULL, 200);
    const json_int_t n = json_number_at(v, "models.loaded");
    json_decref(v);
    return n;
}

static void only_admins_change_and_unload_models(void **state) {
    static const char unload[] = "{\"model\":\"demo\",\"keep_alive\":0}";
    (void)state;
    SERVE_START(&server, "-q", "--allow-pull", "--api-key-file", keys);
    expect("user-key", "POST /api/pull", PULL("org/Fox-1M"), 403, "admin");
    expect("user-key", "POST /api/copy", "{\"source\":\"demo\",\"destination\":\"b\"}", 403,
           "admin");
    expect("user-key", "DELETE /api/delete", "{\"model\":\"demo\"}", 403, "admin");
    expect("user-key", "POST /api/create", "{\"model\":\"a\",\"from\":\"demo\"}", 403, "admin");
    expect(NULL, "POST /api/pull", PULL("org/Fox-1M"), 401, NULL);
    expect("admin", "POST /api/pull", PULL("org/Fox-1M"), 401, NULL); /* the mark is no key */
    assert_false(is_there("Fox-1M"));
    /* A user's keep_alive may only lengthen the time. */
    expect("user-key", "POST /api/generate", unload, 403, "admin");
    serve_reply r = send_as("user-key", "POST /api/generate",
                            "{\"model\":\"demo\",\"prompt\":\"Once\",\"stream\":false,"
                            "\"keep_alive\":0,\"options\":{\"num_predict\":2}}");
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, "X-Antigravity-Ignored: keep_alive"));
    serve_reply_free(&r);
    expect("user-key", "GET /health", NULL, 200, NULL);
    pause_ms(50);
    assert_int_equal(n_loaded(), 1);
    expect("boss-key", "POST /api/generate", unload, 200, "unload");
    for (int i = 0; i < 24000 && n_loaded(); i++) pause_ms(5);
    assert_int_equal(n_loaded(), 0);
    r = send_as("boss-key", "POST /api/pull", PULL("org/Fox-1M"));
    json_t *v = last_line(&r);
    assert_string_equal(json_string_at(v, "status"), "success");
    json_decref(v);
    serve_reply_free(&r);
    stop_server(NULL);
}

static void pages_of_other_sites_change_nothing(void **state) {
    (void)state;
    SERVE_START(&server, "-q", "--allow-pull", "--cors", "*");
    serve_reply r = serve_fetch(&server, "POST /api/pull", "Origin: https://evil.example\r\n",
                                PULL("org/Fox-1M"));
    assert_int_equal(r.status, 403);
    serve_reply_free(&r);
    r = serve_fetch(&server, "POST /api/generate", "Origin: https://evil.example\r\n",
                    "{\"model\":\"demo\",\"keep_alive\":0}");
    assert_int_equal(r.status, 403);
    serve_reply_free(&r);
    stop_server(NULL);
}

static void keys_have_one_word_besides_the_mark(void **state) {
    (void)state;
    write_file(keys_dir, "keys", "one two\n", 8);
    cli_result r = CLI("serve", "--port", "0", "--api-key-file", keys);
    assert_refused(&r, 2, "only the word admin may follow");
    cli_free(&r);
    write_file(keys_dir, "keys", "user-key\nboss-key admin\n", 24);
}

int main(void) {
#define CASE(f) cmocka_unit_test_setup(f, clean_store)
    const struct CMUnitTest tests[] = {
        CASE(pull_streams_progress_and_adds_the_model),
        CASE(pull_reports_failures),
        CASE(a_silent_pull_ends_with_its_client),
        CASE(lists_the_hash_that_pull_verified),
        CASE(copies_derived_models_and_deletes),
        CASE(rejects_what_it_cannot_create),
        CASE(keeps_names_that_it_cannot_read_or_replace),
        CASE(only_admins_change_and_unload_models),
        CASE(pages_of_other_sites_change_nothing),
        CASE(keys_have_one_word_besides_the_mark),
    };
    if (lacks_libcurl()) return 77;
    return cmocka_run_group_tests(tests, start_hub, end_hub);
}
