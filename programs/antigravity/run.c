/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity run MODEL: chats with a model, as 'antigravity chat -m MODEL' does. */
#include "command.h"
#include "options/options.h"
#include "terminal/output.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Returns whether the word asks for help or the version. */
static bool is_query(const char *word) {
    static const char *const words[] = {"-h", "--help", "-V", "--version"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (!strcmp(word, words[i])) return true;
    return !strncmp(word, "--help=", 7);
}

int command_run(int argc, char **argv) {
    command_line line = {
        .usage = "run MODEL [TEXT] [OPTION]...",
        .description =
            "Chats with a model of the store, as 'antigravity chat -m MODEL' does. MODEL may\n"
            "be a path, a unique prefix of a name in any case, or have a tag. 'antigravity\n"
            "pull' fetches a model, and 'antigravity chat --help' lists the options.",
        .examples = "  antigravity run qwen3:0.6b\n"
                    "  antigravity run SmolLM2-135M \"Tell me of a fox\" --seed 7\n"
                    "  echo \"What is the capital of France?\" | antigravity run qwen3 -q",
    };
    const char *first = argc > 1 ? argv[1] : NULL;
    if (first && is_query(first)) return options_parse(&line, argc, argv);
    if (!first || first[0] == '-')
        return complain_usage("no model given: use 'antigravity run MODEL'; 'antigravity models' "
                              "lists those of the store");
    char **args = calloc((size_t)argc + 2, sizeof *args), option[] = "-m";
    if (!args) return complain_no_memory();
    args[0] = argv[0];
    args[1] = option;
    for (int i = 1; i < argc; i++) args[i + 1] = argv[i];
    const int code = command_chat(argc + 1, args);
    free(args);
    return code;
}
