/* SPDX-License-Identifier: Apache-2.0 */
/* Options from JSON files: presets by name, and the configuration of the server. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char home[64], presets[128];

static int make_home(void **state) {
    (void)state;
    char directory[96];
    make_directory(home);
    snprintf(directory, sizeof directory, "%s/antigravity", home);
    snprintf(presets, sizeof presets, "%s/presets", directory);
    setenv("XDG_CONFIG_HOME", home, 1);
    setenv("XDG_DATA_HOME", home, 1);
    return mkdir(directory, 0700) == 0 ? mkdir(presets, 0700) : -1;
}

static int remove_home(void **state) {
    (void)state;
    char directory[96];
    snprintf(directory, sizeof directory, "%s/antigravity", home);
    remove_directory(presets);
    remove_directory(directory);
    remove_directory(home);
    return 0;
}

static void write_preset(const char *file, const char *text) {
    write_file(presets, file, text, strlen(text));
}

static const char tale[] = "{\n"
                           "  \"model\": \"" DEMO "\",\n"
                           "  \"weights\": \"bf16\",\n"
                           "  \"temperature\": 0,\n"
                           "  \"max_tokens\": 9,\n"
                           "  \"logit-bias\": [\"4091:-inf\", \"4094:-inf\"],\n"
                           "  \"eviction-policy\": \"sliding\", \"eviction-window\": 64\n"
                           "}\n";
#define SAME_AS_TALE                                                                         \
    "-m", DEMO, GREEDY, "-n", "9", "--logit-bias", "4091:-inf", "--logit-bias", "4094:-inf", \
        "--eviction-policy", "sliding", "--eviction-window", "64"

static void generate_takes_options_of_a_preset(void **state) {
    (void)state;
    write_preset("tale.json", tale);
    cli_result r = CLI("generate", "--json", "-q", "--preset", "tale", "-p", "Once upon");
    cli_result same = CLI("generate", "--json", "-q", "-p", "Once upon", SAME_AS_TALE);
    assert_code(&r, 0);
    json_t *a = cli_json(&r), *b = cli_json(&same);
    assert_true(json_equal(json_object_get(a, "ids"), json_object_get(b, "ids")));
    assert_true(json_equal(json_object_get(a, "settings"), json_object_get(b, "settings")));
    assert_int_equal(json_array_size(json_object_get(a, "ids")), 9);
    json_decref(a);
    json_decref(b);
    cli_free(&r);
    cli_free(&same);
    /* The command line overrides the preset, whichever comes first. */
    static const char *const orders[][7] = {
        {"generate", "-q", "-n", "3", "--preset", "tale", "Once"},
        {"generate", "-q", "--preset=tale", "Once", "-n", "3"},
    };
    same = CLI("generate", "-q", GREEDY, "-n", "3", "Once");
    for (size_t i = 0; i < 2; i++) {
        const char *args[8] = {NULL};
        memcpy(args, orders[i], sizeof orders[i]);
        r = cli_run(&(cli_setup){.args = args});
        assert_code(&r, 0);
        assert_string_equal(r.out, same.out);
        cli_free(&r);
    }
    cli_free(&same);
}

static void chat_and_generate_take_the_system_prompt(void **state) {
    (void)state;
    char dir[64], text[256];
    static const char template[] =
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:";
    make_directory(dir);
    write_file(dir, "t.jinja", template, sizeof template - 1);
    snprintf(text, sizeof text,
             "{\"system\": \"Be kind\", \"temperature\": 0, \"chat-template\": \"%s/t.jinja\"}",
             dir);
    write_preset("kind.json", text);
    cli_result r = CLI("chat", "-q", "--preset", "kind", QUICK, "-n", "9", "A fox");
    cli_result same = CLI("generate", "-q", GREEDY, "-n", "9", "--no-bos", "-p",
                          "system: Be kind\nuser: A fox\nassistant:");
    cli_result once = CLI("generate", "-q", "--preset", "kind", QUICK, "-n", "9", "-p", "A fox");
    assert_code(&r, 0);
    assert_code(&once, 0);
    assert_string_equal(r.out + strspn(r.out, "\n"), same.out + strspn(same.out, "\n"));
    assert_string_equal(once.out, r.out);
    cli_free(&r);
    cli_free(&same);
    cli_free(&once);
    remove_directory(dir);
}

