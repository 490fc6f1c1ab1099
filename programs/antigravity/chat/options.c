/* SPDX-License-Identifier: Apache-2.0 */
#include "chat.h"

#include "../command.h"
#include "../model/model_dir.h"
#include "../options/presets.h"
#include "../terminal/output.h"

#include <string.h>

#define OPTION_STRUCT chat_options

static const option_def chat_defs[] = {
    {.name = "prompt", .letter = 'p', SETS_TEXT("TEXT", first), .help = "the first message"},
    {.name = "tools",
     SETS_NAME("FILE", tools_file),
     .help = "a JSON array of tools that the model may call; a call is shown, and the next line is "
             "its result"},
    {.name = "resume",
     SETS_NAME("NAME", resume),
     .help = "continue the conversation saved as NAME, or start it; it is saved when you leave"},
    {.name = "multiline",
     SETS_FLAG(multiline),
     .aliases = {"--mli", "multiline-input"},
     .help = "a message ends with a line that is only a dot, or with the input"},
    {.name = "max-tokens",
     .letter = 'n',
     SETS_I64("N", max_tokens, -1, INT32_MAX),
     .aliases = {"n-predict", "predict"},
     .help = "an answer ends after N tokens; -1: when the model ends it"},
    {.name = "thinking",
     SETS_WORD("auto|on|off", thinking, CHAT_AUTO),
     .help = "whether the model reasons before it answers, if its template has that choice"},
    {.name = "hide-thinking",
     SETS_FLAG(hide_thinking),
     .help = "do not show the reasoning (a terminal shows it dimmed, a pipe never does)"},
    {.name = "no-history", SETS_FLAG(no_history), .help = "do not save typed lines in the history"},
};

static const char description[] =
    "Chats with a model in its own template. MODEL is a file, a directory or a name that\n"
    "'antigravity models' lists; another first word is the first message. The bundled demo model\n"
    "has no template and continues fairy tales. /help lists the commands. Ctrl-C stops an answer;\n"
    "twice, or Ctrl-D, it leaves. A conversation may exceed the context: the system prompt and a\n"
    "short first turn stay, and the oldest turns are evicted (--kv-policy chooses another "
    "policy).\n"
    "From a pipe each line is a message, and standard output has only the answers. The defaults "
    "of\n"
    "sampling come from the model's generation_config.json.";

static const char examples[] =
    "  antigravity chat model.gguf\n"
    "  antigravity chat -m Qwen3-0.6B --system \"Answer in one sentence.\"\n"
    "  antigravity chat -m Qwen3-0.6B --resume holidays\n"
    "  antigravity chat \"Tell me of a fox\"\n"
    "  echo \"What is the capital of France?\" | antigravity chat -m Qwen3-0.6B -q";

static const char min_tokens_message[] =
    "an answer has at least one token; -1: until the model ends it";

enum { DEFAULT_CONTEXT = 4096, MAX_TOKENS = 2048, DEFAULT_PREFIX = 4 };

static chat_options defaults(const ag_sampler_params *model) {
    chat_options o = {
        .model = model_options_defaults(),
        .sampling = sampling_options_defaults(),
        .speculation = speculation_defaults(),
        .replay = replay_defaults(),
        .max_tokens = MAX_TOKENS,
    };
    o.model.max_seq_len = DEFAULT_CONTEXT;
    o.model.is_brief = true;
    o.model.eviction.params.policy = ag_eviction_policy_find("turns");
    if (!model) return o;
    sampling_options *s = &o.sampling;
    s->temperature = (double)model->temperature;
    s->top_k = model->top_k;
    s->top_p = (double)model->top_p;
    s->min_p = (double)model->min_p;
    s->presence_penalty = (double)model->presence_penalty;
    s->frequency_penalty = (double)model->frequency_penalty;
    s->repetition_penalty = (double)model->repetition_penalty;
    return o;
}

static const option_def preset_defs[] = {PRESET_ROW};

