/* SPDX-License-Identifier: Apache-2.0 */
/* Generates one answer: reads the new tokens and shows the answer while it is generated. */
#include "chat.h"

#include "../command.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"
#include "../terminal/word_wrap.h"

#include <stdlib.h>
#include <string.h>

/* State of an answer and of its output. */
typedef struct answer {
    chat *c;
    ag_chat_parser *parser; /* owned */
    ag_ids prompt, ids;     /* owned; the rendered conversation; the answer's tokens */
    word_wrap wrap;
    bool wrote, ends_in_newline, is_dim;
    bool has_content, has_reasoning;
    ag_error err; /* from the parser */
} answer;

static void write_answer(answer *a, const char *text, size_t len) {
    if (!len) return;
    progress_end();
    word_wrap_write(&a->wrap, text, len);
    a->wrote = true;
    a->ends_in_newline = text[len - 1] == '\n';
}

static void set_dim(answer *a, bool dim) {
    static const char on[] = "\x1b[2m", off[] = "\x1b[0m";
    if (a->is_dim == dim) return;
    a->is_dim = dim;
    word_wrap_flush(&a->wrap);
    if (a->c->is_dimmed) output_write(dim ? on : off, dim ? sizeof on - 1 : sizeof off - 1);
    if (dim) return;
    if (!a->ends_in_newline) word_wrap_write(&a->wrap, "\n", 1);
    a->ends_in_newline = true;
}

/* Skips the blank lines that templates put between reasoning and answer. */
static void write_content(answer *a, const char *text, size_t len) {
    while (!a->has_content && len && strchr("\n\r", *text)) text++, len--;
    if (!len) return;
    set_dim(a, false);
    a->has_content = true;
    write_answer(a, text, len);
}

static void write_reasoning(answer *a, const char *text, size_t len) {
    a->has_reasoning = a->has_reasoning || len;
    if (a->c->o.hide_thinking || !a->c->is_terminal || !len) return;
    set_dim(a, true);
    write_answer(a, text, len);
}

static void write_deltas(answer *a) {
    ag_chat_delta d;
    while (ag_chat_parser_next(a->parser, &d)) {
        if (d.kind == AG_CHAT_DELTA_REASONING) write_reasoning(a, d.text, d.len);
        else if (d.kind == AG_CHAT_DELTA_CONTENT) write_content(a, d.text, d.len);
    }
}

static bool on_token(void *user, int32_t id, const char *text, size_t len) {
    answer *a = user;
    line_reader_collect(a->c->lines);
    if (!a->ids.n) chat_check_loss(a->c);
    if (id >= 0 && !ids_add(&a->ids, id)) {
        a->err = (ag_error){.status = AG_NOMEM, .msg = "out of memory: tokens of the answer"};
        return false;
    }
    if (len && ag_chat_parser_push(a->parser, text, len, &a->err) != AG_OK) return false;
    write_deltas(a);
    return !output_failed();
}

/* Returns a seed for this answer, so that a saved conversation continues as it would have. Mixing:
 * SplitMix64. */
