/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval needle: measures whether facts are found in documents that exceed the cache. */
#include "../command.h"
#include "../support/input.h"
#include "../support/statistics.h"
#include "../support/table.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"
#include "clock.h"
#include "eval.h"
#include "haystack.h"
#include "sentences.h"
#include "settings.h"
#include "template_options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ANSWER_TOKENS = 10, CHAT_ANSWER_TOKENS = 40, MAX_COLUMNS = MAX_NUMBERS + 10 };

typedef enum question_position { INSIDE, AFTER } question_position;

typedef struct needle_options {
    model_options model;
    eval_settings settings;
    const char *text; /* file; NULL: generated tales */
    uint32_t documents, context;
    int64_t seed;
    number_list depths;         /* in percent */
    question_position question; /* AFTER: read after the eviction */
    template_options chat;
    table_format format;
} needle_options;

typedef struct needles {
    const needle_options *o;
    engine engine;
    prompt_writer writer;
    char *filler;
    needle *documents; /* [o->documents] */
    size_t longest;    /* tokens */
    result_table table;
    table_column columns[MAX_COLUMNS];
    uint64_t done, total; /* documents read */
} needles;

/* Results of one setting. */
typedef struct outcome {
    uint32_t right, n_questions;
    uint32_t n_right_at[MAX_NUMBERS], n_questions_at[MAX_NUMBERS];
    double prefill_s, decode_s;
    size_t n_prefilled, n_decoded, kv_bytes;
    uint32_t budget;
} outcome;

/* ---- options ---- */

#define OPTION_STRUCT needle_options

static const option_def defs[] = {
    {.name = "documents",
     .letter = 'n',
     SETS_U32("N", documents, 1, 100000),
     .help = "documents for each setting, the same for all"},
    {.name = "context",
     SETS_U32("N", context, NEEDLE_MIN_TOKENS, INT32_MAX),
     .help = "tokens of a document with its question"},
    {.name = "depth",
     SETS_LIST("N[,N...]", depths, 0, 100),
     .help = "position of the fact in the document, in percent; documents alternate"},
    {.name = "question",
     SETS_WORD("inside|after", question, INSIDE),
     .help = "whether the question is read with the document or after the eviction"},
    {.name = "seed",
     .letter = 's',
     SETS_I64("N", seed, 0, 9.2e18),
     .help = "seed of the documents"},
    {.name = "text",
     .letter = 'f',
     SETS_NAME("FILE", text),
     .help = "text around the facts (default: generated tales)"},
};

static const char description[] =
    "Hides a fact and two others in a document (\"The secret of Mia's red box is 123 blue\"),\n"
    "asks for it at the end and counts the right answers, for every policy and budget. The\n"
    "bundled model was trained on such documents; results of other models say little. A budget\n"
    "of N % is a share of --context. Evicts after each chunk of the prompt or at its end, as\n"
    "--kv-prefill says. A model with a chat template is asked in it; its answer is right if it\n"
    "contains the fact.";

static const char examples[] =
    "  antigravity eval needle\n"
    "  antigravity eval needle --eviction-policy none,keydiff --kv-budget 25% --question after\n"
    "  antigravity eval needle --eviction-policy snapkv --kv-budget 12.5% --snapkv-window 12 \\\n"
    "    --snapkv-kernel 15 --snapkv-pool max --documents 40 -o json";

/* ---- documents ---- */

/* Returns the maximum tokens of an answer: chat models answer in sentences. */
static uint32_t answer_tokens(const needles *n) {
    return n->writer.chat ? CHAT_ANSWER_TOKENS : ANSWER_TOKENS;
}

/* Counts the tokens that the template adds to a document and its question. */
static ag_status template_tokens(needles *n, uint32_t *out, ag_error *err) {
    written_prompt p = {.n_context = 0};
    *out = 0;
    if (!n->writer.chat) return AG_OK;
    ag_status st = prompt_write(&n->writer, "A", "B", "", &p, err);
    *out = (uint32_t)p.ids.n;
    written_prompt_free(&p);
    return st;
}

