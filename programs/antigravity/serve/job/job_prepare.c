/* SPDX-License-Identifier: Apache-2.0 */
/* Prepares a job on a worker's thread: from the body to prompts, constraints and settings. */
#include "../../support/json_out.h"
#include "../ollama/ollama.h"
#include "../protocol/fields.h"
#include "../threads/account.h"
#include "../threads/account_text.h"
#include "infill.h"
#include "job_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- chat ---- */

/* A JSON value while it is written as text. */
typedef struct dump {
    ag_text text;
    size_t n_pieces;
} dump;

static int append_piece(const char *bytes, size_t n, void *user) {
    enum { CHECK_INTERVAL = 1024 }; /* pieces between two checks */
    dump *d = user;
    if (++d->n_pieces % CHECK_INTERVAL == 0 && account_must_end()) return -1;
    return account_text_append(&d->text, bytes, n) ? 0 : -1;
}

/* Writes a value as text, which the caller must free. Fails without memory, or if the work must
 * end. */
static bool dump_value(const json_t *value, ag_text *text, serve_error *e) {
    dump d = {.n_pieces = 0};
    const bool ok =
        json_dump_callback(value, append_piece, &d, JSON_COMPACT | JSON_ENCODE_ANY) == 0 &&
        d.text.data;
    *text = d.text;
    if (ok) return true;
    account_free(text->data);
    return reject_no_memory(e);
}

/* Sets a text of the chat. Frees the value before the text is parsed, so that memory holds only one
 * of them. */
static bool set_text(ag_status (*set)(ag_chat *, const char *, size_t, ag_error *), ag_chat *chat,
                     json_t **value, const char *param, serve_error *e) {
    ag_error err;
    ag_text text;
    const bool is_written = dump_value(*value, &text, e);
    json_decref(*value);
    *value = NULL;
    if (!is_written) return false;
    const ag_status st = set(chat, text.data, text.len, &err);
    account_free(text.data);
    if (st == AG_OK) return true;
    reject_status(e, &err);
    snprintf(e->param, sizeof e->param, "%s", param);
    return false;
}

/* Sets the variables that `overrides` lacks. */
static bool set_variables(ag_chat *chat, const json_t *variables, const json_t *overrides,
                          serve_error *e) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)variables, name, value) {
        ag_error err;
        if (json_object_get(overrides, name)) continue;
        ag_text text;
        if (!dump_value(value, &text, e)) return false;
        const ag_status st = ag_chat_set_variable(chat, name, text.data, text.len, &err);
        account_free(text.data);
        if (st != AG_OK) return reject_status(e, &err);
    }
    return true;
}

/* A constrained answer has no place for reasoning: disables it if the template has a switch and the
 * client did not choose. */
static bool disable_reasoning(ag_chat *chat, const ag_chat_format *f, const serve_request *r,
                              const json_t *defaults, serve_error *e) {
    ag_error err;
    const bool constrained = r->constrained || r->tool_choice >= SERVE_TOOLS_REQUIRED;
    if (!constrained || !(ag_chat_format_features(f) & AG_CHAT_THINKING_SWITCH)) return true;
    if (json_object_get(r->variables, "enable_thinking") ||
        json_object_get(defaults, "enable_thinking"))
        return true;
    return ag_chat_set_variable(chat, "enable_thinking", "false", 5, &err) == AG_OK ||
           reject_status(e, &err);
}

/* Gives the chat the token ids of earlier answers in this scope. */
static bool restore_answers(const serve_request *r, const ag_served_model *model, ag_chat *chat,
                            size_t *n_bytes, serve_error *e) {
    ag_error err;
    if (r->no_prefix) return true;
    return answer_memory_restore(r->http->server->answers, ag_served_model_name(model),
                                 http_scope(r->http), r->messages, chat, n_bytes, &err) == AG_OK ||
           reject_status(e, &err);
}

/* Returns the memory limit of a chat template: 1/16 of --memory, at least 32 MiB, which is enough
 * for a conversation of 1 MB. 0: no limit. */
