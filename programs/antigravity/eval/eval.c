/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval MEASURE ...: finds the measure. */
#include "eval.h"

#include "../command.h"
#include "../options/options.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"

#include <antigravity/kv_cache.h>
#include <string.h>

static const command measures[] = {
    {"ppl", eval_ppl, "how well a model predicts a text, in windows or in one stream"},
    {"needle", eval_needle, "whether it finds facts in documents that exceed the cache"},
    {"kl", eval_kl, "how far its predictions differ from those with another setting"},
    {"ruler", eval_ruler, "how eviction policies change its answers about long prompts"},
    {"routes", eval_routes, "which experts the tokens of a text choose, in a mixture of experts"},
    {NULL, NULL, NULL},
};

static const char description[] =
    "Measures the quality of a model, and the loss by a managed or quantised KV cache.\n"
    "'antigravity eval MEASURE --help' describes each measure.";

static const char examples[] =
    "  antigravity eval ppl novel.txt --windows 8\n"
    "  antigravity eval needle --eviction-policy none,snapkv,keydiff --kv-budget 25%\n"
    "  antigravity eval kl novel.txt --kv-type q8_0 --kv-type q8_0,q4_0 --windows 4";

int eval_result(ag_status status, ag_error *err) {
    if (status == AG_OK && interrupted()) err->status = status = AG_CANCELLED;
    return status == AG_OK ? EXIT_DONE : complain_error(err);
}

void cache_track(ag_session *s, size_t *max_bytes) {
    size_t bytes = ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(s));
    if (bytes > *max_bytes) *max_bytes = bytes;
}

int command_eval(int argc, char **argv) {
    for (const command *m = measures; argc > 1 && m->name; m++) {
        if (strcmp(argv[1], m->name) != 0) continue;
        options_set_summary(m->summary);
        return m->run(argc - 1, argv + 1);
    }
    if (argc > 1 && argv[1][0] != '-')
        return complain_usage("unknown measure '%s'; measures are ppl, needle, kl, ruler and "
                              "routes",
                              argv[1]);
    command_line line = {
        .usage = "eval MEASURE [OPTION]...",
        .description = description,
        .examples = examples,
        .commands = measures,
    };
    /* Only --help and --version may precede the measure. */
    int code = options_parse(&line, argc < 2 ? argc : 2, argv);
    if (code != OPTIONS_RUN) return code;
    return complain_usage("no measure given: antigravity eval ppl FILE");
}
