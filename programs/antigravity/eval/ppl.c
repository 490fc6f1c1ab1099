/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval ppl: perplexity of a text, exp of the mean negative log-likelihood of its
 * tokens. */
#include "../command.h"
#include "../support/json_out.h"
#include "../support/statistics.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"
#include "clock.h"
#include "eval.h"
#include "text_windows.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct ppl_options {
    model_options model;
    text_options text;
    bool stream; /* one session for the entire text */
    uint32_t bucket;
    bool json;
} ppl_options;

/* Results of consecutive tokens, and the cache's memory after them. */
typedef struct bucket {
    size_t n; /* tokens predicted */
    double nll, seconds;
    size_t kv_bytes, anonymous; /* bytes */
} bucket;

typedef struct ppl {
    const ppl_options *o;
    engine engine;
    eval_text text;
    double *nll; /* per predicted token */
    size_t n_nll;
    const int32_t *ids; /* the current window */
    size_t n_ids, done_before;
    bucket *buckets; /* [n_buckets], with --stream */
    size_t n_buckets;
    double bucket_begin; /* clock time */
    size_t kv_bytes;     /* maximum memory of the cache after a chunk */
} ppl;

#define OPTION_STRUCT ppl_options
static const option_def defs[] = {
    {.name = "stream",
     SETS_FLAG(stream),
     .help = "read the text in one session, from which the policy evicts"},
    {.name = "bucket",
     SETS_U32("N", bucket, 1, INT32_MAX),
     .help = "tokens per line of --stream's table"},
    {.name = "json",
     SETS_FLAG(json),
     .help = "print one JSON object: ppl, mean_nll, stderr, tokens, nll (of every token), ..."},
};

static const char description[] =
    "Measures how well a model predicts a text: perplexity over disjoint windows of\n"
    "--max-seq-len tokens, each starting with the BOS token. Every other token is predicted\n"
    "from those before it in its window; the last window may be shorter. With --stream the text\n"
    "is one window; --eviction-policy evicts what does not fit, after every --prefill-chunk\n"
    "tokens.";

static const char examples[] =
    "  antigravity eval ppl novel.txt --windows 8\n"
    "  antigravity eval ppl -m ~/models/Llama-3.2-1B --weights q8_0 -c 512 wiki.test.raw\n"
    "  antigravity eval ppl novel.txt --stream --eviction-policy keydiff --kv-budget 512\n"
    "  antigravity eval ppl --prompt-ids 4090,790,650,258,469 --json";

static bool evicts(const ppl_options *o) {
    const ag_eviction_policy *policy = o->model.eviction.params.policy;
    return policy && policy->select;
}

static int check(const command_line *line, ppl_options *o) {
    ag_eviction_params *p = &o->model.eviction.params;
    int code = text_operand(line, &o->text);
    if (code == EXIT_DONE) code = model_options_check(&o->model);
    if (code != EXIT_DONE) return code;
    code = text_evict_in_chunks(p);
    if (code != EXIT_DONE) return code;
    if (o->stream && o->text.max_windows)
        return complain_usage(
            "--stream and --windows exclude each other; --tokens limits a stream");
    if (!o->model.eviction.watch) p->memory.threshold_bytes = 0;
    return EXIT_DONE;
}

static int prepare(ppl *p, size_t slots) {
    const ppl_options *o = p->o;
    if (o->stream && !evicts(o) && p->text.n_tokens > slots)
        return complain_usage("the stream is too long: %zu tokens, the cache holds %zu and does "
                              "not evict; use --eviction-policy or --tokens",
                              p->text.n_tokens, slots);
    p->nll = malloc(p->text.n_tokens * sizeof *p->nll);
    p->n_buckets = o->stream ? (p->text.n_tokens + o->bucket - 1) / o->bucket : 0;
    p->buckets = calloc(p->n_buckets + 1, sizeof *p->buckets);
    return p->nll && p->buckets ? EXIT_DONE : complain_no_memory();
}

/* Adds token i; `nll` is that of the next token. */
static void fill_bucket(ppl *p, size_t i, double nll) {
    bucket *b = &p->buckets[i / p->o->bucket];
    b->n++;
    b->nll += nll;
    if ((i + 1) % p->o->bucket && i + 2 < p->n_ids) return;
    ag_memory_usage memory;
    double now = clock_s();
    ag_process_memory(&memory);
    b->seconds = now - p->bucket_begin;
    b->kv_bytes = p->kv_bytes;
    b->anonymous = memory.anonymous;
    p->bucket_begin = now;
}

static bool on_logits(void *user, size_t i, const float *logits) {
    ppl *p = user;
    cache_track(p->engine.session, &p->kv_bytes);
    if (i + 1 < p->n_ids) {
        double nll = log_sum_exp(logits, p->engine.info.n_vocab) - (double)logits[p->ids[i + 1]];
        p->nll[p->n_nll++] = nll;
        if (p->n_buckets) fill_bucket(p, i, nll);
    }
    return progress_update(NULL, p->done_before + i + 1, p->text.n_tokens);
}

static int score_windows(ppl *p) {
    ag_error err;
    ag_status status = AG_OK;
    progress_begin("scoring");
    p->bucket_begin = clock_s();
    for (size_t w = 0; w < p->text.n_windows && status == AG_OK; w++) {
        p->ids = text_window(&p->text, w, &p->n_ids);
        ag_session_reset(p->engine.session);
        status = ag_session_score(p->engine.session, p->ids, p->n_ids, on_logits, p, &err);
        p->done_before += p->n_ids;
    }
    progress_end();
    return eval_result(status, &err);
}

/* ---- results ---- */

static json_t *list_nll(const ppl *p) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < p->n_nll; i++) json_append(&list, json_number(p->nll[i]));
    return list;
}