static size_t template_memory_limit(uint64_t limit) {
    const uint64_t share = limit / 16, min = (uint64_t)32 << 20;
    if (!limit) return 0;
    return (size_t)(share > min ? share : min);
}

/* Renders the conversation to ids. *required_call gets the grammar of a required tool call.
 * required_call NULL: answers are not restored; otherwise *restored_bytes gets their memory. */
static bool render(ag_served_model *model, serve_request *r, ag_chat **chat, ag_ids *ids,
                   ag_text *text, ag_text *required_call, size_t *restored_bytes, serve_error *e) {
    ag_error err;
    const server_settings *settings = r->http->server->settings;
    const json_t *defaults = settings->template_variables;
    const ag_chat_format *f = ag_served_model_format(model);
    if (!f || !ag_served_model_tokenizer(model))
        return reject_field(e, "messages", "the model '%.100s' has no chat template",
                            ag_served_model_name(model));
    if (!json_is_array(r->messages) || !json_array_size(r->messages))
        return reject_field(e, "messages", "must be an array of at least one message");
    if (ag_chat_create(f, chat, &err) != AG_OK) return reject_status(e, &err);
    ag_chat_set_clock(*chat, (int64_t)time(NULL));
    ag_chat_set_memory_limit(*chat, template_memory_limit(settings->memory_limit));
    const bool tools = r->tools && r->tool_choice != SERVE_TOOLS_NONE;
    if (required_call && !restore_answers(r, model, *chat, restored_bytes, e)) return false;
    if (!set_text(ag_chat_set_messages, *chat, &r->messages, "messages", e)) return false;
    if (tools && !set_text(ag_chat_set_tools, *chat, &r->tools, "tools", e)) return false;
    if (!set_variables(*chat, r->variables, NULL, e) ||
        !set_variables(*chat, defaults, r->variables, e) ||
        !disable_reasoning(*chat, f, r, defaults, e))
        return false;
    const unsigned flags =
        (r->continue_last ? AG_CHAT_CONTINUE : 0u) | (r->no_generation ? AG_CHAT_NO_PROMPT : 0u);
    if (ag_chat_render(*chat, flags, ids, text, &err) != AG_OK) return reject_status(e, &err);
    if (r->tool_choice < SERVE_TOOLS_REQUIRED || !required_call) return true;
    if (!tools) return reject_field(e, "tool_choice", "a call is required, but there are no tools");
    const char *name = r->tool_choice == SERVE_TOOLS_NAMED ? r->tool_name : NULL;
    const unsigned several = name || r->one_call ? 0 : AG_CHAT_SEVERAL_CALLS;
    if (ag_chat_require_call(*chat, name, several, ids, required_call, &err) == AG_OK) return true;
    reject_status(e, &err);
    if (e->status == 404) e->status = 400;
    snprintf(e->param, sizeof e->param, "tool_choice");
    return false;
}

bool serve_render(ag_served_model *model, serve_request *r, ag_ids *ids, ag_text *text,
                  serve_error *e) {
    ag_chat *chat = NULL;
    const bool ok = render(model, r, &chat, ids, text, NULL, NULL, e);
    ag_chat_destroy(chat);
    return ok;
}

/* ---- prompts ---- */

static bool read_ids(const json_t *list, const ag_tokenizer *t, ag_ids *ids, serve_error *e) {
    const size_t n = json_array_size(list);
    ids->data = account_malloc((n ? n : 1) * sizeof *ids->data);
    if (!ids->data) return reject_no_memory(e);
    ids->cap = n;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t v = json_integer_value(id);
        if (!json_is_integer(id) || v < 0 || v >= ag_tokenizer_vocab_size(t))
            return reject_field(e, "prompt", "token %zu is not an id of this model", i);
        ids->data[ids->n++] = (int32_t)v;
    }
    return true;
}

