/* SPDX-License-Identifier: Apache-2.0 */
/* How answers are chosen and kept: what the request says, over what the model and the server say.
 */
#include "job_impl.h"
#include "logit_bias.h"
#include "model_options.h"
#include "sampling_options.h"
#include "serve/work/account.h"

#include <math.h>

enum { MAX_STOPS = 64, MAX_TOP = 20 };

/* Bytes of an answer's token, or of one of the likeliest instead of it: as it is kept until the
 * answer ends, and with what it is as JSON. */
enum { KEPT_TOKEN = 120, TOLD_TOKEN = 1300 };
enum { MAX_TOKENS_TOLD = 65536 }; /* in one piece */

/* How many tokens the answers may tell the probabilities of. */
static double tokens_told(const serve_run *run) {
    const ag_request_params *p = &run->params;
    const double context = p->session.max_seq_len;
    const double most =
        p->max_tokens >= 0 && (double)p->max_tokens < context ? (double)p->max_tokens : context;
    return p->logprobs ? most * (1 + p->n_top) * (double)run->request.n * (double)run->n_prompts
                       : 0;
}

/* In a stream most are told as they come, and only kept. */
static double token_cost(const serve_run *run) {
    return run->request.stream && !run->protocol->stream_repeats_tokens ? KEPT_TOKEN : TOLD_TOKEN;
}

/* Bytes of a reply as JSON and as text: of an answer without its tokens, and of a number of an
 * embedding. */
enum { WHOLE_ANSWER = 4096, EMBEDDED_NUMBER = 96 };

static size_t whole_cost(const serve_run *run) {
    const size_t own = run->protocol->answer_bytes;
    if (run->request.stream) return 0;
    if (run->request.kind == SERVE_EMBED)
        return run->n_prompts * ag_served_model_info(run->model)->hidden_size * EMBEDDED_NUMBER;
    return run->x.n_answers * (own ? own : WHOLE_ANSWER);
}

size_t run_cost(const serve_run *run) {
    return (size_t)(tokens_told(run) * token_cost(run)) + run->restored_bytes + whole_cost(run);
}

static void take_real(double value, float *field) {
    if (!isnan(value)) *field = (float)value;
}

static void apply_sampling(const serve_sampling *from, const ag_served_model *model,
                           ag_sampler_params *to) {
    *to = *ag_served_model_sampling(model);
    take_real(from->temperature, &to->temperature);
    take_real(from->top_p, &to->top_p);
    take_real(from->min_p, &to->min_p);
    take_real(from->presence_penalty, &to->presence_penalty);
    take_real(from->frequency_penalty, &to->frequency_penalty);
    /* At temperature 0 nothing but the logits decides, unless a penalty is asked for. */
    if (to->temperature == 0) to->repetition_penalty = 1;
    take_real(from->repetition_penalty, &to->repetition_penalty);
    if (to->top_p <= 0) to->top_p = 1e-6f; /* the likeliest token */
    if (from->top_k >= 0) to->top_k = (uint32_t)from->top_k;
    if (from->repetition_window >= 0) to->repetition_window = (uint32_t)from->repetition_window;
    to->seed = from->has_seed ? (uint64_t)from->seed : sampling_draw_seed();
    to->logit_bias = from->bias;
    to->n_logit_bias = from->n_bias;
}

/* The client's stop strings, and those of the template behind them. */
static bool apply_stops(serve_run *run, bool constrained, serve_error *e) {
    const serve_request *r = &run->request;
    const ag_chat_format *f = run->chat ? ag_served_model_format(run->model) : NULL;
    const size_t n = r->stop ? json_array_size(r->stop) : 0;
    size_t n_own = 0;
    const char *const *own = f && !constrained ? ag_chat_format_stops(f, &n_own) : NULL;
    if (n > MAX_STOPS)
        return serve_refuse(e, 400, "stop", "%zu stop strings, of %d at most", n, MAX_STOPS);
    run->stop = account_malloc((n + n_own + 1) * sizeof *run->stop);
    if (!run->stop) return serve_no_memory(e);
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(r->stop, i));
        /* An empty one would end every answer at once; clients that send it mean none. */
        if (text && text[0]) run->stop[run->n_client_stops++] = text;
    }
    run->params.stop = run->stop;
    run->params.n_stop = run->n_client_stops;
    for (size_t i = 0; i < n_own; i++) run->stop[run->params.n_stop++] = own[i];
    if (f && !constrained)
        run->params.stop_ids = ag_chat_format_stop_ids(f, &run->params.n_stop_ids);
    if (r->suffix) {
        run->params.stop_ids = run->gap_ends;
        run->params.n_stop_ids =
            infill_stop_ids(ag_served_model_tokenizer(run->model), run->gap_ends);
    }
    return true;
}

