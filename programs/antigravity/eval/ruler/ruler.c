/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval ruler: measures the effect of eviction policies on answers about long
 * prompts. */
#include "../../command.h"
#include "../../support/input.h"
#include "../../support/json_out.h"
#include "../../terminal/interrupt.h"
#include "../../terminal/output.h"
#include "../../terminal/progress.h"
#include "../eval.h"
#include "../settings.h"
#include "../template_options.h"
#include "results_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TASKS = 16, MIN_LENGTH = 256 };

typedef enum question_time { UNSEEN, SEEN } question_time;

typedef struct ruler_options {
    model_options model;
    eval_settings policies;
    template_options chat;
    const ruler_task *tasks[MAX_TASKS];
    double ratios[RULER_RATIOS], replays[RULER_RATIOS];
    size_t n_tasks, n_ratios, n_replays;
    bool all_tasks; /* --tasks was not given */
    number_list lengths;
    uint32_t samples;
    int64_t seed, first;
    const char *haystack; /* file; NULL: generated tales */
    question_time question;
    bool print_prompts;
    table_format format;
} ruler_options;

typedef struct ruler {
    const ruler_options *o;
    ruler_settings settings;
    engine engine;
    prompt_writer writer;
    char *haystack;
    size_t n_haystack;
    ruler_runner runner;
    result_table table;
    uint64_t done, total;  /* answers */
    ruler_result *results; /* [samples][n_rows] of the current task */
    ruler_result *solved;  /* results of all tasks of the length that the full cache solves */
    size_t n_solved, n_solved_tasks;
    bool fits[MAX_TASKS]; /* the task fits in the length */
} ruler;

/* ---- options ---- */

#define OPTION_STRUCT ruler_options

static bool add_task(ruler_options *o, const ruler_task *task, char *message) {
    for (size_t i = 0; i < o->n_tasks; i++) {
        if (o->tasks[i] != task) continue;
        return reject(message, "'%s' is given twice", task->name);
    }
    o->tasks[o->n_tasks++] = task;
    return true;
}

static bool set_tasks(void *target, const char *value, char *message) {
    ruler_options *o = target;
    char word[64];
    o->n_tasks = 0;
    for (const char *list = value; list;) {
        next_word(&list, word, sizeof word);
        const bool all = !strcmp(word, "all");
        const ruler_task *task = ruler_task_find(word);
        for (size_t i = 0; all && ruler_task_at(i); i++)
            if (!add_task(o, ruler_task_at(i), message)) return false;
        if (all) continue;
        if (task && add_task(o, task, message)) continue;
        if (task) return false;
        int n = snprintf(message, MESSAGE_SIZE, "'%.60s' is not one of", value);
        for (size_t i = 0; ruler_task_at(i); i++)
            n += snprintf(message + n, MESSAGE_SIZE - (size_t)n, "%s %s", i ? "," : "",
                          ruler_task_at(i)->name);
        return false;
    }
    return true;
}

/* Parses "0.25,0.5". */
static bool read_shares(const char *value, double high, double *shares, size_t *n, char *message) {
    char word[64];
    *n = 0;
    for (const char *list = value; list;) {
        next_word(&list, word, sizeof word);
        if (*n == RULER_RATIOS) return reject(message, "too many: at most %d", RULER_RATIOS);
        if (!parse_real(word, 0.01, high, &shares[(*n)++], message)) return false;
    }
    return true;
}

static bool set_ratios(void *target, const char *value, char *message) {
    ruler_options *o = target;
    return read_shares(value, 0.99, o->ratios, &o->n_ratios, message);
}

static bool set_replays(void *target, const char *value, char *message) {
    ruler_options *o = target;
    return read_shares(value, 1, o->replays, &o->n_replays, message);
}

