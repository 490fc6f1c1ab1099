/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity COMMAND ...: finds the command and runs it. */
#include "command.h"
#include "options/compat_options.h"
#include "options/options.h"
#include "options/suggest.h"
#include "support/version.h"
#include "terminal/interrupt.h"
#include "terminal/output.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    {NULL, NULL, NULL},
};

static const command_line program = {
    .usage = "COMMAND [OPTION]...",
    .description =
        "Runs language models on this machine. 'antigravity COMMAND --help' describes a command.\n"
        "\n"
        "Exit status: 0 done, 1 failed while running, 2 wrong usage; after a signal 128 and its\n"
        "number: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.",
    .examples =
        "  antigravity chat\n"
        "  antigravity generate -p \"Once upon a time\"\n"
        "  antigravity generate -m ~/models/Llama-3.2-1B -n 200 < prompt.txt\n"
        "  antigravity info -m ~/models/Llama-3.2-1B\n"
        "  antigravity bench --shape llama-3.2-1b\n"
        "  antigravity --help=man chat > antigravity-chat.1\n"
        "  antigravity --help=bash > ~/.local/share/bash-completion/completions/antigravity",
    .commands = commands,
};

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
    for (const command *c = commands; c->name; c++)
        if (!strcmp(c->name, name)) return c;
    return NULL;
}

static int unknown_command(const char *name) {
    const char *answer = compat_command_message(name);
    if (answer) return complain_usage("unknown command '%s': %s", name, answer);
    suggestion s = suggestion_for(name);
    for (const command *c = commands; c->name; c++) suggestion_try(&s, c->name);
    if (name[0] == '-')
        complain("a command comes before options such as '%s': antigravity generate %s ...", name,
                 name);
    else if (s.best) complain("unknown command '%s'; did you mean '%s'?", name, s.best);
    else complain("unknown command '%s'; 'antigravity --help' lists them", name);
    return EXIT_USAGE;
}

static int run_command(const command *c, int argc, char **argv) {
    output_command(c->name);
    const command *of = c;
    while (!of->summary) of--; /* an alias of that command */
    options_set_summary(of->summary);
    return output_finish(c->run(argc, argv));
}

/* Runs "antigravity --help=man eval ppl" as "antigravity eval ppl --help=man". Without words writes
 * the help of the program. */
static int help_command(char *option, int n_words, char **words) {
    enum { MAX_WORDS = 4 };
    char *args[MAX_WORDS + 2] = {option, option};
    if (!n_words) {
        command_line line = program;
        options_set_summary("run language models on this machine");
        return output_finish(options_parse(&line, 2, args));
    }
    if (n_words > MAX_WORDS) return complain_usage("unexpected word '%s'", words[MAX_WORDS]);
    const command *c = find_command(words[0]);
    if (!c) return unknown_command(words[0]);
    memcpy(args, words, (size_t)n_words * sizeof *args);
    args[n_words] = option;
    return run_command(c, n_words + 1, args);
}

int main(int argc, char **argv) {
    output_keep_streams();
    output_survive_limits();
    if (argc < 2) {
        if (isatty(STDERR_FILENO)) print_next_steps();
        else options_help(&program, stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--version") || !strcmp(name, "-V") || !strcmp(name, "version")) {
        version_print();
        return output_finish(EXIT_DONE);
    }
    char help[] = "--help";
    if (!strcmp(name, "help") || !strcmp(name, "-h")) return help_command(help, argc - 2, argv + 2);
    if (!strncmp(name, help, strlen(help))) return help_command(argv[1], argc - 2, argv + 2);
    const command *c = find_command(name);
    if (!c) return unknown_command(name);
    return interrupt_exit_code(run_command(c, argc - 1, argv + 1));
}
