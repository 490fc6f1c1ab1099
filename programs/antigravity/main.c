/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity COMMAND ...: finds the command and runs it. */
#include "command.h"
#include "options/compat_options.h"
#include "options/suggest.h"
#include "support/version.h"
#include "terminal/interrupt.h"
#include "terminal/output.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary; /* NULL: alias of the command before it */
} command;

static const command commands[] = {
    {"chat", command_chat, "chat with a model"},
    {"run", command_run, "chat with a model by its short name: run qwen3:0.6b"},
    {"generate", command_generate, "continue a prompt; the text appears as it is made"},
    {"serve", command_serve, "serve models over HTTP, for clients of OpenAI's interface"},
    {"tokenize", command_tokenize, "turn text into token ids, or ids into text"},
    {"eval", command_eval, "measure a model's quality, also with a smaller KV cache"},
    {"bench", command_bench, "measure speed and the memory bandwidth of this machine"},
    {"info", command_info, "describe a model and the memory that it needs"},
    {"imatrix", command_imatrix,
     "measure which columns of a model's matrices matter, for quantize"},
    {"calibrate", command_calibrate,
     "measure the importance of a model's KV heads, for --head-budget FILE"},
    {"quantize", command_quantize, "write a model as a GGUF file, with smaller weights"},
    {"devices", command_devices, "list backends and devices"},
    {"doctor", command_doctor, "examine this machine: what is missing or slow, and why"},
    {"pull", command_pull, "fetch a model, after which -m NAME finds it"},
    {"models", command_models, "list the models in the store (also: list, ls)"},
    {"list", command_models, NULL},
    {"ls", command_models, NULL},
    {"rm", command_rm, "remove models from the store"},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(FILE *out) {
    fprintf(out, "Usage: antigravity COMMAND [OPTION]...\n\n"
                 "Runs language models on this machine.\n\nCommands:\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].summary)
            fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(
        out,
        "\nOptions:\n"
        "  -h, --help     show this help; 'antigravity COMMAND --help' shows that of a command\n"
        "  -V, --version  show the version\n"
        "\nExamples:\n"
        "  antigravity chat\n"
        "  antigravity generate -p \"Once upon a time\"\n"
        "  antigravity generate -m ~/models/Llama-3.2-1B -n 200 < prompt.txt\n"
        "  antigravity info -m ~/models/Llama-3.2-1B\n"
        "  antigravity bench --shape llama-3.2-1b\n"
        "\nExit status: 0 done, 1 failed while running, 2 wrong usage; after a signal 128 and "
        "its\nnumber: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.\n");
}

static void print_next_steps(void) {
    fputs("Antigravity runs language models on this machine. Type next:\n\n"
          "  antigravity chat                 chat with the demo model, which tells fairy tales\n"
          "  antigravity pull ORG/NAME        fetch a model; antigravity models lists them\n"
          "  antigravity chat -m NAME         chat with that model\n"
          "  antigravity doctor               what is missing or slow on this machine\n"
          "  antigravity --help               all commands\n",
          stderr);
}

static const command *find_command(const char *name) {
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (!strcmp(commands[i].name, name)) return &commands[i];
    return NULL;
}

static int unknown_command(const char *name) {
    const char *answer = compat_command_message(name);
    if (answer) return complain_usage("unknown command '%s': %s", name, answer);
    suggestion s = suggestion_for(name);
    for (size_t i = 0; i < N_COMMANDS; i++) suggestion_try(&s, commands[i].name);
    if (name[0] == '-')
        complain("a command comes before options such as '%s': antigravity generate %s ...", name,
                 name);
    else if (s.best) complain("unknown command '%s'; did you mean '%s'?", name, s.best);
    else complain("unknown command '%s'; 'antigravity --help' lists them", name);
    return EXIT_USAGE;
}

/* Runs "antigravity help bench" as "antigravity bench --help". */
static int help_command(int argc, char **argv) {
    if (argc < 3) {
        print_help(stdout);
        return output_finish(EXIT_DONE);
    }
    const command *c = find_command(argv[2]);
    if (!c) return unknown_command(argv[2]);
    char option[] = "--help";
    char *args[] = {argv[2], option, NULL};
    output_command(c->name);
    return output_finish(c->run(2, args));
}

int main(int argc, char **argv) {
    output_keep_streams();
    output_survive_limits();
    if (argc < 2) {
        if (isatty(STDERR_FILENO)) print_next_steps();
        else print_help(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--version") || !strcmp(name, "-V") || !strcmp(name, "version")) {
        version_print();
        return output_finish(EXIT_DONE);
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h")) {
        print_help(stdout);
        return output_finish(EXIT_DONE);
    }
    if (!strcmp(name, "help")) return help_command(argc, argv);
    const command *c = find_command(name);
    if (!c) return unknown_command(name);
    output_command(c->name);
    return interrupt_exit_code(output_finish(c->run(argc - 1, argv + 1)));
}