static uint64_t seed_of_answer(const chat *c) {
    uint64_t x = c->o.sampling.seed + 0x9e3779b97f4a7c15u * (c->transcript.n + (c->attempt << 32));
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Makes a sampler that has accepted the tokens the session has read. */
static int make_sampler(chat *c, size_t n_read, ag_sampler **out) {
    ag_error err;
    if (sampling_prepare(&c->o.sampling, c->engine.tokenizer, &err) != AG_OK)
        return complain_settings(&err);
    sampling_options as_set = c->o.sampling;
    ag_sampler_params params = sampling_params(&as_set, c->n_context);
    params.seed = seed_of_answer(c);
    if (ag_sampler_create(&params, (int32_t)c->engine.info.n_vocab, out, &err) != AG_OK)
        return complain_settings(&err);
    const size_t window = params.dry_multiplier != 0 && params.dry_window > params.repetition_window
                              ? params.dry_window
                              : params.repetition_window;
    for (size_t i = n_read > window ? n_read - window : 0; i < n_read; i++)
        ag_sampler_accept(*out, c->consumed.data[i]);
    return EXIT_DONE;
}

/* Applies the constraint from its start: every answer must meet it. Without one, the calls of tools
 * obey the tools' parameters. */
static int constrain(chat *c, ag_sampler *sampler) {
    ag_error err;
    ag_constraint *text = c->constraint.text;
    if (c->tools_text && !constraint_is_set(&c->o.constraint))
        return constraint_open_calls(&c->constraint, &c->o.constraint, c->transcript.chat,
                                     &c->engine, sampler);
    if (!text) return constraint_open(&c->constraint, &c->o.constraint, &c->engine, sampler);
    ag_status st = ag_constraint_reset(text, &err);
    if (st == AG_OK) st = ag_sampler_constrain(sampler, text, &err);
    return st == AG_OK ? EXIT_DONE : complain_error(&err);
}

/* Removes the token that ends the answer, if it is present. */
static void drop_stop_id(answer *a) {
    size_t n;
    const int32_t *stops = ag_chat_format_stop_ids(a->c->transcript.format, &n);
    for (size_t i = 0; a->ids.n && i < n; i++)
        if (a->ids.data[a->ids.n - 1] == stops[i]) {
            a->ids.n--;
            return;
        }
}

static bool on_progress(void *user, uint64_t done, uint64_t total) {
    const answer *a = user;
    line_reader_collect(a->c->lines);
    return progress_update(NULL, done, total);
}

static ag_generate_params generation(answer *a, ag_sampler *sampler) {
    ag_generate_params p = ag_generate_defaults();
    p.max_tokens = a->c->o.max_tokens;
    p.stop = ag_chat_format_stops(a->c->transcript.format, &p.n_stop);
    p.sampler = sampler;
    p.tokenizer = a->c->engine.tokenizer;
    p.keep_special = true;
    p.on_token = on_token;
    p.on_token_user = a;
    p.progress = on_progress;
    p.progress_user = a;
    speculation_apply(&a->c->o.speculation, &p);
    p.draft = a->c->draft.session;
    return p;
}

/* Generates from the session's current position. */
static int generate(answer *a, size_t n_read, ag_sampler *sampler) {
    chat *c = a->c;
    ag_error err;
    const ag_generate_params params = generation(a, sampler);
    progress_begin("reading");
    interrupt_register(c->engine.session);
    ag_status st = ag_session_generate(c->engine.session, a->prompt.data + n_read,
                                       a->prompt.n - n_read, &params, &c->last.stats, &err);
    interrupt_unregister(c->engine.session);
    progress_end();
    if (st == AG_OK && a->err.status != AG_OK) err = a->err, st = a->err.status;
    int code = chat_note_consumed(c, a->prompt.data, a->prompt.n);
    const size_t n = a->prompt.n;
    for (size_t i = 0; i < a->ids.n && code == EXIT_DONE; i++)
        if (c->consumed.n == n + i && n + i < ag_session_position(c->engine.session) &&
            !ids_add(&c->consumed, a->ids.data[i]))
            code = complain_no_memory();
    return st == AG_OK ? code : complain_error(&err);
}

/* Generates the answer. A cancellation of the previous answer may arrive late and end this one;
 * then tries once more. */
static int generate_with_retry(answer *a, ag_sampler *sampler) {
    chat *c = a->c;
    for (int i = 0;; i++) {
        size_t n;
        int code = chat_match(c, &a->prompt, &n);
        c->last.n_reused = n;
        if (code == EXIT_DONE) code = chat_check_space(c, &a->prompt);
        if (code == EXIT_DONE) code = generate(a, n, sampler);
        const bool cancelled = c->last.stats.finish == AG_FINISH_CANCELLED;
        if (code != EXIT_DONE || i || a->ids.n || !cancelled || interrupted()) return code;
    }
}

static void count_tokens(chat *c) {
    c->n_read += c->last.stats.n_prompt;
    c->n_reused += c->last.n_reused;
    c->n_made += c->last.stats.n_generated;
}

static void report_stopped(const answer *a) {
    if (!a->c->is_terminal) return;
    chat_note(a->c, "%s",
              a->ids.n ? "stopped; the conversation continues from here"
                       : "stopped before the answer; the message is removed");
}

/* Reports how the answer ended. An empty answer is always reported, also with -q. */
static void report_finish(const answer *a) {
    const chat *c = a->c;
    const ag_generate_stats *s = &c->last.stats;
    const bool nothing = !a->has_content && !ag_chat_parser_n_calls(a->parser);
    const char *thought = a->has_reasoning ? "reasoned and " : "";
    if (s->finish == AG_FINISH_CANCELLED) report_stopped(a);
    else if (s->finish == AG_FINISH_CONTEXT)
        complain("the context of %u tokens is full: use a larger -c, /clear, or a --kv-policy that "
                 "evicts turns",
                 c->n_context);
    else if (s->finish == AG_FINISH_MAX_TOKENS && nothing)
        complain("the model %sgave no answer within %zu tokens (-n)", thought, s->n_generated);
    else if (s->finish == AG_FINISH_MAX_TOKENS && constraint_is_unmet(&c->constraint, s->finish))
        complain("the answer was cut off after %zu tokens (-n), before it met the constraint",
                 s->n_generated);
    else if (s->finish == AG_FINISH_MAX_TOKENS)
        chat_note(c, "the answer was cut off after %zu tokens (-n)", s->n_generated);
    else if (nothing) complain("the model %sgave an empty answer", thought);
}

static int finish_answer(answer *a) {
    ag_error err;
    chat *c = a->c;
    ag_status st = ag_chat_parser_finish(a->parser, &err);
    if (st != AG_OK) return complain_error(&err);
    write_deltas(a);
    set_dim(a, false);
    word_wrap_flush(&a->wrap);
    if (a->wrote && !a->ends_in_newline) output_write("\n", 1);
    drop_stop_id(a);
    count_tokens(c);
    report_finish(a);
    if (c->last.stats.finish == AG_FINISH_CANCELLED && !a->ids.n) return EXIT_INTERRUPTED;
    return transcript_add_answer(&c->transcript, a->parser, a->ids.data, a->ids.n);
}

int chat_answer(chat *c) {
    ag_error err;
    answer a = {.c = c, .wrap = word_wrap_begin()};
    ag_sampler *sampler = NULL;
    c->last = (chat_answer_stats){.seed = seed_of_answer(c)};
    int code = transcript_render(&c->transcript, &a.prompt);
    if (code == EXIT_DONE && !a.prompt.n)
        code = complain_usage("the prompt is empty: there is no token to start from");
    if (code == EXIT_DONE && ag_chat_parser_create(c->transcript.chat, &a.parser, &err) != AG_OK)
        code = complain_error(&err);
    size_t n_known = ag_chat_common_prefix(&c->consumed, &a.prompt);
    if (n_known && n_known == a.prompt.n) n_known--;
    if (code == EXIT_DONE) code = make_sampler(c, n_known, &sampler);
    if (code == EXIT_DONE) code = constrain(c, sampler);
    if (code == EXIT_DONE) code = generate_with_retry(&a, sampler);
    if (code == EXIT_DONE) code = finish_answer(&a);
    word_wrap_flush(&a.wrap);
    set_dim(&a, false);
    ag_sampler_destroy(sampler);
    ag_chat_parser_destroy(a.parser);
    ag_ids_free(&a.prompt);
    free(a.ids.data);
    return output_failed() ? EXIT_FAILED : code;
}

int chat_send(chat *c, const char *text) {
    const size_t n = c->transcript.n;
    int code = transcript_add(&c->transcript, "user", text);
    c->attempt = 0;
    if (code == EXIT_DONE) code = chat_answer(c);
    if (code != EXIT_DONE && c->transcript.n == n + 1) transcript_truncate(&c->transcript, n);
    chat_show_call(c);
    return code;
}
