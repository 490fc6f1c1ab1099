/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity calibrate: measures how much each KV head contributes when the model repeats a
 * text. */
#include "command.h"
#include "eval/text_windows.h"
#include "model/engine.h"
#include "model/head_file.h"
#include "options/replay_options.h"
#include "support/json_out.h"
#include "terminal/interrupt.h"
#include "terminal/output.h"
#include "terminal/progress.h"

#include <antigravity/antigravity.h>
#include <antigravity/kv_cache.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MIN_TOKENS = 64 };

typedef struct calibration {
    model_options model;
    text_options text;
    const char *out;
} calibration;

#define OPTION_STRUCT calibration
static const option_def defs[] = {
    {.name = "output",
     .letter = 'o',
     SETS_NAME("FILE", out),
     .help = "file to write or replace (default: head_budget.json in the model's directory; for a "
             "file MODEL.gguf, MODEL.gguf.head_budget.json)"},
};

static head_table table_of(const ag_session *s) {
    const ag_kv_cache *cache = ag_session_kv_cache((ag_session *)(uintptr_t)s);
    head_table t = {.n_layers = 0};
    const ag_kv_layer *layer;
    while (t.n_layers < HEAD_FILE_LAYERS && (layer = ag_kv_cache_layer(cache, t.n_layers)))
        t.n_heads[t.n_layers++] = layer->n_kv_heads;
    return t;
}

static size_t heads_in(const head_table *t) {
    size_t n = 0;
    for (uint32_t l = 0; l < t->n_layers; l++) n += t->n_heads[l];
    return n;
}

/* Scales the weights of each layer to a sum of 1; to equal shares if all are 0. */
static void make_shares(const head_table *t, float *weights) {
    for (uint32_t l = 0; l < t->n_layers; weights += t->n_heads[l++]) {
        double sum = 0;
        for (uint32_t h = 0; h < t->n_heads[l]; h++) sum += (double)weights[h];
        for (uint32_t h = 0; h < t->n_heads[l]; h++)
            weights[h] = sum > 0 ? (float)(weights[h] / sum) : 1 / (float)t->n_heads[l];
    }
}

static ag_status measure(const engine *e, const int32_t *ids, size_t n, float *maxima,
                         size_t n_heads, ag_error *err) {
    ag_replay_request request = {.suffix = {.n = 0}};
    progress_begin("reading the text");
    ag_status st = ag_session_prefill(e->session, ids, n, progress_update, NULL, err);
    progress_end();
    if (st == AG_OK) st = replay_request(e, &request, err);
    if (st == AG_OK) {
        ag_compress_params p = ag_replay_request_params(&request);
        p.progress = progress_update;
        progress_begin("replaying it");
        st = ag_session_head_maxima(e->session, ids, n, &p, maxima, n_heads, err);
        progress_end();
    }
    ag_replay_request_free(&request);
    return st;
}

/* ---- the file ---- */

static bool name_output(const engine *e, char *path, size_t cap) {
    struct stat st;
    const bool is_dir = stat(e->dir, &st) == 0 && S_ISDIR(st.st_mode);
    const int n = snprintf(path, cap, "%s%shead_budget.json", e->dir, is_dir ? "/" : ".");
    return n > 0 && (size_t)n < cap;
}

/* Replaces the file atomically. */
static int write_file(const char *path, json_t *root) {
    char temp[PATH_MAX + 8];
    int failed = root ? 0 : ENOMEM;
    snprintf(temp, sizeof temp, "%s.part", path);
    if (!failed && json_dump_file(root, temp, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0)
        failed = errno ? errno : EIO;
    if (!failed && rename(temp, path) != 0) failed = errno;
    json_decref(root);
    if (!failed) return EXIT_DONE;
    complain("%s: %s", path, strerror(failed));
    remove(temp);
    return EXIT_FAILED;
}

static int run(engine *e, eval_text *text, const calibration *o) {
    char path[PATH_MAX];
    ag_error err = {0};
    size_t n;
    int code = text_open(text, &o->text, e, &o->model, false);
    if (code == EXIT_DONE) code = engine_need_tokenizer(e, "the request to repeat must be encoded");
    if (code != EXIT_DONE) return code;
    const int32_t *ids = text_window(text, 0, &n);
    if (n < MIN_TOKENS)
        return complain_usage("the text is too short: %zu tokens; calibration needs %d", n,
                              MIN_TOKENS);
    if (!o->out && !name_output(e, path, sizeof path))
        return complain_failure("%s: the path is too long", e->dir);
    code = engine_load_session(e, &o->model, context_length(&o->model, &e->info));
    if (code != EXIT_DONE) return code;
    const head_table table = table_of(e->session);
    float *shares = calloc(heads_in(&table) + 1, sizeof *shares);
    if (!shares) return complain_no_memory();
    const ag_status st = measure(e, ids, n, shares, heads_in(&table), &err);
    if (st == AG_OK) make_shares(&table, shares);
    const char *out = o->out ? o->out : path;
    code = st == AG_OK          ? write_file(out, head_file_of(&table, shares, n))
           : st == AG_CANCELLED ? EXIT_DONE
                                : complain_error(&err);
    if (st == AG_OK && code == EXIT_DONE)
        printf("%s: %zu heads of %u layers, by %zu tokens\n", out, heads_in(&table),
               (unsigned)table.n_layers, n);
    free(shares);
    return code;
}

int command_calibrate(int argc, char **argv) {
    calibration o = {.model = model_options_defaults()};
    command_line line = {
        .usage = "calibrate [-m MODEL] (TEXT.txt | -f TEXT.txt | -p TEXT) [-o FILE] [OPTION]...",
        .description = "Lets a model repeat the start of a text, at most --max-seq-len tokens,\n"
                       "and writes how much each KV head contributes: the largest attention\n"
                       "weight that it gives to each token, as a share of its layer. With\n"
                       "--head-budget FILE any policy divides a layer's KV cache by these\n"
                       "shares.",
        .examples =
            "  antigravity calibrate -m smollm2.gguf sample.txt\n"
            "  antigravity generate -m smollm2.gguf -f long.txt --eviction-policy keydiff \\\n"
            "    --kv-budget 25% --head-budget smollm2.gguf.head_budget.json",
        .groups = {prompt_group(&o.text.prompt), OPTION_GROUP("Files", defs, &o),
                   model_group(&o.model), context_group(&o.model), kv_type_group(&o.model)},
        .max_operands = 1,
    };
    add_machine_groups(&line, &o.model);
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    code = text_operand(&line, &o.text);
    if (code == EXIT_DONE) code = model_options_check(&o.model);
    if (code != EXIT_DONE) return code;
    interrupt_install();
    engine e = {0};
    eval_text text = {0};
    code = run(&e, &text, &o);
    text_free(&text);
    engine_close(&e);
    return code;
}