/* Replaces the document's ids by those of a user message. */
static ag_status put_in_template(needles *n, needle *d, ag_error *err) {
    written_prompt p = {.n_context = 0};
    if (!n->writer.chat) return AG_OK;
    ag_status st = prompt_write(&n->writer, d->document.data, d->question, "", &p, err);
    if (st != AG_OK) {
        written_prompt_free(&p);
        return st;
    }
    ag_ids_free(&d->ids);
    d->ids = p.ids;
    d->n_document = p.n_context;
    return AG_OK;
}

static int read_filler(needles *n, haystack *h) {
    if (!n->o->text) return EXIT_DONE;
    int code = input_check("text", n->o->text, NULL);
    if (code == EXIT_DONE) code = input_read(n->o->text, &n->filler, &h->n_filler);
    if (code != EXIT_DONE) return code;
    h->filler = n->filler;
    if (sentences_in(h->filler, h->n_filler)) return EXIT_DONE;
    return complain_failure("%s: the file has no text", n->o->text);
}

static int make_documents(needles *n) {
    const needle_options *o = n->o;
    ag_error err;
    haystack h = {
        .tokenizer = n->engine.tokenizer, .seed = (uint64_t)o->seed, .n_tokens = o->context};
    int code = engine_need_tokenizer(&n->engine, "the documents cannot be encoded");
    if (code != EXIT_DONE) return code;
    if (code == EXIT_DONE)
        code = prompt_writer_open(&n->writer, n->engine.dir, n->engine.tokenizer, &o->chat);
    if (code != EXIT_DONE) return code;
    if (o->context + answer_tokens(n) > n->engine.info.max_positions)
        return complain_usage("--context: %" PRIu32 " tokens and an answer exceed the %" PRIu32
                              " that the model was trained for",
                              o->context, n->engine.info.max_positions);
    code = read_filler(n, &h);
    if (code != EXIT_DONE) return code;
    uint32_t added;
    if (template_tokens(n, &added, &err) != AG_OK) return complain_error(&err);
    if (o->context < NEEDLE_MIN_TOKENS + added)
        return complain_usage("--context: %" PRIu32
                              " tokens are too few: the chat template takes %" PRIu32
                              ", the shortest document %d",
                              o->context, added, NEEDLE_MIN_TOKENS);
    h.n_tokens -= added;
    n->documents = calloc(o->documents, sizeof *n->documents);
    if (!n->documents) return complain_no_memory();
    for (uint32_t i = 0; i < o->documents; i++) {
        double depth = (double)o->depths.v[i % o->depths.n] / 100;
        ag_status st = needle_make(&h, i, depth, &n->documents[i], &err);
        if (st == AG_OK) st = put_in_template(n, &n->documents[i], &err);
        if (st != AG_OK) return complain_error(&err);
        if (n->documents[i].ids.n > n->longest) n->longest = n->documents[i].ids.n;
        n->total += n->documents[i].ids.n;
    }
    n->total *= settings_count(&o->settings);
    return EXIT_DONE;
}

/* ---- running ---- */

static bool on_progress(void *user, uint64_t done, uint64_t total) {
    const needles *n = user;
    (void)total;
    return progress_update(NULL, n->done + done, n->total);
}

static ag_status read_document(needles *n, ag_session *s, const needle *d, outcome *out,
                               ag_error *err) {
    size_t first = n->o->question == AFTER ? d->n_document : d->ids.n,
           n_question = d->ids.n - first;
    double begin = clock_s();
    ag_session_reset(s);
    ag_status st = ag_session_prefill(s, d->ids.data, first, on_progress, n, err);
    out->prefill_s += clock_s() - begin;
    out->n_prefilled += first;
    if (st == AG_OK && n_question)
        st = ag_session_prefill(s, d->ids.data + first, n_question, NULL, NULL, err);
    return st;
}

static bool is_right(const needles *n, const needle *d, const char *answer_text) {
    if (n->writer.chat) return strstr(answer_text, d->answer) != NULL;
    answer_text += strspn(answer_text, " ");
    return !strncmp(answer_text, d->answer, strlen(d->answer));
}

