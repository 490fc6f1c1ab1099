/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the tests of antigravity chat. */
#ifndef AG_TESTS_CLI_CHAT_HOME_H
#define AG_TESTS_CLI_CHAT_HOME_H

#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Options that forbid the demo model's end tokens, or force one as the first token. */
#define ENDLESS "--logit-bias", "4091:-inf", "--logit-bias", "4094:-inf"
#define AT_ONCE "--logit-bias", "4091:1000"

/* Directory of conversations and history, one per test program. */
static char home[64];

static inline int make_home(void **state) {
    (void)state;
    make_directory(home);
    setenv("XDG_DATA_HOME", home, 1);
    setenv("XDG_STATE_HOME", home, 1);
    return 0;
}

static inline int remove_home(void **state) {
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/antigravity/chats", home);
    if (access(path, F_OK) == 0) remove_directory(path);
    snprintf(path, sizeof path, "%s/antigravity", home);
    if (access(path, F_OK) == 0) remove_directory(path);
    remove_directory(home);
    return 0;
}

static inline cli_result run(const char *const *args, const char *input) {
    return cli_run(&(cli_setup){.args = args, .input = input, .n_input = strlen(input)});
}
#define CHAT(input, ...) run(CLI_ARGS("chat", __VA_ARGS__), input)

/* Template of make_chat_model(). */
static const char template[] =
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

static inline void make_chat_model(char *dir) {
    static const char *const files[] = {"config.json", "tokenizer.json", "model.safetensors"};
    make_directory(dir);
    for (size_t i = 0; i < 3; i++) link_file(dir, DEMO, files[i]);
    write_file(dir, "chat_template.jinja", template, sizeof template - 1);
}

/* Returns the offset of the newline that ends the n-th line, or of the end of the text. */
static inline size_t line_end(const char *text, int n) {
    size_t at = 0;
    while (text[at] && (text[at] != '\n' || --n)) at++;
    return at;
}

/* Reads the tokens read and reused from the last answer's line of /stats. */
static inline void read_stats(const char *err, unsigned *n_read, unsigned *n_reused) {
    const char *line = NULL;
    for (const char *at = err; (at = strstr(at, "last answer: ")); at++) line = at;
    assert_non_null(line);
    assert_int_equal(sscanf(line, "last answer: %u tokens read", n_read), 1);
    line = strstr(line, "tokens/s), ");
    assert_non_null(line);
    assert_int_equal(sscanf(line, "tokens/s), %u reused", n_reused), 1);
}

#endif
