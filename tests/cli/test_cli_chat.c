/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity chat without a terminal: messages from a pipe, commands, tools; and generate --chat.
 */
#include "chat_home.h"

/* ---- messages ---- */

static void demo_model_continues_message(void **state) {
    (void)state;
    cli_result r = CHAT("Once upon a time\n", GREEDY, "-n", "12");
    cli_result same = CLI("generate", GREEDY, "-n", "12", "-q", "-p", "Once upon a time");
    assert_code(&r, 0);
    assert_string_equal(r.out, same.out);
    assert_says(r.err, "tells fairy tales");
    cli_free(&r);
    cli_free(&same);
}

static void prints_only_answers_to_pipe(void **state) {
    (void)state;
    cli_result r =
        CHAT("\nOnce upon a time\n  \n/help\n/kv\n/set\nThen\n", GREEDY, "-n", "12", "-q");
    cli_result first = CHAT("Once upon a time\n", GREEDY, "-n", "12", "-q");
    assert_code(&r, 0);
    assert_int_equal(strncmp(r.out, first.out, first.n_out), 0);
    assert_true(r.n_out > first.n_out);
    assert_does_not_say(r.out, "cached");
    assert_says(r.err, "/multiline");
    assert_says(r.err, "  cached: ");
    cli_free(&r);
    cli_free(&first);
}

static void renders_messages_with_template(void **state) {
    (void)state;
    char dir[64];
    make_chat_model(dir);
    cli_result r = CHAT("A fox\n", GREEDY, "-n", "12", "-q", "-m", dir, "--system", "Be kind");
    cli_result same = CLI("generate", GREEDY, "-n", "12", "-q", "-m", dir, "--no-bos", "-p",
                          "system: Be kind\nuser: A fox\nassistant:");
    cli_result once = CLI("generate", "--chat", "--system", "Be kind", GREEDY, "-n", "12", "-q",
                          "-m", dir, "-p", "A fox");
    cli_result file =
        CHAT("A fox\n", GREEDY, "-n", "12", "-q", "--system", "Be kind", "--chat-template",
             strcat(strcpy((char[128]){0}, dir), "/chat_template.jinja"));
    assert_code(&r, 0);
    assert_code(&once, 0);
    const char *text = same.out + strspn(same.out, "\n");
    assert_string_equal(r.out + strspn(r.out, "\n"), text);
    assert_string_equal(once.out + strspn(once.out, "\n"), text);
    assert_string_equal(file.out, r.out);
    char path[96];
    write_file(dir, "system", "Be kind\n", 8);
    snprintf(path, sizeof path, "%s/system", dir);
    cli_free(&file);
    file = CLI("generate", "--chat", "--system-file", path, GREEDY, "-n", "12", "-q", "-m", dir,
               "-p", "A fox");
    assert_string_equal(file.out, once.out);
    cli_free(&file);
    file = CLI("generate", "--chat", "--system-file", path, "--system", "x", "-q", "-p", "A fox");
    assert_refused(&file, 2, "give one");
    cli_free(&r);
    cli_free(&same);
    cli_free(&once);
    cli_free(&file);
    remove_directory(dir);
}

static void reads_only_new_tokens(void **state) {
    (void)state;
    unsigned n_read, n_reused;
    cli_result r =
        CHAT("Once upon a time there was a small fox\nThe fox\n/stats\n", GREEDY, "-n", "30", "-q");
    read_stats(r.err, &n_read, &n_reused);
    assert_true(n_read < 8 && n_reused > 30);
    cli_free(&r);
    /* /retry reuses the tokens of the question. */
    r = CHAT("Once upon a time there was a small fox\n/retry\n/stats\n", GREEDY, "-n", "30", "-q");
    read_stats(r.err, &n_read, &n_reused);
    assert_int_equal(n_read, 1);
    assert_true(n_reused > 5);
    cli_free(&r);
}