/* kv_type, kv_policy, kv_budget and head_budget, as the options of the command line are read. */
static bool apply_cache(serve_run *run, serve_error *e) {
    char why[WHY_SIZE];
    const serve_request *r = &run->request;
    ag_session_params *to = &run->params.session;
    model_options o = {.k_type = to->k_type, .v_type = to->v_type};
    if (r->kv_type && !kv_type_parse(&o, r->kv_type, why))
        return serve_refuse(e, 400, "kv_type", "%s", why);
    to->k_type = o.k_type;
    to->v_type = o.v_type;
    if (r->kv_policy && !eviction_parse_policy(&to->eviction, r->kv_policy, why))
        return serve_refuse(e, 400, "kv_policy", "%s", why);
    if (r->kv_budget && !eviction_parse_budget(&to->eviction, r->kv_budget, why))
        return serve_refuse(e, 400, "kv_budget", "%s", why);
    if (r->head_budget && !eviction_parse_heads(&to->eviction, r->head_budget, why))
        return serve_refuse(e, 400, "head_budget", "%s", why);
    const ag_eviction_policy *policy = to->eviction.policy;
    if (r->head_budget && to->eviction.head_budget != AG_HEAD_BUDGET_EVEN &&
        (!policy || !policy->select))
        return serve_refuse(e, 400, "head_budget", "needs an eviction policy other than none");
    const bool asked = r->head_budget || (policy && policy->select);
    if (policy && asked && !eviction_suits_heads(&to->eviction, policy, why))
        return serve_refuse(e, 400, "head_budget", "%s", why);
    return true;
}

bool run_apply_settings(serve_run *run, bool constrained, serve_error *e) {
    const serve_request *r = &run->request;
    const server_settings *settings = run->call->server->settings;
    ag_request_params *p = &run->params;
    *p = ag_request_defaults(run->model);
    p->kind = r->kind == SERVE_EMBED ? AG_REQUEST_EMBED : AG_REQUEST_GENERATE;
    p->scope = call_scope(run->call);
    p->client = run->call->scope; /* also where all keys share prefixes */
    p->n_answers = r->n;
    p->max_tokens = r->max_tokens;
    p->ignore_eos = r->ignore_eos;
    p->keep_special = run->chat != NULL;
    p->logprobs = r->logprobs;
    p->n_top = r->n_top;
    p->no_prefix = r->no_prefix;
    p->deadline_s = settings->timeout_s;
    if (r->timeout_s > 0 && (!p->deadline_s || r->timeout_s < p->deadline_s))
        p->deadline_s = r->timeout_s;
    if (r->n_top > MAX_TOP)
        return serve_refuse(e, 400, "top_logprobs", "top_logprobs must be at most %d", MAX_TOP);
    const double most_told = floor((double)MAX_TOKENS_TOLD * TOLD_TOKEN / token_cost(run));
    if (tokens_told(run) > most_told)
        return serve_refuse(e, 400, "logprobs",
                            "probabilities of %.0f tokens, of %.0f at most: give max_tokens",
                            tokens_told(run), most_told);
    if (!logit_bias_read(&run->request.sampling, ag_served_model_tokenizer(run->model), e))
        return false;
    apply_sampling(&r->sampling, run->model, &p->sampling);
    return apply_stops(run, constrained, e) && apply_cache(run, e);
}
