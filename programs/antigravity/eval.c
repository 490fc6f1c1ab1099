/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval MEASURE ...: options and the choice of the measure. */
#include "eval.h"

#include "command.h"
#include "interrupt.h"
#include "output.h"

#include <string.h>

#define FIELD(name) offsetof(eval_options, name)
static const option_def defs[] = {
    {.name = "prompt-ids",
     .kind = OPTION_TEXT,
     .value = "N,N,...",
     .offset = FIELD(text.ids),
     .help = "token ids instead of a file, taken as they are: the first one is not predicted"},
    {.name = "prompt-file",
     .letter = 'f',
     .kind = OPTION_TEXT,
     .value = "FILE",
     .offset = FIELD(text.file),
     .aliases = {"file"},
     .help = "the text, as llama.cpp's tools take it; - is standard input"},
    {.name = "windows",
     .kind = OPTION_U32,
     .value = "N",
     .offset = FIELD(max_windows),
     .low = 0,
     .high = INT32_MAX,
     .no_default = true,
     .aliases = {"chunks"},
     .help = "only the first N windows (default 0: the whole text)"},
    {.name = "no-bos",
     .kind = OPTION_FLAG,
     .offset = FIELD(text.no_bos),
     .help = "windows do not begin with the token for the beginning of a text"},
    {.name = "parse-special",
     .kind = OPTION_FLAG,
     .offset = FIELD(text.parse_special),
     .help = "special tokens written in the text become tokens"},
    {.name = "json",
     .kind = OPTION_FLAG,
     .offset = FIELD(json),
     .help = "print one JSON object: ppl, mean_nll, stderr, tokens, nll (of every token), ..."},
};

static const char description[] =
    "Measures how well a model predicts a text. ppl: perplexity over disjoint windows of\n"
    "--max-seq-len tokens, each beginning with the token for the beginning of a text. Every other\n"
    "token is predicted from those before it in its window; the last window may be shorter.";

static const char examples[] =
    "  antigravity eval ppl novel.txt --windows 8\n"
    "  antigravity eval ppl -m ~/models/Llama-3.2-1B --weights q8_0 -c 512 wiki.test.raw\n"
    "  antigravity eval ppl --prompt-ids 4090,790,650,258,469 --json";

static int check(command_line *line, eval_options *o) {
    const char *measure = line->n_operands ? line->operands[0] : NULL;
    if (!measure) {
        complain("say what to measure: antigravity eval ppl FILE");
        return EXIT_USAGE;
    }
    if (!strcmp(measure, "needle") || !strcmp(measure, "kl")) {
        complain("'%s' is not available yet in this version, which measures ppl", measure);
        return EXIT_USAGE;
    }
    if (strcmp(measure, "ppl") != 0) {
        complain("'%s' is no measure; this version has ppl", measure);
        return EXIT_USAGE;
    }
    if (line->n_operands > 1) {
        if (o->text.file) {
            complain("one text at a time: '%s' or '%s'", o->text.file, line->operands[1]);
            return EXIT_USAGE;
        }
        o->text.file = line->operands[1];
    }
    return model_options_check(&o->model);
}

int command_eval(int argc, char **argv) {
    eval_options o = {.model = model_options_defaults()};
    command_line line = {
        .usage = "eval ppl [-m DIR] (FILE | --prompt-ids N,N,...) [OPTION]...",
        .description = description,
        .examples = examples,
        .groups = {{"Text", defs, sizeof defs / sizeof defs[0], &o},
                   model_group(&o.model),
                   context_group(&o.model),
                   machine_group(&o.model),
                   message_group(&o.model)},
        .n_groups = 5,
        .max_operands = 2,
    };
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    code = check(&line, &o);
    if (code != EXIT_DONE) return code;
    interrupt_install();
    return eval_ppl(&o);
}
