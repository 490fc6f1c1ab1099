/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "../../command.h"
#include "../../support/statistics.h"
#include "../../terminal/interrupt.h"
#include "../../terminal/output.h"
#include "../eval.h"
#include "clock.h"
#include "score.h"

#include <antigravity/kv_cache.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* TIMED_TOKENS: first tokens of each answer, whose speed is measured. */
enum { TIMED_TOKENS = 8, REPLAY_EXTRA = 128, MAX_ANSWERS = 1 + RULER_METHODS * RULER_RATIOS };

/* Returns rules that read without evicting. All sessions use an eviction policy, so they protect
 * the same attention sinks and can be forked from each other. */
static ag_eviction_params reading_rules(const ruler_runner *r, const ag_eviction_policy *policy) {
    ag_eviction_params e = eviction_params(&r->options->eviction);
    e.policy = policy ? policy : ag_eviction_policy_find("streaming");
    if (!policy) e.head_budget = AG_HEAD_BUDGET_EVEN;
    e.budget_tokens = r->max_seq_len - 1;
    e.budget_bytes = 0;
    e.budget_ratio = 0;
    e.prefill = AG_KV_PREFILL_WHOLE;
    e.memory.threshold_bytes = 0;
    return e;
}

static ag_eviction_params evicting_rules(const ruler_runner *r, const ag_eviction_policy *policy,
                                         uint32_t n_keep) {
    ag_eviction_params e = reading_rules(r, policy);
    e.budget_tokens = n_keep;
    if (r->options->verbose) e.on_eviction = eviction_report;
    return e;
}

/* Returns whether the policy scores tokens by the prompt's last queries or by keys only. */
static bool needs_only_the_end(const ruler_method *method) {
    if (!method->policy) return true;
    switch (method->policy->importance) {
    case AG_IMPORTANCE_NONE:
    case AG_IMPORTANCE_KEYS:
    case AG_IMPORTANCE_WINDOW:
    case AG_IMPORTANCE_NEWEST:
        return true;
    default:
        return false;
    }
}

/* A replay needs a slot for each token it repeats. */
uint32_t ruler_slots(const ruler_settings *s, const ag_model_info *info, uint32_t n_tokens) {
    bool replays = false;
    for (size_t i = 0; i < s->n_methods; i++) replays = replays || !s->methods[i].policy;
    const uint64_t n = replays ? 2 * (uint64_t)n_tokens + REPLAY_EXTRA : n_tokens;
    return n < info->max_positions ? (uint32_t)n : info->max_positions;
}

ag_session_params ruler_session_params(const ruler_runner *r) {
    ag_session_params p = session_params(r->options, r->max_seq_len);
    p.eviction = reading_rules(r, NULL);
    return p;
}

size_t ruler_n_sessions(const ruler_runner *r) {
    const ruler_settings *s = r->settings;
    double shares = 0; /* retained shares of the full cache, summed over the ratios */
    size_t n = 3;      /* reader, full cache, and the fork being reduced */
    for (size_t i = 0; i < s->n_ratios; i++) shares += 1 - s->ratios[i];
    for (size_t i = 0; i < s->n_methods; i++) n += !needs_only_the_end(&s->methods[i]);
    return n + (size_t)(shares * (double)s->n_methods + 1);
}

static ag_status open_reader(ruler_runner *r, size_t i, const ag_eviction_policy *policy,
                             ag_error *err) {
    ag_session_params p = ruler_session_params(r);
    p.eviction = reading_rules(r, policy);
    return ag_session_create(r->engine->model, &p, &r->readers[i], err);
}

int ruler_open(ruler_runner *r) {
    ag_error err;
    ag_status st = open_reader(r, 0, NULL, &err);
    for (size_t i = 0; i < r->settings->n_methods && st == AG_OK; i++) {
        const ruler_method *method = &r->settings->methods[i];
        if (!needs_only_the_end(method)) st = open_reader(r, 1 + i, method->policy, &err);
    }
    if (st == AG_OK) st = ag_replay_request_make(r->engine->tokenizer, NULL, &r->request, &err);
    interrupt_register(r->readers[0]);
    return st == AG_OK ? EXIT_DONE : complain_settings(&err);
}

void ruler_close(ruler_runner *r) {
    interrupt_unregister(r->readers[0]);
    for (size_t i = 0; i < 1 + RULER_METHODS; i++) ag_session_destroy(r->readers[i]);
    ag_replay_request_free(&r->request);
}

/* ---- answers ---- */

/* State of the answer with one setting. */
typedef struct answer_run {
    const ruler_method *method; /* NULL: the full cache */
    ag_session *session;        /* owned */
    ag_decoder *decoder;        /* owned */
    ag_text text;               /* owned */
    uint32_t n;                 /* tokens */
    int32_t newest;             /* last token, not consumed yet */
    bool done;
    ruler_result *out;
} answer_run;

