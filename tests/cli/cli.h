/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the program as a user would and keeps what it says. */
#ifndef AG_TESTS_CLI_H
#define AG_TESTS_CLI_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#define DEMO AG_SOURCE_DIR "/models/demo"
/* A model without a tokenizer, small enough to run at once. */
#define TINY AG_SOURCE_DIR "/tests/data/golden/models/linear-rope"

/* The demo's own type: nothing to convert at loading, which takes long under an emulator. */
#define QUICK "--weights", "bf16"
#define GREEDY QUICK, "--temperature", "0"

typedef struct cli_setup {
    const char *const *args; /* after the program's name, ended by NULL */
    const void *input;       /* standard input; NULL: /dev/null */
    size_t n_input;
    bool terminal_input, terminal_output, terminal_errors; /* these streams are a terminal */
    unsigned short columns;        /* width of the terminals; 0: they report none */
    bool no_errors;                /* standard error is closed */
    const char *output_path;       /* standard output goes there */
    size_t close_output_after;     /* bytes of output until it is closed; 0: never */
    size_t interrupt_after_output; /* bytes of output until the signal; 0: never */
    size_t interrupt_after_errors; /* the same for standard error */
    const char *interrupt_when;    /* the same once standard error has this text; NULL: never */
    int signal;                    /* which one; 0: SIGINT */
    int second_signal;             /* once standard error answers the first; 0: none */
} cli_setup;

typedef struct cli_result {
    int code;        /* exit code, or -1 */
    int signal;      /* number of the signal that ended it, or 0 */
    char *out, *err; /* terminated by a NUL that is not counted */
    size_t n_out, n_err;
} cli_result;

/* Fails the test if the program cannot be run or says nothing for two minutes. */
cli_result cli_run(const cli_setup *setup);
void cli_free(cli_result *r);

#define CLI_ARGS(...) \
    (const char *const[]) { __VA_ARGS__, NULL }
#define CLI(...) cli_run(&(cli_setup){.args = CLI_ARGS(__VA_ARGS__)})

/* Asserts that show what the program said. */
void assert_code(const cli_result *r, int code);
void assert_says(const char *text, const char *part);
void assert_does_not_say(const char *text, const char *part);
/* One line on standard error that begins with the program's name and holds `part`, nothing on
 * standard output, and that exit code. */
void assert_refused(const cli_result *r, int code, const char *part);

/* The JSON on standard output; the test fails if it is none. json_decref() it. */
json_t *cli_json(const cli_result *r);

/* Returns the value at "3.1.delta.text", which goes through lists and objects; NULL if absent. */
const json_t *json_find(const json_t *value, const char *path);

/* A directory of its own for a test; path has room for 64 bytes. */
void make_directory(char *path);
void write_file(const char *dir, const char *name, const void *data, size_t n);
/* dir/name becomes a link to target/name. */
void link_file(const char *dir, const char *target, const char *name);
/* With the files that lie directly in it. */
void remove_directory(const char *dir);

#endif
