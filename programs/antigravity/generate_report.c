/* SPDX-License-Identifier: Apache-2.0 */
#include "generate.h"

#include "support/json_out.h"
#include "support/statistics.h"
#include "terminal/output.h"

#include <antigravity/expert.h>
#include <antigravity/process.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Returns the decoded tokens: the first token comes from the prompt's logits. */
static size_t n_decoded(const ag_generate_stats *s) {
    return s->n_generated > 0 ? s->n_generated - 1 : 0;
}

static size_t peak_memory(void) {
    ag_memory_usage usage;
    ag_process_memory(&usage);
    return usage.anonymous_peak;
}

static size_t kv_capacity(const generation *g) {
    return ag_kv_cache_capacity_bytes(ag_session_kv_cache(g->engine.session));
}

void report_context_full(const generation *g) {
    uint32_t trained = g->engine.info.max_positions;
    if (g->n_context < trained)
        complain("the context of %" PRIu32 " tokens is full (--max-seq-len; the model was trained "
                 "for %" PRIu32 ")",
                 g->n_context, trained);
    else
        complain("the context is full: the model was trained for %" PRIu32
                 " tokens, so a larger --max-seq-len cannot help; with --eviction-policy streaming "
                 "older tokens leave the context",
                 trained);
}

bool generate_is_cut_off(const generation *g) {
    return g->o.max_tokens && constraint_is_unmet(&g->constraint, g->stats.finish);
}

void report_cut_off(const generation *g) {
    char message[128];
    const ag_finish finish = g->stats.finish;
    snprintf(message, sizeof message, "%s", ag_finish_detail(finish));
    if (finish == AG_FINISH_MAX_TOKENS)
        snprintf(message, sizeof message, "--max-tokens %" PRId64, g->o.max_tokens);
    else if (finish == AG_FINISH_CONTEXT)
        snprintf(message, sizeof message,
                 "the context of %" PRIu32 " tokens is full: --max-seq-len", g->n_context);
    complain("the text was cut off before it met the constraint (%s)", message);
}

static void report_evictions(const ag_generate_stats *s) {
    char freed[32];
    if (s->evictions.n_evictions)
        fprintf(stderr, " (%" PRIu64 " tokens, %s freed, %.1f ms)", s->evictions.n_tokens,
                format_bytes((double)s->evictions.bytes_returned, freed, sizeof freed),
                s->evictions.seconds * 1e3);
    fputc('\n', stderr);
}

/* Counts slots of single KV heads. */
static void report_spill(const generation *g) {
    ag_spill_stats s;
    char bytes[32];
    ag_session_spilled(g->engine.session, &s);
    if (!s.n_spilled && !s.n_failed) return;
    fprintf(stderr, "spill    %" PRIu64 " slots of KV heads, %" PRIu64 " reloaded, %s in the file",
            s.n_spilled, s.n_reloaded, format_bytes((double)s.file_bytes, bytes, sizeof bytes));
    if (s.n_failed) fprintf(stderr, ", %" PRIu64 " lost", s.n_failed);
    fputc('\n', stderr);
}

static void report_drafts(const ag_generate_stats *s) {
    if (!s->n_draft_steps) return;
    fprintf(stderr, "drafts   %6zu tokens, %zu accepted in %zu steps\n", s->n_drafted,
            s->n_accepted, s->n_draft_steps);
}

/* Counts slots as the mean over heads. */
static void report_replay(const ag_compress_report *r) {
    if (!r->n_heads) return;
    char freed[32];
    fprintf(
        stderr,
        "replay   %6zu tokens %8.2f s, %.1f of %.1f tokens remain (mean over heads), %s freed\n",
        r->n_replayed, r->seconds, (double)r->n_kept / (double)r->n_heads,
        (double)r->n_before / (double)r->n_heads,
        format_bytes((double)r->bytes_returned, freed, sizeof freed));
}

void report_statistics(const generation *g) {
    const ag_generate_stats *s = &g->stats;
    char peak[32], used[32], capacity[32];
    fflush(stdout);
    fprintf(stderr, "\nprompt   %6zu tokens %8.2f s %9.2f tokens/s\n", s->n_prompt, s->prefill_s,
            per_second(s->n_prompt, s->prefill_s));
    fprintf(stderr, "decode   %6zu tokens %8.2f s %9.2f tokens/s", s->n_generated, s->decode_s,
            per_second(n_decoded(s), s->decode_s));
    if (s->n_generated) fprintf(stderr, ", the first after %.3f s", s->first_token_s);
    fputc('\n', stderr);
    report_drafts(s);
    fprintf(stderr, "memory   peak %s, KV cache %s of %s, evictions %" PRIu64,
            format_bytes((double)peak_memory(), peak, sizeof peak),
            format_bytes((double)s->kv_bytes, used, sizeof used),
            format_bytes((double)kv_capacity(g), capacity, sizeof capacity),
            s->evictions.n_evictions);
    report_evictions(s);
    report_spill(g);
    report_replay(&g->replayed);
    fprintf(stderr, "finish   %s (%s), seed %" PRIu64 "\n", ag_finish_reason(s->finish),
            ag_finish_detail(s->finish), g->o.sampling.seed);
}

static json_t *list_bias(const sampling_options *o) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < o->n_bias; i++) {
        json_t *one = JSON_OBJECT({"id", json_integer((json_int_t)o->bias[i].id)},
                                  {"bias", json_float(o->bias[i].bias)});
        json_append(&list, one);
    }
    return list;
}

static json_t *list_stops(const generate_options *o) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < o->n_stop; i++)
        json_append(&list, json_text(o->stop[i], strlen(o->stop[i])));
    return list;
}