static void accepts_multi_line_messages(void **state) {
    (void)state;
    cli_result r =
        CHAT("Once upon\na time\n.\n/stats\n.\n", GREEDY, "-n", "5", "-q", "--multiline");
    cli_result same = CLI("generate", GREEDY, "-n", "5", "-q", "-p", "Once upon\na time");
    assert_code(&r, 0);
    assert_int_equal(strncmp(r.out, same.out, same.n_out), 0);
    assert_says(r.err, "in all: 1 turn");
    cli_free(&r);
    cli_free(&same);
    r = CHAT("//stats are\n/stats\n", GREEDY, "-n", "5", "-q");
    same = CLI("generate", GREEDY, "-n", "5", "-q", "-p", "/stats are");
    assert_int_equal(strncmp(r.out, same.out, same.n_out), 0);
    cli_free(&r);
    cli_free(&same);
}

static void replaces_invalid_utf8(void **state) {
    (void)state;
    cli_result r = CHAT("Once \xff\xfe upon\n", GREEDY, "-n", "5", "-q");
    assert_code(&r, 0);
    assert_true(r.n_out > 0);
    cli_free(&r);
}

static void constrains_every_answer(void **state) {
    (void)state;
    cli_result r =
        CHAT("Once upon a time\nThen\n", GREEDY, "-q", "--choice", "left", "--choice", "right");
    assert_code(&r, 0);
    const size_t one = line_end(r.out, 1);
    assert_true(!strncmp(r.out, "left\n", one + 1) || !strncmp(r.out, "right\n", one + 1));
    assert_true(!strcmp(r.out + one + 1, "left\n") || !strcmp(r.out + one + 1, "right\n"));
    cli_free(&r);
}

/* ---- commands ---- */

static void undo_restores_state_before_message(void **state) {
    (void)state;
    cli_result r =
        CHAT("Once there was a bear\n/undo\nOnce upon a time\n", GREEDY, "-n", "12", "-q");
    cli_result same = CHAT("Once upon a time\n", GREEDY, "-n", "12", "-q");
    assert_code(&r, 0);
    assert_true(r.n_out > same.n_out);
    assert_string_equal(r.out + r.n_out - same.n_out, same.out);
    cli_free(&r);
    static const char *const last[] = {"/undo\n/undo\n", "/undo\n/retry\n"};
    char input[128];
    for (size_t i = 0; i < 2; i++) {
        snprintf(input, sizeof input, "Once there was a bear\n/clear\nOnce upon a time\n%s",
                 last[i]);
        r = CHAT(input, GREEDY, "-n", "12", "-q");
        assert_code(&r, 1);
        assert_string_equal(r.out + r.n_out - same.n_out, same.out);
        assert_says(r.err, i ? "no message to answer" : "no turn to remove");
        cli_free(&r);
    }
    cli_free(&same);
}

static void retry_generates_another_answer(void **state) {
    (void)state;
    cli_result r =
        CHAT("Once upon a time there\n/retry\n/retry\n", QUICK, "-s", "4", "-n", "9", "-q");
    cli_result same =
        CHAT("Once upon a time there\n/retry\n/retry\n", QUICK, "-s", "4", "-n", "9", "-q");
    assert_code(&r, 0);
    assert_string_equal(r.out, same.out);
    const size_t one = line_end(r.out, 1), two = one + 1 + line_end(r.out + one + 1, 1);
    assert_false(two - one - 1 == one && !strncmp(r.out, r.out + one + 1, one));
    cli_free(&r);
    cli_free(&same);
}

static void changes_settings_during_conversation(void **state) {
    (void)state;
    cli_result r =
        CHAT("/set temperature 0\n/set max_tokens 12\n/set top-k=5\nOnce upon a time\n/set\n",
             QUICK, "-q");
    cli_result same = CLI("generate", GREEDY, "-n", "12", "-q", "-p", "Once upon a time");
    assert_string_equal(r.out, same.out);
    assert_says(r.err, "temperature 0, top_k 5,");
    cli_free(&r);
    cli_free(&same);
    r = CHAT("/set temp\n/set top-p=0.5\n/set top_p\n/set seed\n/set thinking\n/set n-predict\n",
             QUICK, "-q", "--temperature", "0.25", "-s", "77", "-n", "9");
    assert_code(&r, 0);
    assert_string_equal(r.err,
                        "  temp 0.25\n  top_p 0.5\n  seed 77\n  thinking auto\n  n-predict 9\n");
    cli_free(&r);
}