static bool encode_prompt(serve_job *job, const json_t *prompt, ag_ids *ids, serve_error *e) {
    ag_error err;
    const ag_tokenizer *t = ag_served_model_tokenizer(job->model);
    if (!t) return reject_field(e, "model", "'%.100s' has no tokenizer", job->view.model);
    if (job->request.suffix) return infill_encode(t, prompt, &job->request, ids, e);
    if (json_is_array(prompt)) return read_ids(prompt, t, ids, e);
    const unsigned special = job->request.parse_special ? AG_ENCODE_PARSE_SPECIAL : 0;
    const ag_status st =
        ag_tokenizer_encode(t, json_string_value(prompt), json_string_length(prompt),
                            AG_ENCODE_BOS | special, ids, &err);
    return st == AG_OK || reject_status(e, &err);
}

/* ---- constraints ---- */

static bool add_choices(const serve_request *r, ag_constraint_params *p, const char ***choices,
                        serve_error *e) {
    const size_t n = json_array_size(r->choices);
    *choices = account_malloc((n ? n : 1) * sizeof **choices);
    if (!*choices) return reject_no_memory(e);
    for (size_t i = 0; i < n; i++) (*choices)[i] = json_string_value(json_array_get(r->choices, i));
    p->choices = *choices;
    p->n_choices = n;
    return true;
}

enum { MAX_MASK_BYTES = 8 << 20, MAX_STATE_BYTES = 32 << 20 };

/* Returns `max`, scaled down for a memory limit below 2 GiB, but at least 2 MiB. */
static size_t constraint_memory_limit(uint64_t limit, size_t max) {
    const uint64_t full = UINT64_C(2) << 30, min = 2 << 20;
    if (!limit || limit >= full) return max;
    const uint64_t share = max * limit / full;
    return (size_t)(share > min ? share : min);
}

/* The engine accounts for the memory of masks and states as it grows. */
static void set_params(const serve_job *job, ag_constraint_params *p) {
    p->closed_objects = true;
    const uint64_t limit = job->http->server->settings->memory_limit;
    p->max_mask_bytes = constraint_memory_limit(limit, MAX_MASK_BYTES);
    p->max_state_bytes = constraint_memory_limit(limit, MAX_STATE_BYTES);
}

/* The vocabulary belongs to the model, not to the request. */
static ag_status find_vocab(const serve_job *job, const ag_constraint_vocab **out, ag_error *err) {
    account *previous = account_enter(NULL);
    const ag_status st = ag_served_model_vocab(job->model, out, err);
    account_enter(previous);
    return st;
}

static bool compile_constraint(const serve_job *job, const ag_text *required_call,
                               ag_constraint **out, serve_error *e) {
    ag_error err;
    const char **choices = NULL;
    const serve_request *r = &job->request;
    ag_constraint_params p =
        ag_constraint_defaults(required_call->len ? AG_CONSTRAINT_GRAMMAR : r->constraint);
    const ag_constraint_vocab *vocab;
    set_params(job, &p);
    p.text = required_call->len ? required_call->data : r->constraint_text;
    p.len = p.text ? strlen(p.text) : 0;
    if (!required_call->len && r->constraint == AG_CONSTRAINT_CHOICES &&
        !add_choices(r, &p, &choices, e))
        return false;
    /* A grammar describes the entire answer, as in llama.cpp's protocol. */
    const bool is_part = p.kind != AG_CONSTRAINT_GRAMMAR && !r->continue_last;
    ag_status st = find_vocab(job, &vocab, &err);
    if (st == AG_OK && r->kind == SERVE_CHAT && is_part)
        st = ag_chat_constrain_content(job->chat, vocab, &p, out, &err);
    if (st == AG_OK && !*out) st = ag_constraint_create(vocab, &p, out, &err);
    account_free(choices);
    if (st == AG_OK) return true;
    reject_status(e, &err);
    snprintf(e->param, sizeof e->param, "%s", required_call->len ? "tools" : "response_format");
    return false;
}

/* Constrains calls where the client leaves them to the model. */
static bool constrain_optional_calls(serve_job *job, serve_error *e) {
    ag_error err;
    const serve_request *r = &job->request;
    const ag_constraint_vocab *vocab;
    ag_constraint_params p = ag_constraint_defaults(AG_CONSTRAINT_GRAMMAR);
    if (r->constrained || r->tool_choice != SERVE_TOOLS_AUTO) return true;
    set_params(job, &p);
    ag_status st = find_vocab(job, &vocab, &err);
    if (st == AG_OK)
        st = ag_chat_constrain_calls(job->chat, vocab, &p, r->one_call ? 0 : AG_CHAT_SEVERAL_CALLS,
                                     &job->prompts[0].constraint, &err);
    return st == AG_OK || reject_status(e, &err);
}