static const option_def defs[] = {
    {.name = "tasks",
     CALLS("NAME[,NAME...]", set_tasks),
     .help = "niah_single_1, _2, _3, niah_multikey_1, _2, _3, niah_multivalue, niah_multiquery, vt "
             "(variable tracking), cwe (common words), fwe (frequent words) (default all)"},
    {.name = "length",
     SETS_LIST("N[,N...]", lengths, MIN_LENGTH, INT32_MAX),
     .help = "tokens of a prompt and its answer, the chat template included"},
    {.name = "samples",
     .letter = 'n',
     SETS_U32("N", samples, 1, 100000),
     .help = "prompts of each task, the same for all settings"},
    {.name = "first",
     SETS_I64("N", first, 0, 9e15),
     .help = "number of the first prompt: 17 with --samples 1 repeats that one"},
    {.name = "seed", .letter = 's', SETS_I64("N", seed, 0, 9.2e18), .help = "seed of the prompts"},
    {.name = "haystack",
     .letter = 'f',
     SETS_NAME("FILE", haystack),
     .help = "text around the needles of tasks with an essay (default: generated tales)"},
    {.name = "question",
     SETS_WORD("unseen|seen", question, UNSEEN),
     .help = "whether the question is read after the eviction or before it"},
    {.name = "print-prompts",
     SETS_FLAG(print_prompts),
     .help = "only print the prompts, one JSON object per line, with their tokens and references"},
};

static const option_def ratio_defs[] = {
    {.name = "ratios",
     CALLS("X[,X...]", set_ratios),
     .help = "shares of the tokens to evict (default 0.25,0.5,0.75,0.875)"},
    {.name = "replay",
     CALLS("X[,X...]", set_replays),
     .help = "also kvzip: keep the tokens that the model needs to repeat the context, replaying "
             "these shares of it (1: all)"},
};

static const char description[] =
    "Runs the 11 tasks of RULER (arXiv:2404.06654) that need no external data, with a full\n"
    "cache and with every policy and share of the tokens evicted after the context was read.\n"
    "The score of an answer is the share of the references it contains. 'kept / full' compares\n"
    "the same prompts; its 95 % interval is that of 2,000 bootstrap samples. If the full cache\n"
    "scores below 80 %, the model does not solve the task, which then says nothing about a\n"
    "policy. Each prompt is read once, and forks of that session evict; only policies that sum\n"
    "up attention all the time (h2o) read it again. A model with a chat template is asked in\n"
    "it.";

static const char examples[] =
    "  antigravity eval ruler --length 1024,2048 --eviction-policy keydiff,snapkv\n"
    "  antigravity eval ruler -m smollm2.gguf --tasks niah_single_2,vt --ratios 0.75 --samples 50\n"
    "  antigravity eval ruler --tasks cwe --samples 1 --print-prompts";

static int complete_options(ruler_options *o) {
    char message[MESSAGE_SIZE];
    eviction_options *e = &o->model.eviction;
    o->all_tasks = !o->n_tasks;
    if (o->all_tasks) set_tasks(o, "all", message);
    if (!o->n_ratios) set_ratios(o, "0.25,0.5,0.75,0.875", message);
    if (e->params.prefill != AG_KV_PREFILL_AUTO)
        return complain_usage("--kv-prefill: not supported; ruler evicts once, after the context");
    const int code = settings_complete(&o->policies, &o->model, "all", "50%");
    e->params.memory.threshold_bytes = 0;
    return code;
}

static void choose_settings(ruler *t) {
    const ruler_options *o = t->o;
    ruler_settings *s = &t->settings;
    *s = (ruler_settings){.n_ratios = o->n_ratios, .unseen = o->question == UNSEEN};
    memcpy(s->ratios, o->ratios, sizeof s->ratios);
    for (size_t i = 0; i < o->policies.n_policies; i++) {
        const ag_eviction_policy *policy = o->policies.policies[i];
        ruler_method *m = &s->methods[s->n_methods];
        if (!policy->select) continue;
        const ag_head_budget heads = o->model.eviction.params.head_budget;
        snprintf(m->name, sizeof m->name, "%s%s%s", policy->name, heads ? " " : "",
                 heads ? ag_head_budget_name(heads) : "");
        m->policy = policy;
        s->n_methods++;
    }
    for (size_t i = 0; i < o->n_replays; i++) {
        ruler_method *m = &s->methods[s->n_methods++];
        m->replay = o->replays[i];
        if (o->replays[i] < 1) snprintf(m->name, sizeof m->name, "kvzip %g %%", 100 * m->replay);
        else snprintf(m->name, sizeof m->name, "kvzip");
    }
}

