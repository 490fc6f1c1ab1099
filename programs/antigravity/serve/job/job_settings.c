/* SPDX-License-Identifier: Apache-2.0 */
/* Settings of a job: sampling, stops and cache of the request, with the defaults of the model and
 * the server. */
#include "../../options/model_options.h"
#include "../../options/sampling_options.h"
#include "../threads/account.h"
#include "clock.h"
#include "job_impl.h"
#include "logit_bias.h"

#include <math.h>
#include <string.h>

enum { MAX_STOPS = 64, MAX_TOP = 20 };

/* Memory of a token with its text and probability: stored until the answer ends, and with its
 * JSON. */
enum { STORED_TOKEN_BYTES = 120, REPORTED_TOKEN_BYTES = 1300 };
enum { MAX_REPORTED_TOKENS = 65536 }; /* limit without stream */

/* Returns the number of prompt tokens whose probabilities are reported, once for each answer. */
static double reported_prompt_tokens(const serve_job *job) {
    const ag_request_params *p = &job->params;
    double n = 0;
    for (size_t i = 0; p->prompt_logprobs && i < job->n_prompts; i++)
        n += (double)job->prompts[i].ids.n;
    return n * (1 + p->n_top) * (double)job->request.n;
}

/* Returns the maximum number of generated tokens whose probabilities are reported. */
static double reported_new_tokens(const serve_job *job) {
    const ag_request_params *p = &job->params;
    const double context = p->session.max_seq_len;
    const double max =
        p->max_tokens >= 0 && (double)p->max_tokens < context ? (double)p->max_tokens : context;
    return p->logprobs ? max * (1 + p->n_top) * (double)job->request.n * (double)job->n_prompts : 0;
}

/* Returns the memory of all reported tokens. A stream reports most generated tokens as they arrive
 * and only stores them. It reports the tokens of a prompt in one event. */
static double reported_bytes(const serve_job *job) {
    const bool only_stores = job->request.stream && !job->protocol->stream_repeats_tokens;
    return reported_prompt_tokens(job) * REPORTED_TOKEN_BYTES +
           reported_new_tokens(job) * (only_stores ? STORED_TOKEN_BYTES : REPORTED_TOKEN_BYTES);
}

/* Memory of a reply as JSON and as text: of an answer without its tokens, and of a value of an
 * embedding. */
enum { ANSWER_BYTES = 4096, EMBEDDING_VALUE_BYTES = 96 };

static size_t reply_bytes(const serve_job *job) {
    const size_t own = job->protocol->answer_bytes;
    if (job->request.stream) return 0;
    if (job->request.kind == SERVE_EMBED)
        return job->n_prompts * ag_served_model_info(job->model)->hidden_size *
               EMBEDDING_VALUE_BYTES;
    return job->view.n_answers * (own ? own : ANSWER_BYTES);
}

size_t job_memory_bytes(const serve_job *job) {
    return (size_t)reported_bytes(job) + job->restored_bytes + reply_bytes(job);
}

static void set_if_given(double value, float *field) {
    if (!isnan(value)) *field = (float)value;
}

/* Applies the samplers of llama.cpp beyond the usual ones. DRY searches the whole context. */
static bool apply_samplers(const serve_sampling *from, const ag_served_model *model,
                           uint32_t n_context, ag_sampler_params *to, serve_error *e) {
    const size_t n = json_array_size(from->dry_breakers);
    const char *texts[MAX_DRY_BREAKERS];
    ag_error err;
    set_if_given(from->dynamic_range, &to->dynamic_range);
    set_if_given(from->dynamic_exponent, &to->dynamic_exponent);
    set_if_given(fmax(from->top_n_sigma, 0), &to->top_n_sigma);
    set_if_given(from->typical_p, &to->typical_p);
    set_if_given(from->xtc_probability, &to->xtc_probability);
    set_if_given(from->xtc_threshold, &to->xtc_threshold);
    set_if_given(from->dry_multiplier, &to->dry_multiplier);
    set_if_given(from->dry_base, &to->dry_base);
    if (from->dry_allowed_length > 0) to->dry_allowed_length = (uint32_t)from->dry_allowed_length;
    to->dry_window = sampling_window(from->dry_window, n_context);
    if (to->dry_multiplier == 0 || (from->dry_breakers && !n)) return true;
    for (size_t i = 0; i < n; i++)
        texts[i] = json_string_value(json_array_get(from->dry_breakers, i));
    return ag_dry_breakers_create(ag_served_model_tokenizer(model),
                                  n ? texts : sampling_usual_breakers, n ? n : N_USUAL_BREAKERS,
                                  &to->dry_breakers, &err) == AG_OK ||
           reject_status(e, &err);
}

static void apply_sampling(const serve_sampling *from, const ag_served_model *model,
                           ag_sampler_params *to) {
    *to = *ag_served_model_sampling(model);
    set_if_given(from->temperature, &to->temperature);
    set_if_given(from->top_p, &to->top_p);
    set_if_given(from->min_p, &to->min_p);
    set_if_given(from->presence_penalty, &to->presence_penalty);
    set_if_given(from->frequency_penalty, &to->frequency_penalty);
    set_if_given(from->repetition_penalty, &to->repetition_penalty);
    if (to->top_p <= 0) to->top_p = 1e-6f; /* the likeliest token only */
    if (from->top_k >= 0) to->top_k = (uint32_t)from->top_k;
    if (from->repetition_window >= 0) to->repetition_window = (uint32_t)from->repetition_window;
    to->seed = from->has_seed ? (uint64_t)from->seed : sampling_draw_seed();
    to->logit_bias = from->bias;
    to->n_logit_bias = from->n_bias;
}

