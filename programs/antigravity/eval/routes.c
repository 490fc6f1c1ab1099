/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval routes: experts that the tokens of a text choose. */
#include "../command.h"
#include "../support/json_out.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"
#include "eval.h"
#include "text_windows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct routes_options {
    model_options model;
    text_options text;
    bool json;
} routes_options;

/* Choices of one layer. */
typedef struct layer_routes {
    uint64_t *counts; /* [n_experts] tokens that chose the expert; NULL: no token chose any */
    uint64_t n;       /* tokens */
    json_t *experts, *weights; /* lists for each token, with --json */
} layer_routes;

typedef struct routes {
    const routes_options *o;
    engine engine;
    eval_text text;
    layer_routes *layers; /* [n_layers] */
    size_t done_before;
    bool out_of_memory;
} routes;

#define OPTION_STRUCT routes_options
static const option_def defs[] = {
    {.name = "json",
     SETS_FLAG(json),
     .help = "print one JSON object: for each layer the chosen experts and their weights, token by "
             "token, and counts"},
};

static const char description[] =
    "Shows which experts the tokens of a text choose, in windows of --max-seq-len tokens: for\n"
    "each layer how many experts were used, and the share of choices of the busiest quarter of\n"
    "them. With --json all choices are listed, the experts of a token in ascending order.";

static const char examples[] = "  antigravity eval routes -m model.gguf novel.txt --tokens 1024\n"
                               "  antigravity eval routes -m model.gguf -p \"A fox\" --json";

/* ---- counting ---- */

static json_t *expert_list(const ag_chosen_experts *c) {
    json_t *list = json_array();
    for (uint32_t k = 0; list && k < c->n; k++) json_append(&list, json_integer(c->experts[k]));
    return list;
}

static json_t *weight_list(const ag_chosen_experts *c) {
    json_t *list = json_array();
    for (uint32_t k = 0; list && k < c->n; k++) json_append(&list, json_float(c->weights[k]));
    return list;
}

static void count_chosen(void *user, const ag_chosen_experts *c) {
    routes *r = user;
    layer_routes *layer = &r->layers[c->layer];
    if (!layer->counts) layer->counts = calloc(r->engine.info.n_experts, sizeof *layer->counts);
    if (!layer->counts) {
        r->out_of_memory = true;
        return;
    }
    layer->n++;
    for (uint32_t k = 0; k < c->n; k++) layer->counts[c->experts[k]]++;
    if (!r->o->json) return;
    if (!layer->experts) layer->experts = json_array();
    if (!layer->weights) layer->weights = json_array();
    json_append(&layer->experts, expert_list(c));
    json_append(&layer->weights, weight_list(c));
}

static bool on_logits(void *user, size_t i, const float *logits) {
    const routes *r = user;
    (void)logits;
    return progress_update(NULL, r->done_before + i + 1, r->text.n_tokens) && !r->out_of_memory;
}

static int read_windows(routes *r) {
    ag_error err;
    ag_status status = AG_OK;
    progress_begin("reading");
    ag_model_observe_experts(r->engine.model, count_chosen, r);
    for (size_t w = 0; w < r->text.n_windows && status == AG_OK; w++) {
        size_t n;
        const int32_t *ids = text_window(&r->text, w, &n);
        ag_session_reset(r->engine.session);
        status = ag_session_score(r->engine.session, ids, n, on_logits, r, &err);
        r->done_before += n;
    }
    ag_model_observe_experts(r->engine.model, NULL, NULL);
    progress_end();
    if (r->out_of_memory) return complain_no_memory();
    return eval_result(status, &err);
}

/* ---- results ---- */