/* ---- prompts ---- */

static int read_haystack(ruler *t) {
    if (!t->o->haystack) return EXIT_DONE;
    int code = input_check("haystack", t->o->haystack, NULL);
    if (code == EXIT_DONE) code = input_read_text(t->o->haystack, &t->haystack, &t->n_haystack);
    if (code != EXIT_DONE || sentences_in(t->haystack, t->n_haystack)) return code;
    return complain_failure("%s: the file has no text", t->o->haystack);
}

static int open_model(ruler *t) {
    const ruler_options *o = t->o;
    int code = engine_inspect(&t->engine, &o->model);
    if (code == EXIT_DONE) code = engine_need_tokenizer(&t->engine, "prompts cannot be encoded");
    if (code == EXIT_DONE && max_number(&o->lengths) > t->engine.info.max_positions)
        return complain_usage("--length: %" PRIu32 " tokens exceed the %" PRIu32
                              " that the model was trained for",
                              max_number(&o->lengths), t->engine.info.max_positions);
    if (code == EXIT_DONE) code = read_haystack(t);
    if (code != EXIT_DONE) return code;
    return prompt_writer_open(&t->writer, t->engine.dir, t->engine.tokenizer, &o->chat);
}

static ag_status try_prompt(ruler *t, const ruler_task *task, uint32_t length, uint32_t i,
                            ruler_prompt *out, ag_error *err) {
    const ruler_maker m = {
        .writer = &t->writer,
        .task = task,
        .source = {t->haystack, t->n_haystack, length},
        .seed = (uint64_t)t->o->seed,
    };
    return ruler_prompt_make(&m, (uint64_t)t->o->first + i, out, err);
}

static int make_prompt(ruler *t, const ruler_task *task, uint32_t length, uint32_t i,
                       ruler_prompt *out) {
    ag_error err;
    if (interrupted()) return EXIT_INTERRUPTED;
    ag_status st = try_prompt(t, task, length, i, out, &err);
    if (st == AG_OK) return EXIT_DONE;
    complain_error(&err);
    return st == AG_LIMIT ? EXIT_USAGE : EXIT_FAILED;
}

/* Checks which tasks fit in the length. Tasks that do not fit are skipped by default, and an error
 * if they were named. */
static int check_length(ruler *t, uint32_t length, ruler_prompt *p) {
    int code = EXIT_DONE;
    for (size_t i = 0; i < t->o->n_tasks && code == EXIT_DONE; i++) {
        ag_error err;
        ag_status st = try_prompt(t, t->o->tasks[i], length, 0, p, &err);
        t->fits[i] = st == AG_OK;
        if (st == AG_LIMIT && t->o->all_tasks) complain("skipped: %s", err.msg);
        else if (st != AG_OK) code = complain_error(&err);
        if (st == AG_LIMIT && !t->o->all_tasks) code = EXIT_USAGE;
    }
    return code;
}

static json_t *text_json(const text_buffer *t) { return json_text(t->data, t->len); }

/* Prints the prompt as one JSON object on a line. Returns an exit code. */
static int print_prompt(const ruler_task *task, uint32_t length, int64_t seed, int64_t number,
                        const ruler_prompt *p) {
    json_t *references = json_array();
    for (size_t i = 0; references && i < p->text.n_references; i++)
        json_append(&references, json_string(p->text.references[i]));
    const written_prompt *w = &p->written;
    const json_field fields[] = {
        {"task", json_string(task->name)},
        {"length", json_integer(length)},
        {"seed", json_integer(seed)},
        {"prompt", json_integer(number)},
        {"context", text_json(&p->text.context)},
        {"question", text_json(&p->text.question)},
        {"answer_prefix", text_json(&p->text.answer_prefix)},
        {"references", references},
        {"max_new_tokens", json_integer(task->n_answer)},
        {"ids", json_ids(w->ids.data, w->ids.n)},
        {"n_context", json_integer((json_int_t)w->n_context)},
        {"n_question", json_integer((json_int_t)w->n_question)},
    };
    json_t *object = JSON_FIELDS(fields);
    char *line = object ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (!line) return complain_no_memory();
    const bool written = output_write(line, strlen(line)) && output_write("\n", 1);
    free(line);
    return written ? EXIT_DONE : EXIT_FAILED; /* A write error is reported when the command ends. */
}