typedef struct prompt_run {
    ruler_runner *r;
    const ruler_task *task;
    const ruler_prompt *prompt;
    size_t n_read;    /* tokens before the eviction */
    size_t n_shared;  /* tokens that the first reader reads */
    size_t n_chunked; /* tokens that the other readers read: full chunks, so that summed scores
                         equal those of one prefill */
    void (*step)(void *user);
    void *user;
    answer_run all[MAX_ANSWERS];
    size_t n_all;
} prompt_run;

static void update_score(const prompt_run *a, answer_run *one) {
    const ruler_text *t = &a->prompt->text;
    const char *references[RULER_REFERENCES];
    for (size_t i = 0; i < t->n_references; i++) references[i] = t->references[i];
    if (one->text.len) one->out->score = ruler_score(one->text.data, references, t->n_references);
}

/* Chooses the next token greedily. An answer is done when the model ends it, it has the maximum
 * length, or it contains all references. */
static ag_status choose_token(prompt_run *a, answer_run *one, ag_error *err) {
    const ag_model_info *info = &a->r->engine->info;
    one->newest = (int32_t)likeliest(ag_session_logits(one->session), info->n_vocab);
    const bool ended = prompt_ends_answer(a->r->writer, info, one->newest);
    ag_status st = AG_OK;
    if (!ended) st = ag_decoder_push(one->decoder, one->newest, &one->text, err);
    update_score(a, one);
    one->n += !ended;
    one->done = ended || one->n == a->task->n_answer || one->out->score >= 1;
    if (one->done && st == AG_OK) st = ag_decoder_flush(one->decoder, &one->text, err);
    if (!one->done) return st;
    update_score(a, one);
    a->step(a->user);
    return st;
}

/* Generates the first tokens alone, to measure the speed of one session. */
static ag_status begin_answer(prompt_run *a, answer_run *one, ag_error *err) {
    ag_status st = ag_decoder_create(a->r->engine->tokenizer, false, true, &one->decoder, err);
    if (st == AG_OK) st = choose_token(a, one, err);
    while (st == AG_OK && !one->done && one->n < TIMED_TOKENS) {
        const double begin = clock_s();
        st = ag_session_decode(one->session, one->newest, err);
        one->out->decode_s += clock_s() - begin;
        one->out->n_decoded++;
        if (st == AG_OK) st = choose_token(a, one, err);
    }
    return st;
}

/* Generates the remaining tokens of all answers in batches: each step reads the weights once. */
static ag_status finish_answers(prompt_run *a, ag_error *err) {
    ag_status st = AG_OK;
    while (st == AG_OK && !interrupted()) {
        ag_session *sessions[MAX_ANSWERS];
        answer_run *running[MAX_ANSWERS];
        int32_t ids[MAX_ANSWERS];
        size_t n = 0;
        for (size_t i = 0; i < a->n_all; i++) {
            if (a->all[i].done) continue;
            running[n] = &a->all[i];
            sessions[n] = a->all[i].session;
            ids[n++] = a->all[i].newest;
        }
        if (!n) break;
        st = ag_session_decode_batch(sessions, ids, n, err);
        for (size_t i = 0; i < n && st == AG_OK; i++) st = choose_token(a, running[i], err);
    }
    return st;
}

static void print_answer(const prompt_run *a, const answer_run *one) {
    char *line = strdup(one->text.len ? one->text.data : "");
    if (line) {
        complain("%s, %s, %" PRIu32 " of %" PRIu32 " tokens, score %.2f: %s", a->r->label,
                 one->method ? one->method->name : "full cache", one->out->n_retained,
                 one->out->n_read, one->out->score, make_printable(line));
    }
    free(line);
}

static void free_answers(prompt_run *a) {
    for (size_t i = 0; i < a->n_all; i++) {
        ag_session_destroy(a->all[i].session);
        ag_decoder_destroy(a->all[i].decoder);
        ag_text_free(&a->all[i].text);
    }
}

/* ---- one setting ---- */

/* Retains the tokens that are needed to repeat the context. */
static ag_status compress_context(const prompt_run *a, ag_session *s, const ruler_method *method,
                                  double ratio, ruler_result *out, ag_error *err) {
    const ruler_runner *r = a->r;
    const written_prompt *w = &a->prompt->written;
    ag_compress_report report;
    ag_compress_params p = ag_replay_request_params(&r->request);
    p.keep_ratio = (float)(1 - ratio);
    p.replay = (float)method->replay;
    p.suffix = w->ids.data + w->n_question;
    p.n_suffix = w->n_message - w->n_question;
    ag_status st = ag_session_compress(s, w->ids.data, a->n_read, &p, &report, err);
    if (st != AG_OK) return st;
    out->n_retained = (uint32_t)(report.n_kept / report.n_heads);
    out->kv_bytes = ag_kv_cache_memory_usage_bytes(ag_session_kv_cache(s));
    out->evict_s = report.seconds;
    out->n_replayed = report.n_replayed;
    return AG_OK;
}