static json_t *list_buckets(const ppl *p) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < p->n_buckets && p->buckets[i].n; i++) {
        const bucket *b = &p->buckets[i];
        json_append(&list, JSON_OBJECT({"begin", json_integer((json_int_t)(i * p->o->bucket))},
                                       {"tokens", json_integer((json_int_t)b->n)},
                                       {"mean_nll", json_number(b->nll / (double)b->n)},
                                       {"kv_bytes", json_integer((json_int_t)b->kv_bytes)},
                                       {"anonymous_bytes", json_integer((json_int_t)b->anonymous)},
                                       {"tok_per_s", json_number((double)b->n / b->seconds)}));
    }
    return list;
}

static json_t *report_json(const ppl *p, mean_error s) {
    const model_options *m = &p->o->model;
    const ag_eviction_stats *left = ag_session_evictions(p->engine.session);
    const json_field fields[] = {
        {"measure", json_string(p->o->stream ? "stream" : "ppl")},
        {"ppl", json_number(exp(s.mean))},
        {"ppl_stderr", json_number(exp(s.mean) * s.error)},
        {"mean_nll", json_number(s.mean)},
        {"stderr", json_number(s.error)},
        {"tokens", json_integer((json_int_t)p->n_nll)},
        {"windows", json_integer((json_int_t)p->text.n_windows)},
        {"window", json_integer((json_int_t)p->text.window)},
        {"bos", json_boolean((p->text.bos.n > 0))},
        {"model", json_text(p->engine.dir, strlen(p->engine.dir))},
        {"weights", json_string(weights_name(m->weights, &p->engine.info))},
        {"k_type", json_string(ag_dtype_name(m->k_type))},
        {"v_type", json_string(ag_dtype_name(m->v_type))},
        {"k_rotated", json_boolean(keys_rotated(m->k_rotation, m->k_type))},
        {"policy", json_string(eviction_policy_name(&m->eviction))},
        {"head_budget", json_string(ag_head_budget_name(m->eviction.params.head_budget))},
        {"budget_tokens", json_integer(ag_session_kv_budget(p->engine.session))},
        {"max_positions", json_integer(p->engine.info.max_positions)},
        {"kv_bytes", json_integer((json_int_t)p->kv_bytes)},
        {"evictions", json_integer((json_int_t)left->n_evictions)},
        {"buckets", list_buckets(p)},
        {"nll", list_nll(p)},
    };
    return JSON_FIELDS(fields);
}

static void print_buckets(const ppl *p) {
    if (!p->n_buckets) return;
    printf("\n| from | tokens | mean nll | perplexity | cache | own memory | tok/s |\n"
           "|---:|---:|---:|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < p->n_buckets && p->buckets[i].n; i++) {
        const bucket *b = &p->buckets[i];
        char cache[32], process[32];
        double mean = b->nll / (double)b->n;
        printf("| %zu | %zu | %.4f | %.3f | %s | %s | %.0f |\n", i * p->o->bucket, b->n, mean,
               exp(mean), format_bytes((double)b->kv_bytes, cache, sizeof cache),
               format_bytes((double)b->anonymous, process, sizeof process),
               (double)b->n / b->seconds);
    }
}

static int report(const ppl *p) {
    const model_options *m = &p->o->model;
    mean_error s = mean_of(p->nll, p->n_nll);
    if (p->o->json) return json_print(report_json(p, s));
    char cache[32];
    printf("perplexity %.4f +- %.4f\n", exp(s.mean), exp(s.mean) * s.error);
    printf("mean nll   %.5f +- %.5f\n", s.mean, s.error);
    printf("tokens     %zu in %zu window%s of %zu, weights %s, cache %s,%s\n", p->n_nll,
           p->text.n_windows, p->text.n_windows == 1 ? "" : "s", p->text.window,
           weights_name(m->weights, &p->engine.info), ag_dtype_name(m->k_type),
           ag_dtype_name(m->v_type));
    if (evicts(p->o)) {
        const ag_head_budget heads = m->eviction.params.head_budget;
        printf("cache      %s%s, %" PRIu32 " tokens after an eviction, at most %s\n",
               eviction_policy_name(&m->eviction),
               heads == AG_HEAD_BUDGET_EVEN       ? ""
               : heads == AG_HEAD_BUDGET_ADAPTIVE ? " with adaptive heads"
               : heads == AG_HEAD_BUDGET_VALUES   ? " with adaptive heads, values counted"
                                                  : " with heads by shares",
               ag_session_kv_budget(p->engine.session),
               format_bytes((double)p->kv_bytes, cache, sizeof cache));
    }
    print_buckets(p);
    return EXIT_DONE;
}

int eval_ppl(int argc, char **argv) {
    ppl_options o = {.model = model_options_defaults(), .bucket = 512};
    command_line line = {
        .usage = "eval ppl [-m MODEL] (FILE | -p TEXT | --prompt-ids N,N,...) [OPTION]...",
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
    code = check(&line, &o);
    if (code != EXIT_DONE) return code;
    interrupt_install();
    ppl p = {.o = &o};
    code = text_open(&p.text, &o.text, &p.engine, &o.model, o.stream);
    uint32_t slots = code == EXIT_DONE ? context_length(&o.model, &p.engine.info) : 0;
    if (code == EXIT_DONE) code = prepare(&p, slots);
    if (code == EXIT_DONE) code = engine_load_session(&p.engine, &o.model, slots);
    if (code == EXIT_DONE) code = score_windows(&p);
    if (code == EXIT_DONE) code = report(&p);
    free(p.nll);
    free(p.buckets);
    text_free(&p.text);
    engine_close(&p.engine);
    return code;
}
