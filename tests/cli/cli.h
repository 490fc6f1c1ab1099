/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the program as a user would and records its output. */
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
/* A model without a tokenizer that loads in milliseconds. */
#define TINY AG_GOLDEN_MODELS "/linear-rope"

/* The demo model's own type: loading converts nothing, which is slow under an emulator. */
#define QUICK "--weights", "bf16"
#define GREEDY QUICK, "--temperature", "0"

typedef struct cli_setup {
    const char *const *args; /* after the program's name; ends with NULL */
    const void *input;       /* standard input; NULL: /dev/null */
    size_t n_input;
    unsigned pause_ms; /* standard input is written line by line, with this pause after a line */
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

/* Runs the program. Fails the test if it cannot be run, or prints nothing for two minutes. */
cli_result cli_run(const cli_setup *setup);
void cli_free(cli_result *r);

#define CLI_ARGS(...) \
    (const char *const[]) { __VA_ARGS__, NULL }
#define CLI(...) cli_run(&(cli_setup){.args = CLI_ARGS(__VA_ARGS__)})

/* These show the program's output when they fail. */
void assert_code(const cli_result *r, int code);
void assert_says(const char *text, const char *part);
/* Skips the test in a build without libevent. */
void skip_without_server(void);
void assert_does_not_say(const char *text, const char *part);
/* Asserts the exit code, an empty standard output, and one line on standard error that begins with
 * the program's name and contains `part`. */
void assert_refused(const cli_result *r, int code, const char *part);

/* Parses standard output as JSON; the test fails if that is impossible. The caller owns the
 * value. */
json_t *cli_json(const cli_result *r);

/* Returns the value at a path such as "3.1.delta.text" of indices and keys; NULL if absent. */
const json_t *json_find(const json_t *value, const char *path);

/* Creates a directory and writes its path to path[64]. */
void make_directory(char *path);
void write_file(const char *dir, const char *name, const void *data, size_t n);
/* Makes dir/name a link to target/name. */
void link_file(const char *dir, const char *target, const char *name);
/* Removes the directory and the files directly in it. */
void remove_directory(const char *dir);

#endif