static void undo_removes_several_turns(void **state) {
    (void)state;
    cli_result r =
        CHAT("Once upon a time\nThere was a bear\nThen\n/undo 2\nThe fox\n/stats\n/undo 3\n",
             GREEDY, "-n", "5", "-q");
    cli_result same = CHAT("Once upon a time\nThe fox\n", GREEDY, "-n", "5", "-q");
    assert_code(&r, 1);
    assert_says(r.err, "/undo 3: the conversation has 2 turns");
    assert_says(r.err, "in all: 2 turn");
    const size_t last = line_end(same.out, 1) + 1;
    assert_string_equal(r.out + r.n_out - (same.n_out - last), same.out + last);
    cli_free(&r);
    cli_free(&same);
}

static void retry_notes_temperature_0(void **state) {
    (void)state;
    cli_result r =
        CHAT("Once upon a time there\n/retry\n/set temperature 0.9\n/retry\n", GREEDY, "-n", "5");
    assert_code(&r, 0);
    const char *note = strstr(r.err, "at temperature 0 the answer stays the same");
    assert_non_null(note);
    assert_null(strstr(note + 1, "at temperature 0"));
    cli_free(&r);
}

static void reports_message_longer_than_cache(void **state) {
    (void)state;
    char input[2048] = "Once\n";
    for (int i = 0; i < 110; i++) strcat(input, " fox");
    strcat(input, "\n");
    cli_result r = CHAT(input, GREEDY, "-q", "-n", "3", "-c", "100");
    assert_code(&r, 0);
    assert_says(r.err, "a context of 100 with");
    /* The context that the message names is large enough. */
    const char *hint = strstr(r.err, "; -c ");
    char context[16];
    assert_non_null(hint);
    snprintf(context, sizeof context, "%d", atoi(hint + strlen("; -c ")));
    cli_free(&r);
    r = CHAT(input, GREEDY, "-q", "-n", "3", "-c", context);
    assert_code(&r, 0);
    assert_string_equal(r.err, "");
    cli_free(&r);
    /* The message fits, but evictions while it is read remove a part of it. */
    r = CHAT(input, GREEDY, "-q", "-n", "3", "-c", "130");
    assert_code(&r, 0);
    assert_says(r.err, "were evicted from its middle");
    cli_free(&r);
    /* The policy none evicts nothing, so the input is refused. */
    r = CHAT(input, GREEDY, "-q", "-n", "3", "-c", "64", "--kv-policy", "none");
    assert_code(&r, 1);
    assert_says(r.err, "the context holds 64: the smallest -c that works is ");
    cli_free(&r);
}

static void names_smallest_context_that_works(void **state) {
    (void)state;
    char dir[64], context[16];
    static const char long_prompt[] =
        "You are a fox that lives in a wood and answers every question with a tale of the wood.";
    make_chat_model(dir);
    cli_result r =
        CHAT("x\n", GREEDY, "-q", "-n", "3", "-c", "20", "-m", dir, "--system", long_prompt);
    assert_refused(&r, 2, "the smallest that works is -c ");
    const int smallest = atoi(strstr(r.err, "works is -c ") + strlen("works is -c "));
    cli_free(&r);
    for (int i = 0; i < 2; i++) { /* i = 1: one token less is rejected */
        snprintf(context, sizeof context, "%d", smallest - i);
        r = CHAT("x\n", GREEDY, "-q", "-n", "3", "-c", context, "-m", dir, "--system", long_prompt);
        assert_code(&r, i ? 2 : 0);
        cli_free(&r);
    }
    remove_directory(dir);
    r = CLI("generate", GREEDY, "-q", "-n", "3", "-c", "9", "--kv-policy", "sliding", "-p", "x");
    assert_refused(&r, 2, "use a context of at least ");
    snprintf(context, sizeof context, "%d",
             atoi(strstr(r.err, " at least ") + strlen(" at least ")));
    cli_free(&r);
    r = CLI("generate", GREEDY, "-q", "-n", "3", "-c", context, "--kv-policy", "sliding", "-p",
            "x");
    assert_code(&r, 0);
    cli_free(&r);
}

