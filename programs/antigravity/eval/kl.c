/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval kl: compares predictions with those of a base, token by token. */
#include "../command.h"
#include "../support/statistics.h"
#include "../support/table.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"
#include "clock.h"
#include "eval.h"
#include "settings.h"
#include "text_windows.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LIKE_THE_MODEL = DTYPE_AS_IS + 1 };
enum { CHUNK = 64 }; /* default tokens between evictions */

typedef struct kl_options {
    model_options model;
    text_options text;
    eval_settings settings, base;
    ag_dtype base_weights; /* a type, DTYPE_AS_IS or LIKE_THE_MODEL */
    table_format format;
} kl_options;

/* A setting and its results. */
typedef struct candidate {
    cache_setting setting;
    ag_session *session;
    double *kl;       /* [n] divergence of each prediction */
    double *rise;     /* [n] increase of the negative log-likelihood over the base's */
    size_t n, n_same; /* predictions; those with the same most likely token */
    double squares;   /* sum over changes of the actual token's probability */
    double seconds;   /* computing time, without the comparison */
    size_t kv_bytes;
} candidate;

typedef struct kl {
    const kl_options *o;
    engine engine;
    ag_model *base_model; /* owned unless it is engine.model */
    ag_session *base;
    candidate *rows;
    size_t n_rows;
    eval_text text;
    result_table table;
    size_t chunk; /* tokens compared at a time: --prefill-chunk, or a shorter window */
    /* State of the current chunk. */
    const int32_t *next; /* the actual next tokens */
    size_t n_predicted;  /* tokens with a known next token */
    float *logits;       /* [chunk][n_vocab] of the base */
    double *scale;       /* [chunk] log of the sum of exp(logits) */
    double base_nll;     /* sum over the text */
    size_t n_base;
    double compared_s; /* time of the comparisons */
    candidate *row;
} kl;

/* ---- options ---- */

#define OPTION_STRUCT kl_options

static const option_def defs[] = {
    {.name = "base-weights",
     SETS_DTYPE("TYPE", base_weights, AG_DTYPE_WEIGHT),
     .as_is = true,
     .no_default = true,
     .help = "type of the base's weights (default: as --weights)"},
};

static const char description[] =
    "Lets settings and a base predict the same text, in windows of --max-seq-len tokens, and\n"
    "compares each prediction: Kullback-Leibler divergence from the base (mean, median,\n"
    "percentiles, maximum), how often the likeliest token is the same, and the change of the\n"
    "perplexity. Policies evict after every --prefill-chunk tokens. The default base is the\n"
    "same model with an f16 cache that keeps everything.";

static const char examples[] =
    "  antigravity eval kl novel.txt --kv-type q8_0 --kv-type q8_0,q4_0 --kv-type q4_0\n"
    "  antigravity eval kl novel.txt --eviction-policy all --kv-budget 50%,25%,12.5% --windows 2\n"
    "  antigravity eval kl novel.txt --weights q4_0 --base-weights bf16 -o json";

static int check(const command_line *line, kl_options *o) {
    int code = text_operand(line, &o->text);
    model_options plain = o->model; /* the settings' policies need the rules, the base's do not */
    plain.eviction = eviction_options_defaults();
    if (code == EXIT_DONE) code = settings_complete(&o->base, &plain, "none", "25%");
    if (code == EXIT_DONE) code = settings_complete(&o->settings, &o->model, "none", "25%");
    if (code != EXIT_DONE) return code;
    if (settings_count(&o->base) != 1)
        return complain_usage("%zu bases given: there must be one", settings_count(&o->base));
    if ((unsigned)o->base_weights == LIKE_THE_MODEL) o->base_weights = o->model.weights;
    return text_evict_in_chunks(&o->model.eviction.params);
}

/* ---- comparing ---- */

static bool on_base(void *user, size_t i, const float *logits) {
    kl *k = user;
    size_t n = k->engine.info.n_vocab;
    memcpy(k->logits + i * n, logits, n * sizeof *logits);
    k->scale[i] = log_sum_exp(logits, n);
    if (i >= k->n_predicted) return !interrupted();
    k->base_nll += k->scale[i] - (double)logits[k->next[i]];
    k->n_base++;
    return !interrupted();
}