/* ---- jobs ---- */

static bool make_prompts(serve_job *job, size_t n, serve_error *e) {
    job->n_prompts = 0;
    if (n > JOB_MAX_PROMPTS || n * job->request.n > JOB_MAX_PROMPTS)
        return reject_field(e, "prompt",
                            "too many answers: %zu prompts with %u answers each; at most %d", n,
                            job->request.n, JOB_MAX_PROMPTS);
    job->prompts = account_calloc(n ? n : 1, sizeof *job->prompts);
    if (!job->prompts) return reject_no_memory(e);
    job->n_prompts = n;
    for (size_t i = 0; i < n; i++) {
        job->prompts[i].job = job;
        job->prompts[i].index = i;
    }
    return true;
}

/* Returns the content of the first message without its billing line; NULL if it has none. */
static json_t *content_without_billing(const json_t *content) {
    const bool is_list = json_is_array(content);
    const json_t *part = is_list ? json_array_get(content, 0) : NULL;
    const char *text = json_string_value(is_list ? json_object_get(part, "text") : content);
    const char *text_left = text ? field_skip_billing(text) : NULL;
    if (text_left == text) return NULL;
    if (!is_list) return json_string(text_left);
    json_t *list = json_copy((json_t *)(uintptr_t)content);
    if (!list || !*text_left) {
        if (list) json_array_remove(list, 0);
        return list;
    }
    json_t *copy = json_copy((json_t *)(uintptr_t)part);
    if (copy && json_object_set_new(copy, "text", json_string(text_left)) == 0)
        json_array_set(list, 0, copy);
    json_decref(copy);
    return list;
}

/* Drops the billing line that Anthropic's coding agent sends, also through other protocols. Copies
 * the messages: the body stays unchanged. */
static bool drop_billing(serve_request *r, serve_error *e) {
    json_t *first = json_array_get(r->messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));
    if (!role || (strcmp(role, "system") != 0 && strcmp(role, "developer") != 0)) return true;
    json_t *content = content_without_billing(json_object_get(first, "content"));
    if (!content) return true;
    json_t *messages = json_copy(r->messages), *copy = json_copy(first);
    const bool ok = messages && copy && json_object_set(copy, "content", content) == 0 &&
                    json_array_set(messages, 0, copy) == 0;
    json_decref(content);
    json_decref(copy);
    if (!ok) {
        json_decref(messages);
        return reject_no_memory(e);
    }
    json_decref(r->messages);
    r->messages = messages;
    return true;
}

static bool prepare_chat(serve_job *job, ag_text *required_call, serve_error *e) {
    return make_prompts(job, 1, e) && drop_billing(&job->request, e) &&
           render(job->model, &job->request, &job->chat, &job->prompts[0].ids, NULL, required_call,
                  &job->restored_bytes, e);
}

static bool check_prompt(const serve_job *job, serve_error *e) {
    if (job->prompts[0].ids.n) return true;
    return reject_field(e, "messages",
                        "the chat template of model '%.100s' renders them to an empty prompt",
                        job->view.model);
}

/* Adds the prompt as text to the echoes. */
static bool add_echo(serve_job *job, job_prompt *p, json_t *prompt, serve_error *e) {
    ag_error err;
    ag_text text = {0};
    const ag_tokenizer *t = ag_served_model_tokenizer(job->model);
    const bool is_text = json_is_string(prompt);
    /* Decodes only the first token of a text: the tokenizer may have added it. */
    const size_t n = is_text ? 1 : p->ids.n;
    if (!job->view.echoes) job->view.echoes = json_array();
    if (ag_tokenizer_decode(t, p->ids.data, n, true, &text, &err) != AG_OK)
        return reject_status(e, &err);
    p->hides_first = is_text && ag_tokenizer_is_special(t, p->ids.data[0]) &&
                     strncmp(json_string_value(prompt), text.data, text.len) != 0;
    json_t *echo = is_text ? json_incref(prompt) : json_text(text.data, text.len);
    ag_text_free(&text);
    return json_array_append_new(job->view.echoes, echo) == 0 || reject_no_memory(e);
}