static option_group chat_group(chat_options *o) { return OPTION_GROUP("Chat", chat_defs, o); }

/* Sets the default budget to 3/4 of the context, so that several turns are evicted at a time. */
static void complete_budget(ag_eviction_params *p) {
    const bool none = !p->policy || !p->policy->select || p->policy->default_budget;
    if (!none && !p->budget_tokens && !p->budget_bytes && p->budget_ratio == 0)
        p->budget_ratio = 0.75f;
}

/* Takes [MODEL] [TEXT]: without -m, the first word is the model if it names one. */
static int take_operands(const command_line *line, chat_options *o) {
    size_t n = 0;
    if (line->n_operands && !o->model.dir && model_dir_is_model(line->operands[0]))
        o->model.dir = line->operands[n++];
    if (n == line->n_operands) return EXIT_DONE;
    if (line->n_operands > n + 1)
        return complain_usage("unexpected word '%s'%s", line->operands[n + 1], prompt_operand_hint);
    if (o->first)
        return complain_usage("two first messages given: '%s' and --prompt; give one",
                              line->operands[n]);
    o->first = line->operands[n];
    return EXIT_DONE;
}

static command_line make_line(chat_options *o) {
    command_line line = {
        .usage = "chat [MODEL] [TEXT] [OPTION]...",
        .description = description,
        .examples = examples,
        .groups = {chat_group(o), transcript_group(&o->transcript),
                   OPTION_GROUP("Model", preset_defs, o), model_group(&o->model),
                   sampling_group(&o->sampling), speculation_group(&o->speculation),
                   constraint_group(&o->constraint)},
        .max_operands = 2,
        .hint = prompt_operand_hint,
    };
    add_cache_groups(&line, &o->model);
    command_line_add(&line, replay_saved_group(&o->replay));
    add_machine_groups(&line, &o->model);
    return line;
}

int chat_parse(chat_options *o, int argc, char **argv, const ag_sampler_params *model) {
    *o = defaults(model);
    command_line line = make_line(o);
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    code = take_operands(&line, o);
    if (code == EXIT_DONE && !o->max_tokens)
        code = complain_usage("--max-tokens: %s", min_tokens_message);
    if (code == EXIT_DONE) code = transcript_options_check(&o->transcript);
    if (code == EXIT_DONE) code = constraint_check(&o->constraint);
    if (code == EXIT_DONE) code = replay_check_keep(&o->replay);
    if (code == EXIT_DONE) code = model_options_check(&o->model);
    complete_budget(&o->model.eviction.params);
    return code == EXIT_DONE ? OPTIONS_RUN : code;
}

bool chat_read_preset(chat_options *o, const char *path) {
    *o = defaults(NULL);
    o->sampling = sampling_options_unset();
    o->max_tokens = -1;
    o->model.k_type = o->model.v_type = AG_DTYPE_COUNT;
    o->model.eviction.params.policy = NULL;
    const command_line line = make_line(o);
    return options_read_file(&line, path) == OPTIONS_RUN;
}

void chat_options_free(chat_options *o) {
    sampling_options_free(&o->sampling);
    constraint_options_free(&o->constraint);
}

/* ---- /set ---- */

/* Returns whether the option can change during a conversation. */
static bool is_changeable(const option_def *def) {
    static const char *const changeable[] = {"max-tokens", "thinking"};
    for (size_t i = 0; i < sizeof changeable / sizeof changeable[0]; i++)
        if (!strcmp(def->name, changeable[i])) return true;
    return false;
}

static bool set_own(chat_options *o, const option_def *def, const char *value, char *message) {
    const int64_t max_tokens = o->max_tokens;
    if (!option_set(def, o, value, message)) return false;
    if (o->max_tokens || !max_tokens) return true;
    o->max_tokens = max_tokens;
    return reject(message, "%s", min_tokens_message);
}