static double divergence(const float *base, double base_scale, const float *logits, double scale,
                         size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double p = (double)base[i] - base_scale, q = (double)logits[i] - scale;
        sum += exp(p) * (p - q);
    }
    return sum > 0 ? sum : 0; /* rounding can make it negative */
}

static bool on_row(void *user, size_t i, const float *logits) {
    kl *k = user;
    candidate *c = k->row;
    size_t n = k->engine.info.n_vocab;
    if (i >= k->n_predicted) return !interrupted();
    double begin = clock_s(), scale = log_sum_exp(logits, n);
    const float *base = k->logits + i * n;
    double base_nll = k->scale[i] - (double)base[k->next[i]];
    double nll = scale - (double)logits[k->next[i]], change = exp(-nll) - exp(-base_nll);
    c->kl[c->n] = divergence(base, k->scale[i], logits, scale, n);
    c->rise[c->n++] = nll - base_nll;
    c->squares += change * change;
    c->n_same += likeliest(base, n) == likeliest(logits, n);
    k->compared_s += clock_s() - begin;
    return !interrupted();
}

static ag_status compare_chunk(kl *k, const int32_t *ids, size_t n, size_t n_predicted,
                               ag_error *err) {
    k->next = ids + 1;
    k->n_predicted = n_predicted;
    ag_status st = ag_session_score(k->base, ids, n, on_base, k, err);
    for (size_t r = 0; r < k->n_rows && st == AG_OK; r++) {
        candidate *c = k->row = &k->rows[r];
        double begin = clock_s();
        k->compared_s = 0;
        st = ag_session_score(c->session, ids, n, on_row, k, err);
        c->seconds += clock_s() - begin - k->compared_s;
        cache_track(c->session, &c->kv_bytes);
    }
    return st;
}

static int compare_text(kl *k) {
    ag_error err;
    ag_status st = AG_OK;
    size_t done = 0;
    progress_begin("comparing");
    for (size_t w = 0; w < k->text.n_windows && st == AG_OK; w++) {
        size_t n;
        const int32_t *ids = text_window(&k->text, w, &n);
        ag_session_reset(k->base);
        for (size_t r = 0; r < k->n_rows; r++) ag_session_reset(k->rows[r].session);
        for (size_t at = 0; at < n && st == AG_OK; at += k->chunk) {
            size_t n_chunk = n - at < k->chunk ? n - at : k->chunk;
            st = compare_chunk(k, ids + at, n_chunk, at + n_chunk == n ? n_chunk - 1 : n_chunk,
                               &err);
            done += n_chunk;
            progress_update(NULL, done, k->text.n_tokens);
        }
    }
    progress_end();
    return eval_result(st, &err);
}

/* ---- results ---- */

static const table_column columns[] = {
    {"policy", "policy", TABLE_TEXT, 0, 0, 9},
    {"budget", "budget", TABLE_TEXT, 0, 0, 6},
    {"budget_tokens", "tokens", TABLE_NUMBER, 0, 3, 6},
    {"k_type", "keys", TABLE_TEXT, 0, 0, 4},
    {"v_type", "values", TABLE_TEXT, 0, 0, 6},
    {"kl_mean", "mean KL", TABLE_NUMBER, 5, 0, 7},
    {"kl_stderr", "+-", TABLE_NUMBER, 5, 5, 7},
    {"kl_median", "median", TABLE_NUMBER, 5, 4, 7},
    {"kl_p90", "90 %", TABLE_NUMBER, 4, 4, 6},
    {"kl_p99", "99 %", TABLE_NUMBER, 3, 1, 5},
    {"kl_max", "largest", TABLE_NUMBER, 2, 5, 7},
    {"same_top", "same top", TABLE_SHARE, 2, 0, 8},
    {"rms_dp", "RMS dp", TABLE_SHARE, 2, 5, 7},
    {"ppl", "perplexity", TABLE_NUMBER, 3, 0, 10},
    {"ppl_rise", "rise", TABLE_SHARE, 3, 2, 8},
    {"ppl_rise_stderr", "+-", TABLE_SHARE, 3, 5, 7},
    {"kv_bytes", "cache", TABLE_BYTES, 0, 3, 10},
    {"tok_per_s", "tok/s", TABLE_NUMBER, 0, 5, 5},
};