static void reports_file_and_line_of_faults(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"{\n\"temprature\": 1}",
         "bad.json:2: \"temprature\": unknown option; did you mean \"temperature\"?"},
        {"{\"xyzzy\": 1}", "bad.json:1: \"xyzzy\": unknown option; --help lists them"},
        {"{\n\n\"top_k\": \"5\"}", "bad.json:3: \"top_k\": is a text; it must be a whole number"},
        {"{\"top-k\": 5.5}", "\"top-k\": is a number; it must be a whole number"},
        {"{\"temperature\": \"hot\"}", "\"temperature\": is a text; it must be a number"},
        {"{\"temperature\": -1}", "bad.json:1: \"temperature\": '-1' is not between 0 and 1000"},
        {"{\"verbose\": \"yes\"}", "\"verbose\": is a text; it must be true or false"},
        {"{\"weights\": 4}", "\"weights\": is a number; it must be a text"},
        {"{\"weights\": \"q9\"}", "\"weights\": 'q9' is not one of f32"},
        {"{\"kv-budget\": true}", "is true or false; it must be a text, a number or a list"},
        {"{\"preset\": \"tale\"}", "\"preset\": unknown option"},
        {"{\"top-k\": 5, \"top-k\": 6}", "bad.json:1:"},
        {"{\n\"top-k\": 5", "bad.json:2:10: '}' expected"},
        {"[1]", "bad.json: is a list; it must be an object of options"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_preset("bad.json", cases[i].text);
        cli_result r = CLI("generate", "-q", "--preset", "bad", "-p", "x");
        assert_refused(&r, 2, cases[i].message);
        cli_free(&r);
    }
    write_preset("bad.json", "{\"verbose\": false}");
    cli_result r = CLI("generate", GREEDY, "-q", "-n", "1", "--preset", "bad", "-p", "x");
    assert_code(&r, 0);
    cli_free(&r);
    r = CLI("generate", "-q", "--preset", "absent", "-p", "x");
    assert_refused(&r, 2, "--preset: 'absent': no such preset in ");
    assert_says(r.err, "; known: ");
    cli_free(&r);
    char path[5000];
    memset(path, '/', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    r = CLI("generate", "-q", "--preset", path, "-p", "x");
    assert_refused(&r, 2, "--preset: the path is too long");
    cli_free(&r);
}

static void server_reads_its_configuration(void **state) {
    (void)state;
    skip_without_server();
    char path[160];
    snprintf(path, sizeof path, "%s/server.json", home);
    static const struct {
        const char *text, *message;
        int code;
    } cases[] = {
        {"{\n\"port\": 70000}", "server.json:2: \"port\": '70000' is not between 0 and 65535", 2},
        {"{\"memory\": \"2X\"}", "server.json:1: \"memory\": ", 2},
        {"{\"model\": [\"a.gguf\", \"b.gguf\"]}", "a.gguf", 1},
        {"{\"tls-cert\": \"a.pem\"}", "--tls-cert requires --tls-key", 2},
        {"{\"model\": \"absent.gguf\", \"port\": 0, \"chat-template-kwargs\": {\"x\": 1}}",
         "absent.gguf", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file(home, "server.json", cases[i].text, strlen(cases[i].text));
        cli_result r = CLI("serve", "-q", "--config", path);
        assert_code(&r, cases[i].code);
        assert_says(r.err, cases[i].message);
        cli_free(&r);
    }
    cli_result r = CLI("serve", "--config", "/nowhere.json");
    assert_refused(&r, 1, "/nowhere.json");
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generate_takes_options_of_a_preset),
        cmocka_unit_test(chat_and_generate_take_the_system_prompt),
        cmocka_unit_test(reports_file_and_line_of_faults),
        cmocka_unit_test(server_reads_its_configuration),
    };
    return cmocka_run_group_tests_name("cli presets", tests, make_home, remove_home);
}