static bool prepare_texts(serve_job *job, serve_error *e) {
    const size_t n = json_array_size(job->request.prompts);
    if (!n) return reject_field(e, "prompt", "the list is empty");
    if (!make_prompts(job, n, e)) return false;
    for (size_t i = 0; i < n; i++) {
        ag_ids *ids = &job->prompts[i].ids;
        json_t *prompt = json_array_get(job->request.prompts, i);
        if (!encode_prompt(job, prompt, ids, e)) return false;
        if (!ids->n) return reject_field(e, "prompt", "a prompt is empty");
        if (job->request.echo && !add_echo(job, &job->prompts[i], prompt, e)) return false;
    }
    return true;
}

/* Creates what reads the answers: a parser of a chat, or the decoder that places tokens. */
static bool make_readers(serve_job *job, serve_error *e) {
    ag_error err;
    const serve_request *r = &job->request;
    for (size_t i = 0; r->kind == SERVE_TEXT && r->logprobs && i < job->view.n_answers; i++)
        if (ag_decoder_create(ag_served_model_tokenizer(job->model), false, !r->echo,
                              &job->readers[i].decoder, &err) != AG_OK)
            return reject_status(e, &err);
    for (size_t i = 0; job->chat && i < job->view.n_answers; i++)
        if (ag_chat_parser_create(job->chat, &job->readers[i].parser, &err) != AG_OK)
            return reject_status(e, &err);
    return true;
}

static bool make_answers(serve_job *job, serve_error *e) {
    serve_job_view *view = &job->view;
    const bool is_embedding = job->request.kind == SERVE_EMBED;
    view->n_answers = is_embedding || job->request.count_only ? 0 : job->n_prompts * job->request.n;
    view->embeddings =
        is_embedding ? account_calloc(job->n_prompts, sizeof *view->embeddings) : NULL;
    if (!job_create_answers(job) || (is_embedding && !view->embeddings)) return reject_no_memory(e);
    return make_readers(job, e);
}

/* Adds headers: fields that were ignored, and the seed, with which a client can repeat the answer.
 */
static void add_headers(serve_job *job) {
    char seed[32];
    if (job->http->ignored[0])
        http_reply_header(job->http, "X-Antigravity-Ignored", job->http->ignored);
    if (job->request.kind == SERVE_EMBED) return;
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)job->params.sampling.seed);
    http_reply_header(job->http, "X-Antigravity-Seed", seed);
}

/* ---- models ---- */

/* Sets the parameters of a derived model. The fields of the request are read later, and win. */
static bool set_model_parameters(serve_request *r, const model_entry *m, serve_error *e) {
    if (!m || !m->parameters) return true;
    json_t *parameters = json_loads(m->parameters, 0, NULL);
    const bool ok = parameters ? ollama_read_options(parameters, r, e) : reject_no_memory(e);
    json_decref(parameters);
    return ok;
}

/* Makes the request one that only loads the weights: it reads one token and generates none. */
static bool make_load_request(serve_request *r, serve_error *e) {
    r->kind = SERVE_TEXT;
    r->stream = r->constrained = r->logprobs = false;
    r->no_prefix = true;
    r->max_tokens = 0;
    json_decref(r->prompts);
    r->prompts = json_list_of(json_list_of(json_integer(0)));
    return r->prompts || reject_no_memory(e);
}

/* Frees the weights and replies. */
static bool unload_model(serve_job *job, serve_error *e) {
    if (!job_may_unload(job))
        return reject_request(e, 403, "keep_alive",
                              "keep_alive: only an admin may unload a model, because other clients "
                              "use it");
    job_keep_alive(job);
    http_reply_json(job->http, 200, job->protocol->reply(&job->view));
    return true;
}