static json_t *settings(const generation *g) {
    const model_options *m = &g->o.model;
    const sampling_options *s = &g->o.sampling;
    const engine *e = &g->engine;
    const json_field fields[] = {
        {"model", json_text(e->dir, strlen(e->dir))},
        {"backend", json_string(ag_backend_name(e->backend))},
        {"threads", json_integer((json_int_t)ag_backend_threads(e->backend))},
        {"weights", json_string(weights_name(m->weights, &g->engine.info))},
        {"k_type", json_string(ag_dtype_name(m->k_type))},
        {"v_type", json_string(ag_dtype_name(m->v_type))},
        {"k_rotated", json_boolean(keys_rotated(m->k_rotation, m->k_type))},
        {"max_seq_len", json_integer((json_int_t)g->n_context)},
        {"prefill_chunk", json_integer((json_int_t)m->prefill_chunk)},
        {"max_tokens", json_integer((json_int_t)g->o.max_tokens)},
        {"eviction_policy", json_string(eviction_policy_name(&m->eviction))},
        {"temperature", json_float((float)s->temperature)},
        {"top_k", json_integer((json_int_t)s->top_k)},
        {"top_p", json_float((float)s->top_p)},
        {"min_p", json_float((float)s->min_p)},
        {"typical_p", json_float((float)s->typical_p)},
        {"top_n_sigma", json_float((float)s->top_n_sigma)},
        {"xtc_probability", json_float((float)s->xtc_probability)},
        {"xtc_threshold", json_float((float)s->xtc_threshold)},
        {"dynatemp_range", json_float((float)s->dynamic_range)},
        {"dynatemp_exponent", json_float((float)s->dynamic_exponent)},
        {"dry_multiplier", json_float((float)s->dry_multiplier)},
        {"dry_base", json_float((float)s->dry_base)},
        {"dry_allowed_length", json_integer((json_int_t)s->dry_allowed_length)},
        {"dry_penalty_last_n", json_integer((json_int_t)s->dry_window)},
        {"repetition_penalty", json_float((float)s->repetition_penalty)},
        {"repetition_window", json_integer((json_int_t)s->repetition_window)},
        {"presence_penalty", json_float((float)s->presence_penalty)},
        {"frequency_penalty", json_float((float)s->frequency_penalty)},
        {"logit_bias", list_bias(s)},
        {"stop", list_stops(&g->o)},
        {"ignore_eos", json_boolean(g->o.ignore_eos)},
        {"speculate", json_string(speculation_name(&g->o.speculation))},
        {"draft_max", json_integer((json_int_t)g->o.speculation.draft_max)},
    };
    return JSON_FIELDS(fields);
}

static json_t *timings(const generation *g) {
    const ag_generate_stats *s = &g->stats;
    return JSON_OBJECT(
        {"load_s", json_real(g->engine.load_s)}, {"prefill_s", json_real(s->prefill_s)},
        {"first_token_s", json_real(s->first_token_s)}, {"decode_s", json_real(s->decode_s)},
        {"prefill_tok_per_s", json_real(per_second(s->n_prompt, s->prefill_s))},
        {"decode_tok_per_s", json_real(per_second(n_decoded(s), s->decode_s))});
}

static json_t *drafts(const generation *g) {
    const ag_generate_stats *s = &g->stats;
    return JSON_OBJECT({"steps", json_integer((json_int_t)s->n_draft_steps)},
                       {"drafted", json_integer((json_int_t)s->n_drafted)},
                       {"accepted", json_integer((json_int_t)s->n_accepted)});
}

static json_t *memory(const generation *g) {
    ag_spill_stats spill;
    ag_session_spilled(g->engine.session, &spill);
    const json_field fields[] = {
        {"peak_bytes", json_integer((json_int_t)peak_memory())},
        {"weight_bytes", json_integer((json_int_t)ag_model_memory_bytes(g->engine.model))},
        {"kv_bytes", json_integer((json_int_t)g->stats.kv_bytes)},
        {"kv_capacity_bytes", json_integer((json_int_t)kv_capacity(g))},
        {"kv_budget", json_integer((json_int_t)ag_session_kv_budget(g->engine.session))},
        {"evictions", json_integer((json_int_t)g->stats.evictions.n_evictions)},
        {"evicted_tokens", json_integer((json_int_t)g->stats.evictions.n_tokens)},
        {"evicted_bytes", json_integer((json_int_t)g->stats.evictions.bytes_returned)},
        {"eviction_s", json_real(g->stats.evictions.seconds)},
        {"spilled_slots", json_integer((json_int_t)spill.n_spilled)},
        {"recalled_slots", json_integer((json_int_t)spill.n_reloaded)},
        {"lost_slots", json_integer((json_int_t)spill.n_failed)},
        {"spill_bytes", json_integer((json_int_t)spill.file_bytes)},
    };
    return JSON_FIELDS(fields);
}

int report_json(generation *g) {
    const ag_generate_stats *s = &g->stats;
    bool has_text = g->engine.tokenizer != NULL;
    const json_field fields[] = {
        {"prompt_ids", json_ids(g->prompt.ids, g->prompt.n)},
        {"ids", json_ids(g->ids.data, g->ids.n)},
        {"text", has_text ? json_text(g->text.data ? g->text.data : "", g->text.len) : json_null()},
        {"finish_reason", json_string(ag_finish_reason(s->finish))},
        {"finish_detail", json_string(ag_finish_detail(s->finish))},
        {"seed", json_integer((json_int_t)g->o.sampling.seed)},
        {"settings", settings(g)},
        {"timings", timings(g)},
        {"drafts", drafts(g)},
        {"memory", memory(g)},
    };
    return json_print(JSON_FIELDS(fields));
}