/* Generates greedily up to the maximum; with a template up to the end of the turn. */
static ag_status answer(needles *n, ag_session *s, const needle *d, outcome *out, bool *right,
                        ag_error *err) {
    int32_t ids[CHAT_ANSWER_TOKENS];
    const size_t max_ids = answer_tokens(n);
    ag_text text = {0};
    size_t n_ids = 0;
    double begin = clock_s();
    ag_status st = AG_OK;
    while (n_ids < max_ids && st == AG_OK) {
        ids[n_ids] = (int32_t)likeliest(ag_session_logits(s), n->engine.info.n_vocab);
        if (n->writer.chat && prompt_ends_answer(&n->writer, &n->engine.info, ids[n_ids])) break;
        if (++n_ids == max_ids) break;
        st = ag_session_decode(s, ids[n_ids - 1], err);
        out->n_decoded++;
    }
    out->decode_s += clock_s() - begin;
    if (st == AG_OK) {
        st = ag_tokenizer_decode(n->engine.tokenizer, ids, n_ids, true, &text, err);
    }
    if (st == AG_OK) {
        const char *answer_text = text.data ? text.data : "";
        *right = is_right(n, d, answer_text);
        if (n->o->model.verbose) complain("expected %s, got: %.100s", d->answer, answer_text);
    }
    ag_text_free(&text);
    return st;
}

static int answer_all(needles *n, ag_session *s, outcome *out) {
    const needle_options *o = n->o;
    ag_error err;
    for (uint32_t i = 0; i < o->documents; i++) {
        const needle *d = &n->documents[i];
        bool right = false;
        ag_status st = read_document(n, s, d, out, &err);
        if (st == AG_OK) st = answer(n, s, d, out, &right, &err);
        int code = eval_result(st, &err);
        if (code != EXIT_DONE) return code;
        cache_track(s, &out->kv_bytes);
        out->n_questions++;
        out->n_questions_at[i % o->depths.n]++;
        out->right += right;
        out->n_right_at[i % o->depths.n] += right;
        n->done += d->ids.n;
    }
    return EXIT_DONE;
}

/* ---- results ---- */

static void depth_key(char *key, size_t cap, uint32_t depth) {
    snprintf(key, cap, "accuracy_at_%" PRIu32, depth);
}

static void set_columns(needles *n) {
    static const table_column before[] = {
        {"policy", "policy", TABLE_TEXT, 0, 0, 9},
        {"budget", "budget", TABLE_TEXT, 0, 0, 6},
        {"budget_tokens", "tokens", TABLE_NUMBER, 0, 4, 6},
        {"k_type", "keys", TABLE_TEXT, 0, 2, 4},
        {"v_type", "values", TABLE_TEXT, 0, 2, 6},
        {"accuracy", "accuracy", TABLE_SHARE, 1, 0, 8},
    };
    static const table_column after[] = {
        {"kv_bytes", "cache", TABLE_BYTES, 0, 3, 10},
        {"prefill_tok_per_s", "prefill tok/s", TABLE_NUMBER, 0, 5, 13},
        {"decode_tok_per_s", "decode tok/s", TABLE_NUMBER, 0, 5, 12},
    };
    size_t c = sizeof before / sizeof before[0];
    memcpy(n->columns, before, sizeof before);
    if (n->o->settings.n_types > 1) n->columns[3].rank = n->columns[4].rank = 0;
    for (size_t i = 0; i < n->o->depths.n; i++, c++) {
        n->columns[c] = (table_column){.kind = TABLE_SHARE, .rank = 1, .width = 5};
        depth_key(n->columns[c].key, sizeof n->columns[c].key, n->o->depths.v[i]);
        snprintf(n->columns[c].title, sizeof n->columns[c].title, "%" PRIu32 " %%",
                 n->o->depths.v[i]);
    }
    memcpy(n->columns + c, after, sizeof after);
    n->table = (result_table){
        .format = n->o->format, .columns = n->columns, .n = c + sizeof after / sizeof after[0]};
}

static json_t *row_of(const needles *n, const cache_setting *one, const outcome *r) {
    const needle_options *o = n->o;
    json_t *row =
        JSON_ADD(setting_json(&o->settings, one),
                 {"budget_tokens", r->budget ? json_integer(r->budget) : json_null()},
                 {"documents", json_integer(r->n_questions)}, {"right", json_integer(r->right)},
                 {"accuracy", json_real((double)r->right / r->n_questions)},
                 {"kv_bytes", json_integer((json_int_t)r->kv_bytes)},
                 {"prefill_tok_per_s", json_real(per_second(r->n_prefilled, r->prefill_s))},
                 {"decode_tok_per_s", json_real(per_second(r->n_decoded, r->decode_s))});
    for (size_t i = 0; i < o->depths.n; i++) {
        char key[32];
        if (!r->n_questions_at[i]) continue;
        depth_key(key, sizeof key, o->depths.v[i]);
        row = JSON_ADD(row, {key, json_real((double)r->n_right_at[i] / r->n_questions_at[i])});
    }
    return row;
}