/* Names keep_alive among the ignored fields if the client may not set it. */
static void report_keep_alive(const serve_job *job) {
    char *ignored = job->http->ignored;
    const size_t n = strlen(ignored), size = sizeof job->http->ignored;
    if (isnan(job->request.keep_alive_s) || job_may_unload(job)) return;
    snprintf(ignored + n, size - n, "%skeep_alive", n ? ", " : "");
}

static bool prepare_job(serve_job *job, serve_error *e) {
    serve_request *r = &job->request;
    ag_text required_call = {0};
    const char *name = NULL;
    /* The protocol of ollama has two fields for the name. */
    if (!strncmp(job->protocol->name, "ollama", 6)) {
        if (!ollama_read_name(job->http->json, &name, e)) return false;
    } else {
        name = json_string_value(json_object_get(job->http->json, "model"));
    }
    const bool is_ready =
        set_model_parameters(r, name ? model_list_find(http_models(job->http), name) : NULL, e);
    fields_begin(job->http->json);
    const bool is_parsed = is_ready && job->protocol->parse(job->http->json, r, e);
    fields_end(job->http->json, job->http->ignored, sizeof job->http->ignored);
    http_drop_body(job->http);
    if (!is_parsed) {
        job->http->ignored[0] = '\0';
        return false;
    }
    if (!serve_presets_apply(job->http->server->settings->presets, r, e)) return false;
    if (r->timeout_s > 0) account_limit_deadline(job->http->began + r->timeout_s);
    const model_entry *entry = http_model_entry(job->http, r->model, e);
    if (!entry) return false;
    job->model = entry->model;
    if (r->stream && !job->protocol->stream_type)
        return reject_field(e, "stream", "this endpoint does not stream");
    if (!r->n || r->n > JOB_MAX_ANSWERS)
        return reject_field(e, "n", "must be between 1 and %d", JOB_MAX_ANSWERS);
    job->model_name = account_strdup(r->model ? r->model : ag_served_model_name(job->model));
    job->view.model = job->model_name;
    bool ok = job->model_name || reject_no_memory(e);
    if (ok && r->load_only && r->keep_alive_s == 0) return unload_model(job, e);
    if (ok && r->load_only) ok = make_load_request(r, e);
    if (ok) report_keep_alive(job);
    if (ok) ok = serve_request_add_system(r, entry->system) || reject_no_memory(e);
    if (ok)
        ok = r->kind == SERVE_CHAT ? prepare_chat(job, &required_call, e) : prepare_texts(job, e);
    if (ok && !r->count_only) {
        const bool constrained = r->constrained || required_call.len;
        if (constrained && job->n_prompts > JOB_PROMPTS_AT_ONCE)
            ok = reject_field(e, "prompt", "too many prompts with a constraint: %zu; at most %d",
                              job->n_prompts, JOB_PROMPTS_AT_ONCE);
        if (ok && r->kind == SERVE_CHAT) ok = check_prompt(job, e);
        ok = ok && job_apply_settings(job, constrained, e) && job_check_lengths(job, e);
        for (size_t i = 0; ok && constrained && i < job->n_prompts; i++)
            ok = compile_constraint(job, &required_call, &job->prompts[i].constraint, e);
        if (ok && r->kind == SERVE_CHAT) ok = constrain_optional_calls(job, e);
        if (ok) add_headers(job);
    }
    ag_text_free(&required_call);
    return ok && make_answers(job, e);
}

void job_prepare(serve_http_request *http) {
    serve_error e;
    serve_job *job = account_calloc(1, sizeof *job);
    const serve_protocol *p = http->route->protocol;
    http->job = job;
    if (job) {
        job->http = http;
        job->protocol = p;
        job->view.request = &job->request;
        job->view.created = (int64_t)time(NULL);
        memcpy(job->view.id, http->id, sizeof job->view.id);
        serve_request_init(&job->request);
        job->request.http = http;
        job->view.state = p->state_size ? account_calloc(1, p->state_size) : NULL;
    }
    bool ok = job && (job->view.state || !p->state_size);
    if (!ok) reject_no_memory(&e);
    if (ok) ok = prepare_job(job, &e);
    if (!ok) http_reply_error(http, &e);
}
