/* SPDX-License-Identifier: Apache-2.0 */
/* Sub-commands. Each gets argv from its own name on and returns an exit code. */
#ifndef ANTIGRAVITY_COMMAND_H
#define ANTIGRAVITY_COMMAND_H

/* Tables of commands end at a NULL name. */
typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary; /* NULL: alias of the command before it */
} command;

enum {
    EXIT_DONE = 0,
    EXIT_FAILED = 1, /* run-time failure */
    EXIT_USAGE = 2,  /* invalid command line */
    EXIT_INTERRUPTED =
        130, /* SIGINT as shells number it; interrupt_exit_code() maps other signals */
};

int command_bench(int argc, char **argv);
int command_calibrate(int argc, char **argv);
int command_chat(int argc, char **argv);
int command_devices(int argc, char **argv);
int command_doctor(int argc, char **argv);
int command_eval(int argc, char **argv);
int command_generate(int argc, char **argv);
int command_imatrix(int argc, char **argv);
int command_info(int argc, char **argv);
int command_models(int argc, char **argv);
int command_pull(int argc, char **argv);
int command_rm(int argc, char **argv);
int command_quantize(int argc, char **argv);
int command_run(int argc, char **argv);
int command_serve(int argc, char **argv);
int command_tokenize(int argc, char **argv);

#endif