static json_t *head_of(const needles *n) {
    const needle_options *o = n->o;
    const ag_eviction_params *e = &o->model.eviction.params;
    json_t *depths = json_array();
    for (size_t i = 0; depths && i < o->depths.n; i++)
        json_append(&depths, json_real(o->depths.v[i]));
    const json_field fields[] = {
        {"measure", json_string("needle")},
        {"model", json_text(n->engine.dir, strlen(n->engine.dir))},
        {"weights", json_string(weights_name(o->model.weights, &n->engine.info))},
        {"question", json_string(o->question == AFTER ? "after" : "inside")},
        {"chat_template", json_boolean(n->writer.chat != NULL)},
        {"context", json_integer(o->context)},
        {"documents", json_integer(o->documents)},
        {"seed", json_integer(o->seed)},
        {"depths", depths},
        {"threads", json_integer((json_int_t)ag_backend_threads(n->engine.backend))},
        {"snapkv_window", json_integer(e->snapkv_window)},
        {"snapkv_kernel", json_integer(e->snapkv_kernel)},
        {"snapkv_pool", json_string(e->snapkv_pool == AG_POOL_MAX ? "max" : "avg")},
    };
    return JSON_FIELDS(fields);
}

static uint32_t slots_of(const needles *n) { return (uint32_t)n->longest + answer_tokens(n); }

static int measure(needles *n) {
    const needle_options *o = n->o;
    int code = EXIT_DONE;
    for (size_t i = 0; i < settings_count(&o->settings) && code == EXIT_DONE; i++) {
        cache_setting one = settings_at(&o->settings, i);
        outcome r = {.right = 0};
        ag_session *s = NULL;
        code = settings_open(&o->settings, &one, &o->model, n->engine.model, slots_of(n), &s);
        progress_begin(one.policy->name);
        if (code == EXIT_DONE) code = answer_all(n, s, &r);
        progress_end();
        if (code == EXIT_DONE) r.budget = ag_session_kv_budget(s);
        if (code == EXIT_DONE) code = table_add(&n->table, row_of(n, &one, &r));
        settings_close(s);
    }
    return table_finish(&n->table, head_of(n), code);
}

int eval_needle(int argc, char **argv) {
    needle_options o = {
        .model = model_options_defaults(),
        .documents = 20,
        .context = 1024,
        .seed = 1,
        .depths = {{10, 30, 50, 70, 90}, 5},
    };
    command_line line = {
        .usage = "eval needle [-m MODEL] [OPTION]...",
        .description = description,
        .examples = examples,
        .groups = {OPTION_GROUP("Documents", defs, &o), template_group(&o.chat),
                   settings_group(&o.settings), table_group(&o.format),
                   eviction_rules_group(&o.model.eviction), model_group(&o.model),
                   k_rotation_group(&o.settings.k_rotation)},
        .hint = ": documents are generated; --text FILE sets their filler",
    };
    add_machine_groups(&line, &o.model);
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    code = template_check(&o.chat);
    if (code == EXIT_DONE) {
        code = settings_complete(&o.settings, &o.model, "all", "50%,25%,12.5%,6.25%");
    }
    if (code != EXIT_DONE) return code;
    interrupt_install();
    o.settings.share_of = o.context;
    needles n = {.o = &o};
    set_columns(&n);
    code = engine_inspect(&n.engine, &o.model);
    if (code == EXIT_DONE) code = make_documents(&n);
    if (code == EXIT_DONE) {
        const engine_sessions one = {
            settings_largest(&o.settings, &o.model, &n.engine.info, slots_of(&n)), 1};
        code = engine_load(&n.engine, &o.model, &one);
    }
    if (code == EXIT_DONE) code = measure(&n);
    for (uint32_t i = 0; n.documents && i < o.documents; i++) needle_free(&n.documents[i]);
    free(n.documents);
    free(n.filler);
    prompt_writer_close(&n.writer);
    engine_close(&n.engine);
    return code;
}