static void ends_pipe_at_nul_byte(void **state) {
    (void)state;
    static const char input[] = "Once upon\nThe\0 fox\nThen\n";
    char dir[64], path[96];
    cli_result r = cli_run(&(cli_setup){.args = CLI_ARGS("chat", GREEDY, "-q", "-n", "5"),
                                        .input = input,
                                        .n_input = sizeof input - 1});
    cli_result same = CHAT("Once upon\n", GREEDY, "-q", "-n", "5");
    assert_code(&r, 1);
    assert_string_equal(r.out, same.out);
    assert_says(r.err, "line 2 has a NUL byte at its byte 4");
    cli_free(&r);
    cli_free(&same);
    make_directory(dir);
    write_file(dir, "system", "Be\nki\0nd", 8);
    snprintf(path, sizeof path, "%s/system", dir);
    r = CHAT("x\n", "-q", "--system-file", path);
    assert_refused(&r, 1, "system: not text: line 2 has a NUL byte at its byte 3");
    cli_free(&r);
    r = CLI("generate", "-q", "--chat", "--chat-template", path, "-f", path);
    assert_refused(&r, 1, "system: not text: line 2 has a NUL byte at its byte 3");
    cli_free(&r);
    remove_directory(dir);
}

static void changes_system_prompt_during_conversation(void **state) {
    (void)state;
    char dir[64];
    make_chat_model(dir);
    cli_result r =
        CHAT("A fox\n/system Be kind\n/retry\n/system\n", GREEDY, "-n", "9", "-q", "-m", dir);
    cli_result same = CHAT("A fox\n", GREEDY, "-n", "9", "-q", "-m", dir, "--system", "Be kind");
    assert_string_equal(r.out + r.n_out - same.n_out, same.out);
    assert_says(r.err, "  Be kind\n");
    cli_free(&r);
    cli_free(&same);
    r = CHAT("/system -\n/system\nA fox\n", GREEDY, "-n", "9", "-q", "-m", dir, "--system",
             "Be kind");
    same = CHAT("A fox\n", GREEDY, "-n", "9", "-q", "-m", dir);
    assert_string_equal(r.out, same.out);
    assert_says(r.err, "there is no system prompt");
    cli_free(&r);
    cli_free(&same);
    remove_directory(dir);
}

static void removes_control_characters_from_answers(void **state) {
    (void)state;
    cli_result r = cli_run(&(cli_setup){.args = CLI_ARGS("chat", GREEDY, "-q", "--choice",
                                                         "a\x1b[2Jb\tc\xc2\x9b"
                                                         "d\re"),
                                        .input = "Once\n",
                                        .n_input = 5,
                                        .terminal_output = true});
    assert_code(&r, 0);
    assert_says(r.out, "a[2Jb");
    assert_says(r.out, "cde");
    assert_does_not_say(r.out, "\x1b");
    assert_does_not_say(r.out, "\xc2");
    cli_free(&r);
    /* A pipe receives the bytes unchanged. */
    r = CHAT("Once\n", GREEDY, "-q", "--choice", "a\x1b[2Jb");
    assert_string_equal(r.out, "a\x1b[2Jb\n");
    cli_free(&r);
}