static int descending(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

/* Sorts the counts. Returns the share of the busiest quarter. */
static double busiest_quarter(uint64_t *counts, uint32_t n, uint32_t *n_used) {
    uint64_t all = 0, most = 0;
    qsort(counts, n, sizeof *counts, descending);
    *n_used = 0;
    for (uint32_t e = 0; e < n; e++) {
        all += counts[e];
        if (e < (n + 3) / 4) most += counts[e];
        *n_used += counts[e] > 0;
    }
    return all ? (double)most / (double)all : 0;
}

static void print_layers(const routes *r) {
    const uint32_t n = r->engine.info.n_experts;
    printf("tokens     %zu in %zu window%s, %" PRIu32 " of %" PRIu32 " experts each\n\n",
           r->done_before, r->text.n_windows, r->text.n_windows == 1 ? "" : "s",
           r->engine.info.n_experts_used, n);
    printf(
        "| layer | experts used | busiest quarter | most tokens of one |\n|---:|---:|---:|---:|\n");
    for (uint32_t l = 0; l < r->engine.info.n_layers; l++) {
        layer_routes *layer = &r->layers[l];
        uint32_t n_used;
        if (!layer->counts) continue;
        const double share = busiest_quarter(layer->counts, n, &n_used);
        printf("| %" PRIu32 " | %" PRIu32 " | %.1f %% | %.1f %% |\n", l, n_used, 100 * share,
               100 * (double)layer->counts[0] / (double)layer->n);
    }
}

static json_t *layer_json(const routes *r, layer_routes *layer) {
    json_t *counts = json_array();
    for (uint32_t e = 0; counts && e < r->engine.info.n_experts; e++)
        json_append(&counts, json_integer((json_int_t)layer->counts[e]));
    json_t *experts = layer->experts, *weights = layer->weights;
    layer->experts = layer->weights = NULL; /* the object owns them */
    return JSON_OBJECT({"experts", experts}, {"weights", weights}, {"counts", counts});
}

static int print_json(const routes *r) {
    json_t *layers = json_object();
    for (uint32_t l = 0; layers && l < r->engine.info.n_layers; l++) {
        char name[16];
        if (!r->layers[l].counts) continue;
        snprintf(name, sizeof name, "%" PRIu32, l);
        json_object_set_new(layers, name, layer_json(r, &r->layers[l]));
    }
    return json_print(JSON_OBJECT(
        {"measure", json_string("routes")}, {"tokens", json_integer((json_int_t)r->done_before)},
        {"experts", json_integer(r->engine.info.n_experts)},
        {"experts_used", json_integer(r->engine.info.n_experts_used)}, {"layers", layers}));
}

static void free_layers(routes *r) {
    for (uint32_t l = 0; r->layers && l < r->engine.info.n_layers; l++) {
        free(r->layers[l].counts);
        json_decref(r->layers[l].experts);
        json_decref(r->layers[l].weights);
    }
    free(r->layers);
}

/* ---- the command ---- */

static int prepare(routes *r) {
    if (!r->engine.info.n_experts)
        return complain_usage("%s has no experts; a mixture of experts is needed", r->engine.dir);
    r->layers = calloc(r->engine.info.n_layers, sizeof *r->layers);
    return r->layers ? EXIT_DONE : complain_no_memory();
}

int eval_routes(int argc, char **argv) {
    routes_options o = {.model = model_options_defaults()};
    command_line line = {
        .usage = "eval routes [-m MODEL] (FILE | -p TEXT | --prompt-ids N,N,...) [OPTION]...",
        .description = description,
        .examples = examples,
        .groups = {prompt_group(&o.text.prompt), windows_group(&o.text),
                   OPTION_GROUP("Measure", defs, &o), model_group(&o.model)},
        .max_operands = 1,
    };
    add_cache_groups(&line, &o.model);
    add_machine_groups(&line, &o.model);
    int code = options_parse(&line, argc, argv);
    if (code != OPTIONS_RUN) return code;
    code = text_operand(&line, &o.text);
    if (code == EXIT_DONE) code = model_options_check(&o.model);
    if (code != EXIT_DONE) return code;
    interrupt_install();
    routes r = {.o = &o};
    code = text_open(&r.text, &o.text, &r.engine, &o.model, false);
    uint32_t slots = code == EXIT_DONE ? context_length(&o.model, &r.engine.info) : 0;
    if (code == EXIT_DONE) code = prepare(&r);
    if (code == EXIT_DONE) code = engine_load_session(&r.engine, &o.model, slots);
    if (code == EXIT_DONE) code = read_windows(&r);
    if (code == EXIT_DONE && o.json) code = print_json(&r);
    else if (code == EXIT_DONE) print_layers(&r);
    free_layers(&r);
    text_free(&r.text);
    engine_close(&r.engine);
    return code;
}