/* Reads up to the eviction, evicts, then reads the remaining prompt. */
static ag_status read_remaining(prompt_run *a, answer_run *one, ag_session *reduced, double ratio,
                                ag_error *err) {
    const ag_ids *ids = &a->prompt->written.ids;
    const ag_eviction_params unlimited = reading_rules(a->r, NULL);
    const size_t first = ag_session_position(reduced), n_remaining = ids->n - a->n_read;
    ag_status st =
        ag_session_prefill(reduced, ids->data + first, a->n_read - first, NULL, NULL, err);
    ag_kv_cache *cache = ag_session_kv_cache(reduced);
    one->out->n_read = (uint32_t)a->n_read;
    const ag_eviction_stats *left = ag_session_evictions(reduced);
    one->out->n_retained = left->n_evictions ? left->last.n_kept : ag_kv_cache_length(cache);
    one->out->kv_bytes = ag_kv_cache_memory_usage_bytes(cache);
    one->out->evict_s = left->seconds;
    if (st == AG_OK && one->method && !one->method->policy)
        st = compress_context(a, reduced, one->method, ratio, one->out, err);
    if (st == AG_OK) st = ag_session_fork_with(reduced, &unlimited, &one->session, err);
    if (st == AG_OK && n_remaining)
        st = ag_session_prefill(one->session, ids->data + a->n_read, n_remaining, NULL, NULL, err);
    return st;
}

/* Runs the prompt with one setting; method NULL: the full cache. */
static ag_status run_setting(prompt_run *a, ag_session *reader, const ruler_method *method,
                             double ratio, ruler_result *out, ag_error *err) {
    const double budget = (double)a->n_read * (1 - ratio);
    const uint32_t n_keep = budget >= 1 ? (uint32_t)budget : 1;
    const ag_eviction_params rules = method && method->policy
                                         ? evicting_rules(a->r, method->policy, n_keep)
                                         : reading_rules(a->r, NULL);
    ag_session *reduced = NULL;
    answer_run *one = &a->all[a->n_all++];
    *out = (ruler_result){.score = 0};
    *one = (answer_run){.method = method, .out = out};
    ag_status st = ag_session_fork_with(reader, &rules, &reduced, err);
    if (st == AG_OK) st = read_remaining(a, one, reduced, ratio, err);
    ag_session_destroy(reduced);
    return st == AG_OK ? begin_answer(a, one, err) : st;
}

/* ---- all of them ---- */

static ag_status read_prefix(const prompt_run *a, ag_session *reader, size_t n, ag_error *err) {
    ag_session_reset(reader);
    if (!n) return AG_OK;
    return ag_session_prefill(reader, a->prompt->written.ids.data, n, NULL, NULL, err);
}

static ag_status run_methods(prompt_run *a, ruler_result *results, ag_error *err) {
    const ruler_settings *s = a->r->settings;
    ag_status st = AG_OK;
    for (size_t i = 0; i < s->n_methods && st == AG_OK; i++) {
        ag_session *own = a->r->readers[1 + i], *reader = own ? own : a->r->readers[0];
        if (own) st = read_prefix(a, own, a->n_chunked, err);
        for (size_t k = 0; k < s->n_ratios && st == AG_OK && !interrupted(); k++) {
            ruler_result *out = &results[i * s->n_ratios + k];
            st = run_setting(a, reader, &s->methods[i], s->ratios[k], out, err);
        }
    }
    return st;
}

int ruler_run_prompt(ruler_runner *r, const ruler_task *task, const ruler_prompt *p,
                     ruler_result *results, void (*step)(void *user), void *user) {
    ag_error err;
    prompt_run a = {.r = r, .task = task, .prompt = p, .step = step, .user = user};
    a.n_read = r->settings->unseen ? p->written.n_context : p->written.n_question;
    const size_t window = r->options->eviction.params.snapkv_window;
    a.n_shared = window < a.n_read ? a.n_read - window : 0;
    a.n_chunked = (a.n_read - 1) / r->options->prefill_chunk * r->options->prefill_chunk;
    ag_status st = read_prefix(&a, r->readers[0], a.n_shared, &err);
    if (st == AG_OK) st = run_setting(&a, r->readers[0], NULL, 0, &results[0], &err);
    if (st == AG_OK) st = run_methods(&a, results + 1, &err);
    if (st == AG_OK) st = finish_answers(&a, &err);
    for (size_t i = 0; i < a.n_all && st == AG_OK && r->options->verbose; i++)
        print_answer(&a, &a.all[i]);
    free_answers(&a);
    return st == AG_INVALID ? complain_settings(&err) : eval_result(st, &err);
}