static void reports_wrong_commands(void **state) {
    (void)state;
    static const struct {
        const char *line, *answer;
    } wrong[] = {
        {"/nix", "unknown command '/nix'"},
        {"/s", "'/s' could be /system, /save, /save!, /stats, /set"},
        {"/ x", "unknown command '/'"},
        {"/clear x", "/clear takes no argument, but was given 'x'"},
        {"/undo x", "/undo N: 'x' is not a whole number"},
        {"/set nix 3", "unknown setting 'nix'"},
        {"/set temperature x", "'x' is not a number"},
        {"/set max_tokens 0", "at least one token"},
        {"/set nix", "unknown setting 'nix'"},
        {"/set prompt x", "unknown setting 'prompt'"},
        {"/image x.png", "no vision"},
    };
    char input[64];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(input, sizeof input, "%s\nOnce\n", wrong[i].line);
        cli_result r = CHAT(input, GREEDY, "-n", "3", "-q");
        assert_refused(&r, 1, wrong[i].answer);
        cli_free(&r);
    }
    cli_result r = CHAT("/load\n/set temperature 0.5\n/quit\nOnce\n", GREEDY, "-n", "3", "-q");
    assert_code(&r, 0);
    assert_int_equal(r.n_out, 0);
    assert_says(r.err, "no conversation was saved yet");
    cli_free(&r);
    r = CHAT("/bye\nOnce\n", GREEDY, "-n", "3", "-q");
    assert_code(&r, 0);
    assert_int_equal(r.n_out, 0);
    cli_free(&r);
}

static void ends_pipe_when_save_or_load_fails(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        {"/save\nOnce\n", "has no name yet"},
        {"/save a/b\nOnce\n", "'a/b': invalid name"},
        {"/load nothing\nOnce\n", "'nothing': no such conversation"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        cli_result r = CHAT(wrong[i][0], GREEDY, "-n", "3", "-q");
        assert_refused(&r, 1, wrong[i][1]);
        cli_free(&r);
    }
}

static void rejects_template_without_output(void **state) {
    (void)state;
    char dir[64], path[96];
    make_directory(dir);
    write_file(dir, "none.jinja", "{# nothing #}", 13);
    snprintf(path, sizeof path, "%s/none.jinja", dir);
    cli_result r = CHAT("x\n", GREEDY, "-q", "--chat-template", path);
    assert_refused(&r, 2, "the prompt is empty: there is no token to start from");
    cli_free(&r);
    remove_directory(dir);
}

static void rejects_wrong_options(void **state) {
    (void)state;
    cli_result r = CHAT("x\n", "-q", "--resume", "../x");
    assert_refused(&r, 2, "invalid name");
    cli_free(&r);
    r = CHAT("x\n", "-q", "--system", "a", "--system-file", "b");
    assert_refused(&r, 2, "give one");
    cli_free(&r);
    r = CHAT("x\n", "-q", "--chat-template", "/nonexistent");
    assert_refused(&r, 1, "/nonexistent");
    cli_free(&r);
    r = CHAT("x\n", "-q", "--chat-template", "chatml");
    assert_refused(&r, 1, "'chatml': no such file; it must be a file with a Jinja template");
    cli_free(&r);
    r = CHAT("x\n", "-q", "--chat-template", "/");
    assert_refused(&r, 1, "'/' is a directory; it must be a file with a Jinja template");
    cli_free(&r);
    r = CHAT("x\n", "-q", "-n", "0");
    assert_refused(&r, 2, "an answer has at least one token");
    cli_free(&r);
    r = CHAT("x\n", "-q", "-m", TINY);
    assert_refused(&r, 2, "a conversation needs one");
    cli_free(&r);
    char dir[64], path[128];
    make_directory(dir);
    write_file(dir, "bad.jinja", "{% for %}", 9);
    snprintf(path, sizeof path, "%s/bad.jinja", dir);
    r = CHAT("x\n", "-q", "--chat-template", path);
    assert_refused(&r, 1, "line 1");
    cli_free(&r);
    remove_directory(dir);
}

/* ---- tools and reasoning ---- */

static const char tool_template[] =
    "{% for t in tools or [] %}tool {{ t['function']['name'] }}\n{% endfor %}"
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}"
    "{% for c in m['tool_calls'] or [] %}<tool_call>{{ c['function'] | tojson }}</tool_call>"
    "{% endfor %}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}";