static int print_task(ruler *t, const ruler_task *task, uint32_t length, ruler_prompt *p) {
    int code = EXIT_DONE;
    for (uint32_t i = 0; i < t->o->samples && code == EXIT_DONE; i++) {
        code = make_prompt(t, task, length, i, p);
        if (code == EXIT_DONE) code = print_prompt(task, length, t->o->seed, t->o->first + i, p);
    }
    return code;
}

/* ---- running ---- */

static void count_answer(void *user) {
    ruler *t = user;
    progress_update(NULL, ++t->done, t->total);
}

/* Stores the results of a solved task for the rows of all solved tasks. */
static int store_solved(ruler *t, const ruler_block *b) {
    const size_t n = b->n_prompts * ruler_n_rows(&t->settings);
    if (!ruler_is_solved(b)) return EXIT_DONE;
    ruler_result *grown = realloc(t->solved, (t->n_solved + n) * sizeof *grown);
    if (!grown) return complain_no_memory();
    t->solved = grown;
    memcpy(t->solved + t->n_solved, b->results, n * sizeof *grown);
    t->n_solved += n;
    t->n_solved_tasks++;
    return EXIT_DONE;
}

static int run_task(ruler *t, const ruler_task *task, uint32_t length, ruler_prompt *p) {
    const ruler_options *o = t->o;
    const size_t n_rows = ruler_n_rows(&t->settings);
    char label[64];
    int code = EXIT_DONE;
    progress_begin(task->name);
    t->runner.label = label;
    for (uint32_t i = 0; i < o->samples && code == EXIT_DONE; i++) {
        snprintf(label, sizeof label, "%s, prompt %" PRId64, task->name, o->first + i);
        code = make_prompt(t, task, length, i, p);
        if (code == EXIT_DONE)
            code = ruler_run_prompt(&t->runner, task, p, t->results + i * n_rows, count_answer, t);
    }
    progress_end();
    const ruler_block b = {
        .task = task->name,
        .length = length,
        .settings = &t->settings,
        .results = t->results,
        .n_prompts = o->samples,
        .first_prompt = (uint64_t)o->first,
    };
    if (code == EXIT_DONE) code = ruler_table_add(&t->table, &b);
    return code == EXIT_DONE ? store_solved(t, &b) : code;
}

static int run_length(ruler *t, uint32_t length) {
    const ruler_options *o = t->o;
    ruler_prompt p = {.n_units = 0};
    int code = check_length(t, length, &p);
    t->n_solved = t->n_solved_tasks = 0;
    for (size_t i = 0; i < o->n_tasks && code == EXIT_DONE; i++) {
        if (!t->fits[i]) continue;
        code = o->print_prompts ? print_task(t, o->tasks[i], length, &p)
                                : run_task(t, o->tasks[i], length, &p);
    }
    ruler_prompt_free(&p);
    if (code != EXIT_DONE || t->n_solved_tasks < 2) return code;
    const ruler_block all = {
        .task = "all solved",
        .length = length,
        .settings = &t->settings,
        .results = t->solved,
        .n_prompts = t->n_solved_tasks * o->samples,
        .of_tasks = true,
    };
    return ruler_table_add(&t->table, &all);
}