/* Applies the client's stop strings, and after them the template's. */
static bool apply_stops(serve_job *job, bool constrained, serve_error *e) {
    const serve_request *r = &job->request;
    const ag_chat_format *f = job->chat ? ag_served_model_format(job->model) : NULL;
    const size_t n = r->stop ? json_array_size(r->stop) : 0;
    size_t n_own = 0;
    const char *const *own = f && !constrained ? ag_chat_format_stops(f, &n_own) : NULL;
    if (n > MAX_STOPS) return reject_field(e, "stop", "%zu strings; at most %d", n, MAX_STOPS);
    job->stop = account_malloc((n + n_own + 1) * sizeof *job->stop);
    if (!job->stop) return reject_no_memory(e);
    for (size_t i = 0; i < n; i++) {
        const char *text = json_string_value(json_array_get(r->stop, i));
        /* An empty string would end every answer at once; clients send it for "none". */
        if (text && text[0]) job->stop[job->n_client_stops++] = text;
    }
    job->params.stop = job->stop;
    job->params.n_stop = job->n_client_stops;
    for (size_t i = 0; i < n_own; i++) job->stop[job->params.n_stop++] = own[i];
    if (f && !constrained)
        job->params.stop_ids = ag_chat_format_stop_ids(f, &job->params.n_stop_ids);
    if (r->suffix) {
        job->params.stop_ids = job->infill_stops;
        job->params.n_stop_ids =
            infill_stop_ids(ag_served_model_tokenizer(job->model), job->infill_stops);
    }
    return true;
}

/* Applies kv_type, kv_policy, kv_budget and head_budget, with the syntax of the command line. */
static bool apply_cache(serve_job *job, serve_error *e) {
    char reason[MESSAGE_SIZE];
    const serve_request *r = &job->request;
    ag_session_params *to = &job->params.session;
    model_options o = {.k_type = to->k_type, .v_type = to->v_type};
    if (r->kv_type && !kv_type_parse(&o, r->kv_type, reason))
        return reject_field(e, "kv_type", "%s", reason);
    to->k_type = o.k_type;
    to->v_type = o.v_type;
    if (r->kv_policy && !eviction_parse_policy(&to->eviction, r->kv_policy, reason))
        return reject_field(e, "kv_policy", "%s", reason);
    if (r->kv_budget && !eviction_parse_budget(&to->eviction, r->kv_budget, reason))
        return reject_field(e, "kv_budget", "%s", reason);
    if (r->head_budget && !eviction_parse_heads(&to->eviction, r->head_budget, reason))
        return reject_field(e, "head_budget", "%s", reason);
    const ag_eviction_policy *policy = to->eviction.policy;
    if (r->head_budget && to->eviction.head_budget != AG_HEAD_BUDGET_EVEN &&
        (!policy || !policy->select))
        return reject_field(e, "head_budget", "needs an eviction policy; set kv_policy");
    const bool checks_heads = r->head_budget || (policy && policy->select);
    if (policy && checks_heads && !eviction_suits_heads(&to->eviction, policy, reason))
        return reject_field(e, "head_budget", "%s", reason);
    return true;
}

double job_time_left(const serve_job *job) {
    const double own = job->request.timeout_s;
    double limit = job->http->server->settings->timeout_s;
    if (own > 0 && (!limit || own < limit)) limit = own;
    return limit ? fmax(job->http->began + limit - clock_s(), 1e-3) : 0;
}

bool job_apply_settings(serve_job *job, bool constrained, serve_error *e) {
    const serve_request *r = &job->request;
    ag_request_params *p = &job->params;
    *p = ag_request_defaults(job->model);
    p->kind = r->kind == SERVE_EMBED ? AG_REQUEST_EMBED : AG_REQUEST_GENERATE;
    p->scope = http_scope(job->http);
    p->client = job->http->scope; /* the client even with --share-prefixes */
    p->n_answers = r->n;
    p->max_tokens = r->max_tokens;
    p->ignore_eos = r->ignore_eos;
    p->keep_special = job->chat != NULL;
    if (r->max_context && r->max_context < p->session.max_seq_len)
        p->session.max_seq_len = (uint32_t)r->max_context;
    p->logprobs = r->logprobs;
    p->prompt_logprobs = r->logprobs && r->echo;
    p->n_top = r->n_top;
    p->no_prefix = r->no_prefix;
    if (r->n_top > MAX_TOP) return reject_field(e, "top_logprobs", "must be at most %d", MAX_TOP);
    const double n_reported = reported_prompt_tokens(job) + reported_new_tokens(job),
                 max_bytes = (double)MAX_REPORTED_TOKENS * REPORTED_TOKEN_BYTES;
    if (reported_bytes(job) > max_bytes)
        return reject_field(e, "logprobs",
                            "too many probabilities: %.0f tokens, at most %.0f; set max_tokens",
                            n_reported, floor(n_reported * max_bytes / reported_bytes(job)));
    if (!logit_bias_read(&job->request.sampling, ag_served_model_tokenizer(job->model), e))
        return false;
    apply_sampling(&r->sampling, job->model, &p->sampling);
    if (!apply_samplers(&r->sampling, job->model, p->session.max_seq_len, &p->sampling, e))
        return false;
    job->view.sampling = &p->sampling;
    return apply_stops(job, constrained, e) && apply_cache(job, e);
}