/* Returns the row of a setting; *is_own: it is one of chat's options. On NULL the reason is in
 * message[MESSAGE_SIZE]. */
static const option_def *find_setting(chat_options *o, const char *name, bool *is_own,
                                      char *message) {
    const option_group sampling = sampling_group(&o->sampling), own = chat_group(o);
    *is_own = false;
    for (size_t i = 0; i < sampling.n; i++)
        if (option_is_called(&sampling.defs[i], name)) return &sampling.defs[i];
    *is_own = true;
    for (size_t i = 0; i < own.n; i++)
        if (option_is_called(&own.defs[i], name) && is_changeable(&own.defs[i]))
            return &own.defs[i];
    snprintf(message, MESSAGE_SIZE, "unknown setting '%.60s'; /set lists them", name);
    return NULL;
}

void chat_draw_seed(chat *c) {
    sampling_options *s = &c->o.sampling;
    c->seed_is_drawn = !s->has_seed;
    if (!s->has_seed) s->seed = sampling_draw_seed();
    s->has_seed = true;
}

/* Returns whether the model's sampler accepts the settings. */
static bool check_sampling(chat *c, char *message) {
    ag_error err;
    ag_sampler *sampler = NULL;
    ag_status st = sampling_prepare(&c->o.sampling, c->engine.tokenizer, &err);
    sampling_options resolved = c->o.sampling;
    const ag_sampler_params params = sampling_params(&resolved, c->n_context);
    if (st == AG_OK)
        st = ag_sampler_create(&params, (int32_t)c->engine.info.n_vocab, &sampler, &err);
    ag_sampler_destroy(sampler);
    return st == AG_OK || reject(message, "%s", err.msg);
}

/* Sets a sampling option, or on false leaves all as they were. */
static bool set_sampling(chat *c, const option_def *def, const char *value, char *message) {
    sampling_options *s = &c->o.sampling, before = *s;
    if (option_set(def, s, value, message) && check_sampling(c, message)) {
        if (!s->has_seed) chat_draw_seed(c);
        else if (s->seed != before.seed) c->seed_is_drawn = false;
        return true;
    }
    /* The list of biases may have moved; the breakers are made again from their texts. */
    before.bias = s->bias;
    before.dry_breakers = NULL;
    ag_dry_breakers_destroy(s->dry_breakers);
    *s = before;
    return false;
}

bool chat_set(chat *c, const char *name, const char *value, char *message) {
    bool is_own;
    const option_def *def = find_setting(&c->o, name, &is_own, message);
    if (!def) return false;
    return is_own ? set_own(&c->o, def, value, message) : set_sampling(c, def, value, message);
}

bool chat_describe_setting(const chat *c, const char *name, char *out) {
    bool is_own;
    chat_options o = c->o;
    const option_def *def = find_setting(&o, name, &is_own, out);
    if (!def) return false;
    sampling_params(&o.sampling, c->n_context);
    option_value(def, is_own ? (void *)&o : (void *)&o.sampling, out, MESSAGE_SIZE);
    return true;
}

void chat_print_settings(const chat *c) {
    sampling_options resolved = c->o.sampling;
    sampling_params(&resolved, c->n_context);
    const sampling_options *s = &resolved;
    static const char *const thinking_names[] = {"auto", "on", "off"};
    fprintf(stderr,
            "  temperature %g, top_k %u, top_p %g, min_p %g\n"
            "  repetition_penalty %g over %lld tokens, presence_penalty %g, frequency_penalty %g\n"
            "  seed %llu, max_tokens %lld, thinking %s\n",
            s->temperature, s->top_k, s->top_p, s->min_p, s->repetition_penalty,
            (long long)s->repetition_window, s->presence_penalty, s->frequency_penalty,
            (unsigned long long)s->seed, (long long)c->o.max_tokens, thinking_names[c->o.thinking]);
    if (c->model_sampling.len)
        fprintf(stderr, "  of these, the model's files set %s\n", c->model_sampling.data);
}