static json_t *head_of(const ruler *t) {
    const ruler_options *o = t->o;
    const ag_eviction_params *e = &o->model.eviction.params;
    const json_field fields[] = {
        {"measure", json_string("ruler")},
        {"model", json_text(t->engine.dir, strlen(t->engine.dir))},
        {"weights", json_string(weights_name(o->model.weights, &t->engine.info))},
        {"k_type", json_string(ag_dtype_name(o->model.k_type))},
        {"v_type", json_string(ag_dtype_name(o->model.v_type))},
        {"question", json_string(o->question == SEEN ? "seen" : "unseen")},
        {"chat_template", json_boolean(t->writer.chat != NULL)},
        {"haystack", o->haystack ? json_text(o->haystack, strlen(o->haystack)) : json_null()},
        {"seed", json_integer(o->seed)},
        {"first_prompt", json_integer(o->first)},
        {"samples", json_integer(o->samples)},
        {"threads", json_integer((json_int_t)ag_backend_threads(t->engine.backend))},
        {"protected_prefix", json_integer(e->protected_prefix)},
        {"kv_recent", json_integer(e->recent)},
        {"snapkv_window", json_integer(e->snapkv_window)},
        {"snapkv_kernel", json_integer(e->snapkv_kernel)},
        {"snapkv_pool", json_string(e->snapkv_pool == AG_POOL_MAX ? "max" : "avg")},
    };
    return JSON_FIELDS(fields);
}

static int run_lengths(ruler *t) {
    int code = EXIT_DONE;
    for (size_t i = 0; i < t->o->lengths.n && code == EXIT_DONE; i++)
        code = run_length(t, t->o->lengths.v[i]);
    return code;
}

static int measure(ruler *t) {
    const ruler_options *o = t->o;
    const size_t n_rows = ruler_n_rows(&t->settings);
    t->runner = (ruler_runner){
        .settings = &t->settings,
        .options = &o->model,
        .engine = &t->engine,
        .writer = &t->writer,
        .max_seq_len = ruler_slots(&t->settings, &t->engine.info, max_number(&o->lengths)),
    };
    const engine_sessions sessions = {ruler_session_params(&t->runner),
                                      ruler_n_sessions(&t->runner)};
    t->total = (uint64_t)o->lengths.n * o->n_tasks * o->samples * n_rows;
    t->results = calloc(o->samples * n_rows, sizeof *t->results);
    if (!t->results) return complain_no_memory();
    int code = engine_load(&t->engine, &o->model, &sessions);
    if (code == EXIT_DONE) code = ruler_open(&t->runner);
    if (code == EXIT_DONE) {
        ruler_table_open(&t->table, o->format);
        code = run_lengths(t);
        code = table_finish(&t->table, head_of(t), code);
    }
    ruler_close(&t->runner);
    return code;
}

/* ---- the command ---- */

int eval_ruler(int argc, char **argv) {
    ruler_options o = {
        .model = model_options_defaults(),
        .lengths = {{1024}, 1},
        .samples = 20,
        .seed = 1,
    };
    command_line line = {
        .usage = "eval ruler [-m MODEL] [OPTION]...",
        .description = description,
        .examples = examples,
        .groups = {OPTION_GROUP("Prompts", defs, &o), template_group(&o.chat),
                   policies_group(&o.policies),
                   OPTION_GROUP("Settings, each combination a row", ratio_defs, &o),
                   table_group(&o.format), eviction_rules_group(&o.model.eviction),
                   model_group(&o.model), kv_type_group(&o.model),
                   k_rotation_group(&o.model.k_rotation)},
        .hint = ": prompts are generated; --haystack FILE sets the text around some needles",
    };
    add_machine_groups(&line, &o.model);
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    code = template_check(&o.chat);
    if (code == EXIT_DONE) code = complete_options(&o);
    if (code != EXIT_DONE) return code;
    interrupt_install();
    ruler t = {.o = &o};
    choose_settings(&t);
    code = open_model(&t);
    if (code == EXIT_DONE) code = o.print_prompts ? run_lengths(&t) : measure(&t);
    free(t.results);
    free(t.solved);
    free(t.haystack);
    prompt_writer_close(&t.writer);
    engine_close(&t.engine);
    return code;
}