static json_t *row_of(const kl *k, candidate *c) {
    mean_error divergences = mean_of(c->kl, c->n), rise = mean_of(c->rise, c->n);
    double n = (double)c->n, base = k->base_nll / (double)k->n_base, same = (double)c->n_same / n;
    double ratio = exp(rise.mean);
    uint32_t budget = ag_session_kv_budget(c->session);
    sort_ascending(c->kl, c->n);
    const json_field fields[] = {
        {"budget_tokens", budget ? json_integer(budget) : json_null()},
        {"tokens", json_integer((json_int_t)c->n)},
        {"kl_mean", json_real(divergences.mean)},
        {"kl_stderr", json_real(divergences.error)},
        {"kl_min", json_real(c->kl[0])},
        {"kl_median", json_real(percentile(c->kl, c->n, 0.5))},
        {"kl_p90", json_real(percentile(c->kl, c->n, 0.9))},
        {"kl_p95", json_real(percentile(c->kl, c->n, 0.95))},
        {"kl_p99", json_real(percentile(c->kl, c->n, 0.99))},
        {"kl_p999", json_real(percentile(c->kl, c->n, 0.999))},
        {"kl_max", json_real(c->kl[c->n - 1])},
        {"same_top", json_real(same)},
        {"same_top_stderr", json_real(sqrt(same * (1 - same) / n))},
        {"rms_dp", json_real(sqrt(c->squares / n))},
        {"ppl", json_real(exp(base + rise.mean))},
        {"ppl_rise", json_real(ratio - 1)},
        {"ppl_rise_stderr", json_real(ratio * rise.error)},
        {"kv_bytes", json_integer((json_int_t)c->kv_bytes)},
        {"tok_per_s", json_real((double)k->text.n_tokens / c->seconds)},
    };
    return json_add_fields(setting_json(&k->o->settings, &c->setting), fields,
                           sizeof fields / sizeof fields[0]);
}

static json_t *head_of(const kl *k) {
    const kl_options *o = k->o;
    const cache_setting one = settings_at(&o->base, 0);
    json_t *base =
        JSON_ADD(setting_json(&o->base, &one),
                 {"weights", json_string(weights_name(o->base_weights, &k->engine.info))},
                 {"ppl", json_real(exp(k->base_nll / (double)k->n_base))});
    const json_field fields[] = {
        {"measure", json_string("kl")},
        {"model", json_text(k->engine.dir, strlen(k->engine.dir))},
        {"weights", json_string(weights_name(o->model.weights, &k->engine.info))},
        {"tokens", json_integer((json_int_t)k->n_base)},
        {"windows", json_integer((json_int_t)k->text.n_windows)},
        {"window", json_integer((json_int_t)k->text.window)},
        {"chunk", json_integer((json_int_t)k->chunk)},
        {"threads", json_integer((json_int_t)ag_backend_threads(k->engine.backend))},
        {"base", base},
    };
    return JSON_FIELDS(fields);
}

static int report(kl *k) {
    int code = EXIT_DONE;
    for (size_t r = 0; r < k->n_rows && code == EXIT_DONE; r++)
        code = table_add(&k->table, row_of(k, &k->rows[r]));
    return table_finish(&k->table, head_of(k), code);
}

/* ---- beginning and end ---- */

/* Loads the rows' model. Plans the sessions that are open at the same time: the base's and every
 * row's. */
static int load(kl *k) {
    const kl_options *o = k->o;
    const engine_sessions all = {
        settings_largest(&o->settings, &o->model, &k->engine.info, (uint32_t)k->text.window),
        settings_count(&o->settings) + 1};
    return engine_load(&k->engine, &o->model, &all);
}