static const char tool_list[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": "
    "{\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}}}}}]";

/* Saved conversation with two calls of the model that have no answers yet. */
static const char unanswered[] =
    "{\"antigravity_chat\": 1, \"system\": null, \"seed\": 3, \"attempt\": 0, \"protected\": 60,"
    " \"messages\": [{\"message\": {\"role\": \"user\", \"content\": \"Where is it warm?\"}},"
    " {\"message\": {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": ["
    "{\"id\": \"a\", \"type\": \"function\", \"function\": {\"name\": \"weather\", "
    "\"arguments\": \"{\\\"city\\\": \\\"Oslo\\\"}\"}},"
    "{\"id\": \"b\", \"type\": \"function\", \"function\": {\"name\": \"weather\", "
    "\"arguments\": \"{\\\"city\\\": \\\"Rome\\\"}\"}}]}}]}";

static void asks_for_results_of_tool_calls(void **state) {
    (void)state;
    char dir[64], file[96], chats[128], resume[160];
    make_chat_model(dir);
    write_file(dir, "tools.json", tool_list, sizeof tool_list - 1);
    snprintf(file, sizeof file, "%s/tools.json", dir);
    cli_result r = CHAT("x\n", GREEDY, "-q", "-m", dir, "--tools", file);
    assert_refused(&r, 2, "does not support tools");
    cli_free(&r);
    unlink(strcat(strcpy(resume, dir), "/chat_template.jinja"));
    write_file(dir, "chat_template.jinja", tool_template, sizeof tool_template - 1);
    r = CHAT("x\n/save calls\n", GREEDY, "-q", "-n", "2", "-m", dir); /* creates the directory */
    assert_code(&r, 0);
    cli_free(&r);
    snprintf(chats, sizeof chats, "%s/antigravity/chats", home);
    write_file(chats, "calls.json", unanswered, sizeof unanswered - 1);
    r = CHAT("cold\nwarm\n/stats\n", GREEDY, "-q", "-n", "5", "-m", dir, "--tools", file,
             "--resume", "calls");
    assert_code(&r, 0);
    const char *first = strstr(r.err, "the model calls weather({\"city\": \"Oslo\"})");
    assert_non_null(first);
    const char *second = strstr(first, "the model calls weather({\"city\": \"Rome\"})");
    assert_non_null(second);
    assert_true(r.n_out > 0);
    assert_says(second, "in all: 1 turn");
    cli_free(&r);
    /* The calls are saved too. */
    r = CHAT("/undo\n/stats\n", GREEDY, "-q", "-m", dir, "--resume", "calls");
    assert_code(&r, 0);
    assert_says(r.err, "in all: 0 turn");
    assert_does_not_say(r.err, "the model calls");
    cli_free(&r);
    write_file(dir, "tools.json", "{", 1);
    r = CHAT("x\n", GREEDY, "-q", "-m", dir, "--tools", file);
    assert_refused(&r, 1, "tools.json");
    cli_free(&r);
    remove_directory(dir);
}

static const char strict_tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"city\": {\"const\": \"Oslo\"}, \"days\": {\"enum\": [3]}}, "
    "\"required\": [\"city\", \"days\"]}}}]";

/* In this template a call begins with "the", which the model writes of its own accord. */
static void calls_obey_the_parameters_of_tools(void **state) {
    (void)state;
    char dir[64], file[96];
    make_directory(dir);
    write_file(dir, "tools.json", strict_tools, sizeof strict_tools - 1);
    snprintf(file, sizeof file, "%s/tools.json", dir);
    cli_result r = CHAT("Once there was a king\n", GREEDY, "-q", "-n", "120", "--chat-template",
                        AG_SOURCE_DIR "/tests/cli/word_calls.jinja", "--tools", file);
    assert_code(&r, 0);
    assert_says(r.err, "the model calls weather({\"city\": \"Oslo\"");
    assert_says(r.err, "3");
    cli_free(&r);
    remove_directory(dir);
}

static void prints_no_reasoning_to_pipe(void **state) {
    (void)state;
    static const char opens[] =
        "{% for m in messages %}{{ m['role'] }}: {% if m['reasoning_content'] %}<think>"
        "{{ m['reasoning_content'] }}</think>{% endif %}{{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: <think>{% endif %}";
    char dir[64], path[96];
    make_chat_model(dir);
    write_file(dir, "think.jinja", opens, sizeof opens - 1);
    snprintf(path, sizeof path, "%s/think.jinja", dir);
    cli_result r = CHAT("A fox\n", GREEDY, "-q", "-n", "9", "-m", dir, "--chat-template", path);
    assert_code(&r, 0);
    assert_int_equal(r.n_out, 0);
    assert_says(r.err, "the model reasoned and ");
    cli_free(&r);
    remove_directory(dir);
}

/* ---- generate ---- */

static void reports_empty_answer(void **state) {
    (void)state;
    char dir[64];
    make_chat_model(dir);
    /* The first token is an end token. */
    cli_result r = CLI("generate", GREEDY, "-q", "-p", "x", "-m", dir, AT_ONCE);
    assert_code(&r, 0);
    assert_int_equal(r.n_out, 0);
    assert_says(r.err, "generated no text");
    assert_says(r.err, "--chat");
    cli_free(&r);
    r = CHAT("x\n", GREEDY, "-q", "-m", dir, AT_ONCE);
    assert_code(&r, 0);
    assert_says(r.err, "an empty answer");
    cli_free(&r);
    r = CLI("generate", QUICK, "-n", "1", "-p", "x", "-m", dir);
    assert_says(r.err, "this is a chat model");
    cli_free(&r);
    r = CLI("generate", QUICK, "-n", "1", "-p", "x", "-m", dir, "--chat");
    assert_does_not_say(r.err, "this is a chat model");
    cli_free(&r);
    remove_directory(dir);
}

static void rejects_options_without_effect_in_chat(void **state) {
    (void)state;
    cli_result r = CLI("generate", "-q", "--chat", "-p", "x");
    assert_refused(&r, 2, "has no chat template");
    cli_free(&r);
    static const char *const cases[][4] = {
        {"--system", "x", "-p", "x"},
        {"--chat-template", "x", "-p", "x"},
        {"--system-file", "x", "-p", "x"},
        {"--chat", "--prompt-ids", "5", NULL},
        {"--chat", "--parse-special", "x", NULL},
        {"--chat", "--load-cache", "x", "x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *args[] = {"generate", cases[i][0], cases[i][1], cases[i][2], cases[i][3], NULL};
        r = run(args, "");
        assert_refused(&r, 2, "--chat");
        cli_free(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(demo_model_continues_message),
        cmocka_unit_test(prints_only_answers_to_pipe),
        cmocka_unit_test(renders_messages_with_template),
        cmocka_unit_test(reads_only_new_tokens),
        cmocka_unit_test(accepts_multi_line_messages),
        cmocka_unit_test(replaces_invalid_utf8),
        cmocka_unit_test(constrains_every_answer),
        cmocka_unit_test(undo_restores_state_before_message),
        cmocka_unit_test(retry_generates_another_answer),
        cmocka_unit_test(changes_settings_during_conversation),
        cmocka_unit_test(undo_removes_several_turns),
        cmocka_unit_test(retry_notes_temperature_0),
        cmocka_unit_test(reports_message_longer_than_cache),
        cmocka_unit_test(names_smallest_context_that_works),
        cmocka_unit_test(ends_pipe_at_nul_byte),
        cmocka_unit_test(changes_system_prompt_during_conversation),
        cmocka_unit_test(removes_control_characters_from_answers),
        cmocka_unit_test(reports_wrong_commands),
        cmocka_unit_test(ends_pipe_when_save_or_load_fails),
        cmocka_unit_test(rejects_template_without_output),
        cmocka_unit_test(rejects_wrong_options),
        cmocka_unit_test(asks_for_results_of_tool_calls),
        cmocka_unit_test(calls_obey_the_parameters_of_tools),
        cmocka_unit_test(prints_no_reasoning_to_pipe),
        cmocka_unit_test(reports_empty_answer),
        cmocka_unit_test(rejects_options_without_effect_in_chat),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
