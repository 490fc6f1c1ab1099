/* SPDX-License-Identifier: Apache-2.0 */
#include "generate.h"

#include "command.h"
#include "options/presets.h"
#include "terminal/output.h"

#include <antigravity/session.h>
#include <stdlib.h>

#define OPTION_STRUCT generate_options

static bool add_stop(void *target, const char *value, char *message) {
    generate_options *o = target;
    if (!value[0]) return reject(message, "the text is empty");
    const char **grown = realloc(o->stop, (o->n_stop + 1) * sizeof *grown);
    if (!grown) return reject(message, "out of memory");
    o->stop = grown;
    o->stop[o->n_stop++] = value;
    return true;
}

static const option_def preset_defs[] = {PRESET_ROW};

static const option_def output_defs[] = {
    {.name = "max-tokens",
     .letter = 'n',
     SETS_I64("N", max_tokens, -1, INT32_MAX),
     .aliases = {"n-predict", "predict"},
     .help = "stop after N tokens; 0: only read the prompt; -1: no limit"},
    {.name = "stop",
     CALLS("TEXT", add_stop),
     .aliases = {"--r", "reverse-prompt"},
     .help = "stop before this text appears; may be given several times"},
    {.name = "ignore-eos", SETS_FLAG(ignore_eos), .help = "continue when the model ends the text"},
    {.name = "echo", SETS_FLAG(echo), .help = "print the prompt before the generated text"},
    {.name = "special", SETS_FLAG(keep_special), .help = "print special tokens too"},
    {.name = "json",
     SETS_FLAG(json),
     .help = "print one JSON object at the end: prompt_ids, ids, text, finish_reason, seed, "
             "settings, timings, memory"},
};

static const char description[] =
    "Continues a text. A newline at the end of a file or of standard input is dropped. The text\n"
    "is printed to standard output while it is generated; speed, memory and the seed go to\n"
    "standard error at the end. Without -m the bundled demo model tells fairy tales. Ctrl-C,\n"
    "SIGTERM and SIGHUP end the text; it is saved and reported as usual. Exit status: 0 done, 1\n"
    "failed while running, or the text was cut off before it met a constraint, 2 wrong usage,\n"
    "128 and its number after a signal.";

static const char examples[] =
    "  antigravity generate \"The old king had three sons\" -n 300\n"
    "  antigravity generate -m ~/models/Llama-3.2-1B -f prompt.txt --temperature 0\n"
    "  echo \"Once upon a time\" | antigravity generate --seed 7 --stop \"The end\"\n"
    "  antigravity generate -m Qwen3-0.6B --chat -p \"What is the capital of France?\"\n"
    "  antigravity generate --prompt-ids 4090,790,650,258,469 --json -q\n"
    "  antigravity generate -p \"The king is \" --choice old,young,dead -q\n"
    "  antigravity generate -m MODEL -f question.txt --json-schema answer.schema.json\n"
    "  antigravity generate -p \"The old king\" --save-cache king.agcache\n"
    "  antigravity generate --load-cache king.agcache -p \" Then\"";

static generate_options defaults(void) {
    return (generate_options){
        .model = model_options_defaults(),
        .sampling = sampling_options_defaults(),
        .speculation = speculation_defaults(),
        .replay = replay_defaults(),
        .max_tokens = ag_generate_defaults().max_tokens,
    };
}

int generate_parse(generate_options *o, int argc, char **argv) {
    *o = defaults();
    command_line line = {
        .usage = "generate [-m MODEL] [TEXT | -p TEXT | -f FILE] [OPTION]...",
        .description = description,
        .examples = examples,
        .groups = {prompt_group(&o->prompt), generate_chat_group(o),
                   transcript_group(&o->transcript), OPTION_GROUP("Output", output_defs, o),
                   OPTION_GROUP("Model", preset_defs, o), model_group(&o->model),
                   sampling_group(&o->sampling)},
        .max_operands = 1,
        .hint = prompt_operand_hint,
    };
    add_cache_groups(&line, &o->model);
    command_line_add(&line, replay_group(&o->replay));
    command_line_add(&line, saved_group(&o->saved));
    command_line_add(&line, constraint_group(&o->constraint));
    command_line_add(&line, speculation_group(&o->speculation));
    add_machine_groups(&line, &o->model);
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    code = prompt_operand(&line, &o->prompt);
    if (code == EXIT_DONE) code = model_options_check(&o->model);
    if (code == EXIT_DONE) code = generate_chat_check(o);
    if (code == EXIT_DONE) code = saved_check(&o->saved);
    if (code == EXIT_DONE) code = replay_check(&o->replay, &o->model.eviction);
    if (code == EXIT_DONE) code = constraint_check(&o->constraint);
    return code == EXIT_DONE ? OPTIONS_RUN : code;
}

void generate_options_free(generate_options *o) {
    free(o->stop);
    constraint_options_free(&o->constraint);
    sampling_options_free(&o->sampling);
}