static int open_base(kl *k) {
    const kl_options *o = k->o;
    k->base_model = k->engine.model;
    if (o->base_weights != o->model.weights || o->model.tensor_types.n) {
        const ag_model_params base = model_params_of_type(o->base_weights);
        int code =
            engine_read_model(&k->engine, k->engine.dir, base, "loading the base", &k->base_model);
        if (code != EXIT_DONE) return code;
    }
    cache_setting one = settings_at(&o->base, 0);
    return settings_open(&o->base, &one, &o->model, k->base_model, (uint32_t)k->text.window,
                         &k->base);
}

static int open_rows(kl *k) {
    const eval_settings *s = &k->o->settings;
    size_t chunk = k->o->model.prefill_chunk, n_vocab = k->engine.info.n_vocab;
    if (chunk > k->text.window) chunk = k->text.window;
    k->chunk = chunk;
    k->n_rows = settings_count(s);
    k->rows = calloc(k->n_rows, sizeof *k->rows);
    k->logits = chunk > SIZE_MAX / sizeof(float) / n_vocab
                    ? NULL
                    : malloc(chunk * n_vocab * sizeof *k->logits);
    k->scale = malloc(chunk * sizeof *k->scale);
    if (!k->rows || !k->logits || !k->scale) return complain_no_memory();
    int code = EXIT_DONE;
    for (size_t r = 0; r < k->n_rows && code == EXIT_DONE; r++) {
        candidate *c = &k->rows[r];
        c->setting = settings_at(s, r);
        c->kl = malloc(k->text.n_tokens * sizeof *c->kl);
        c->rise = malloc(k->text.n_tokens * sizeof *c->rise);
        if (!c->kl || !c->rise) return complain_no_memory();
        code = settings_open(s, &c->setting, &k->o->model, k->engine.model,
                             (uint32_t)k->text.window, &c->session);
    }
    return code;
}

static void close_all(kl *k) {
    for (size_t r = 0; k->rows && r < k->n_rows; r++) {
        settings_close(k->rows[r].session);
        free(k->rows[r].kl);
        free(k->rows[r].rise);
    }
    free(k->rows);
    free(k->logits);
    free(k->scale);
    settings_close(k->base);
    if (k->base_model != k->engine.model) ag_model_destroy(k->base_model);
    text_free(&k->text);
    engine_close(&k->engine);
}

int eval_kl(int argc, char **argv) {
    kl_options o = {.model = model_options_defaults(), .base_weights = (ag_dtype)LIKE_THE_MODEL};
    o.model.prefill_chunk = CHUNK;
    command_line line = {
        .usage = "eval kl [-m MODEL] (FILE | -p TEXT | --prompt-ids N,N,...) [OPTION]...",
        .description = description,
        .examples = examples,
        .groups = {prompt_group(&o.text.prompt), windows_group(&o.text),
                   settings_group(&o.settings), OPTION_GROUP("Base", defs, &o), base_group(&o.base),
                   table_group(&o.format), eviction_rules_group(&o.model.eviction),
                   model_group(&o.model), context_group(&o.model),
                   k_rotation_group(&o.settings.k_rotation)},
        .max_operands = 1,
    };
    add_machine_groups(&line, &o.model);
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    code = check(&line, &o);
    if (code != EXIT_DONE) return code;
    interrupt_install();
    kl k = {
        .o = &o,
        .table = {.format = o.format, .columns = columns, .n = sizeof columns / sizeof columns[0]},
    };
    code = text_open(&k.text, &o.text, &k.engine, &o.model, false);
    if (code == EXIT_DONE) code = load(&k);
    if (code == EXIT_DONE) code = open_base(&k);
    if (code == EXIT_DONE) code = open_rows(&k);
    if (code == EXIT_DONE) code = compare_text(&k);
    if (code == EXIT_DONE) code = report(&k);
    close_all(&k);
    return code;
}
