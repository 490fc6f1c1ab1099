/* SPDX-License-Identifier: Apache-2.0 */
#include "generate.h"

#include "command.h"
#include "terminal/interrupt.h"
#include "terminal/output.h"
#include "terminal/progress.h"

#include <antigravity/antigravity.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Drops one newline at the end, as shells do with $(...): prompts are often piped in with echo. */
static void drop_last_newline(prompt *p) {
    if (p->len && p->text[p->len - 1] == '\n') p->len--;
    if (p->len && p->text[p->len - 1] == '\r') p->len--;
    p->text[p->len] = '\0';
}

static int read_prompt(generation *g) {
    generate_options *o = &g->o;
    if (o->saved.load) o->prompt.no_bos = true; /* the loaded text has a BOS */
    if (o->saved.load && !o->prompt.text && !o->prompt.file && !o->prompt.ids &&
        isatty(STDIN_FILENO)) {
        o->prompt.text = "";
    }
    int code = prompt_read(&g->prompt, &o->prompt);
    if (code != EXIT_DONE || o->prompt.text || o->prompt.ids) return code;
    drop_last_newline(&g->prompt);
    return EXIT_DONE;
}

/* Encodes the prompt. Reports all faults of prompt and model before the weights are read. */
static int prepare_prompt(generation *g) {
    const generate_options *o = &g->o;
    const engine *e = &g->engine;
    prompt *p = &g->prompt;
    int code = o->chat ? generate_chat_encode(g) : engine_encode(e, p, &o->prompt);
    if (code == EXIT_DONE && o->n_stop) code = engine_need_tokenizer(e, "--stop needs one");
    if (code != EXIT_DONE) return code;
    if (!p->n && !o->saved.load)
        return complain_usage("the prompt is empty: there is no token to start from");
    g->n_context = context_length(&o->model, &e->info);
    if (p->n > g->n_context && !strcmp(eviction_policy_name(&o->model.eviction), "none"))
        return complain_failure("the prompt is too long: %zu tokens, the context holds %" PRIu32
                                " (--max-seq-len; the model was trained for %" PRIu32
                                "); --eviction-policy streaming reads it in a bounded cache",
                                p->n, g->n_context, e->info.max_positions);
    generate_advise(g);
    return EXIT_DONE;
}

/* Creates the sampler. Invalid sampling options are EXIT_USAGE, although only the vocabulary shows
 * them. */
static int create_sampler(generation *g) {
    ag_error err;
    ag_status status = sampling_prepare(&g->o.sampling, g->engine.tokenizer, &err);
    if (status != AG_OK) return complain_settings(&err);
    ag_sampler_params params = sampling_params(&g->o.sampling, g->n_context);
    status = ag_sampler_create(&params, (int32_t)g->engine.info.n_vocab, &g->sampler, &err);
    if (status != AG_OK) return complain_settings(&err);
    return constraint_open(&g->constraint, &g->o.constraint, &g->engine, g->sampler);
}

/* ---- output ---- */

static bool print(generation *g, const char *text, size_t len) {
    if (!len || g->o.json) return true;
    progress_end();
    g->wrote = true;
    g->ends_in_newline = text[len - 1] == '\n';
    return output_show(text, len);
}

static bool print_id(generation *g, int32_t id) {
    char digits[16];
    int n = snprintf(digits, sizeof digits, "%s%" PRId32, g->wrote ? " " : "", id);
    return print(g, digits, (size_t)n);
}

static bool store_text(generation *g, const char *text, size_t len) {
    text_append(&g->text, text, len);
    return !g->text.failed;
}

/* Prints or stores text of the answer. */
static bool put_text(generation *g, const char *text, size_t len) {
    g->wrote_text = g->wrote_text || len;
    if (!g->o.json) return print(g, text, len);
    g->out_of_memory = !store_text(g, text, len);
    return !g->out_of_memory;
}

static bool on_token(void *user, int32_t id, const char *text, size_t len) {
    generation *g = user;
    progress_end();
    if (id >= 0 && !ids_add(&g->saved.ids, id)) {
        g->out_of_memory = true;
        return false;
    }
    if (g->o.json && id >= 0 && !ids_add(&g->ids, id)) {
        g->out_of_memory = true;
        return false;
    }
    bool ok = g->parser ? generate_chat_read(g, text, len, id < 0, put_text)
              : g->engine.tokenizer || id < 0 || g->o.json ? put_text(g, text, len)
                                                           : print_id(g, id);
    return ok && !interrupted();
}

/* Prints or stores the prompt as text; decodes ids if there is a tokenizer. */
static int echo_prompt(generation *g) {
    const prompt *p = &g->prompt;
    ag_error err;
    ag_text decoded = {0};
    bool ok = true;
    if (p->text) {
        ok = g->o.json ? store_text(g, p->text, p->len) : print(g, p->text, p->len);
    } else if (g->engine.tokenizer) {
        if (ag_tokenizer_decode(g->engine.tokenizer, p->ids, p->n, g->o.keep_special, &decoded,
                                &err) != AG_OK)
            return complain_error(&err);
        if (decoded.len)
            ok = g->o.json ? store_text(g, decoded.data, decoded.len)
                           : print(g, decoded.data, decoded.len);
        ag_text_free(&decoded);
    } else {
        for (size_t i = 0; i < p->n && ok; i++) ok = print_id(g, p->ids[i]);
    }
    /* A write error is reported when the command ends. */
    return ok ? EXIT_DONE : EXIT_FAILED;
}

/* ---- the run ---- */

static ag_status generate_from(generation *g, const ag_generate_params *params, ag_error *err) {
    const prompt *p = &g->prompt;
    const size_t first = g->saved.n_reused;
    return ag_session_generate(g->engine.session, p->ids + first, p->n - first, params, &g->stats,
                               err);
}

/* Compresses the cache to the tokens needed to repeat what was read. */
static int compress(generation *g) {
    const size_t n = ag_session_position(g->engine.session);
    if (g->saved.ids_are_unknown || g->saved.ids.n < n)
        return complain_failure("--replay: %s has no token ids to repeat",
                                g->o.saved.load ? g->o.saved.load : "the cache");
    return replay_compress(&g->o.replay, &g->engine, g->engine.session, g->saved.ids.data, n,
                           &g->replayed);
}

/* Reads the prompt alone, so that its cache can be compressed and saved before tokens follow. */
static int read_and_save(generation *g, const ag_generate_params *params, ag_status *status,
                         ag_error *err) {
    ag_generate_params only_read = *params;
    only_read.max_tokens = 0;
    *status = generate_from(g, &only_read, err);
    if (*status != AG_OK || g->stats.finish == AG_FINISH_CANCELLED) return EXIT_DONE;
    progress_end();
    int code = g->o.replay.share != 0 ? compress(g) : EXIT_DONE;
    if (code != EXIT_DONE || interrupted()) return code;
    return saved_after_prompt(&g->saved, &g->o.saved, &g->engine, &g->prompt);
}

/* Generates after a prompt that was read; adds its statistics. */
static ag_status answer(generation *g, const ag_generate_params *params, ag_error *err) {
    const ag_generate_stats read = g->stats;
    ag_status status = ag_session_generate(g->engine.session, NULL, 0, params, &g->stats, err);
    g->stats.n_prompt = read.n_prompt;
    g->stats.prefill_s = read.prefill_s;
    if (g->stats.n_generated) g->stats.first_token_s += read.prefill_s;
    ag_eviction_stats *all = &g->stats.evictions;
    all->n_evictions += read.evictions.n_evictions;
    all->n_tokens += read.evictions.n_tokens;
    all->bytes_returned += read.evictions.bytes_returned;
    all->seconds += read.evictions.seconds;
    return status;
}

static ag_generate_params generate_params(generation *g) {
    const generate_options *o = &g->o;
    ag_generate_params params = ag_generate_defaults();
    params.max_tokens = o->max_tokens;
    params.ignore_eos = o->ignore_eos;
    params.stop = o->stop;
    params.n_stop = o->n_stop;
    params.sampler = g->sampler;
    params.tokenizer = g->engine.tokenizer;
    params.keep_special = o->keep_special || g->parser;
    params.on_token = on_token;
    params.on_token_user = g;
    params.progress = progress_update;
    speculation_apply(&o->speculation, &params);
    params.draft = g->draft.session;
    return params;
}

/* Returns whether the prompt needs a step of its own, so that its cache can be compressed or saved.
 */
static bool reads_prompt_first(const generation *g) {
    const bool compresses = g->o.replay.share != 0;
    /* A prompt's own cache was compressed when it was saved; a loaded conversation may not be. */
    if (compresses && g->o.saved.load) return true;
    return (compresses || g->o.saved.prompt) && g->saved.n_reused < g->prompt.n;
}

static int generate_text(generation *g, ag_status *status, ag_error *err) {
    const ag_generate_params params = generate_params(g);
    if (!reads_prompt_first(g)) {
        *status = generate_from(g, &params, err);
        return EXIT_DONE;
    }
    const int code = read_and_save(g, &params, status, err);
    const bool more = *status == AG_OK && g->stats.finish != AG_FINISH_CANCELLED && g->o.max_tokens;
    if (code == EXIT_DONE && more) *status = answer(g, &params, err);
    return code;
}

static void finish_output(generation *g) {
    if (g->parser) generate_chat_read(g, "", 0, true, put_text);
    if (g->wrote && !g->ends_in_newline) print(g, "\n", 1);
}

/* Reports a failure, or what the text lacks. Returns an exit code. */
static int check_outcome(const generation *g, ag_status status, const ag_error *err) {
    if (g->out_of_memory) return complain_no_memory();
    /* A terminal that closes also closes standard output. The conversation is saved
     * nevertheless. */
    if (output_failed() && !interrupted()) return EXIT_FAILED;
    if (status != AG_OK && status != AG_CANCELLED) return complain_error(err);
    if (generate_is_cut_off(g)) report_cut_off(g);
    else if (g->stats.finish == AG_FINISH_CONTEXT) report_context_full(g);
    generate_report_empty(g);
    return EXIT_DONE;
}

static int run(generation *g) {
    ag_error err;
    ag_status status;
    progress_begin("reading the prompt");
    int code = generate_text(g, &status, &err);
    progress_end();
    finish_output(g);
    if (code == EXIT_DONE) code = check_outcome(g, status, &err);
    if (code == EXIT_DONE) code = saved_end(&g->saved, &g->o.saved, &g->engine, g->o.model.verbose);
    if (code == EXIT_DONE && output_failed()) code = EXIT_FAILED;
    if (code != EXIT_DONE) return code;
    return interrupted() ? EXIT_INTERRUPTED : EXIT_DONE;
}

static int generate(generation *g) {
    const model_options *m = &g->o.model;
    engine *e = &g->engine;
    int code = read_prompt(g);
    if (code == EXIT_DONE) code = engine_inspect(e, m);
    if (code == EXIT_DONE) code = prepare_prompt(g);
    if (code == EXIT_DONE) code = create_sampler(g);
    if (code == EXIT_DONE) code = engine_load_session(e, m, g->n_context);
    if (code == EXIT_DONE) code = draft_open(&g->draft, e, &g->o.speculation, m, g->n_context);
    if (code == EXIT_DONE) code = saved_begin(&g->saved, &g->o.saved, e, &g->prompt, g->sampler, m);
    if (code == EXIT_DONE && g->o.echo) code = echo_prompt(g);
    if (code != EXIT_DONE) return code;
    code = run(g);
    if (code != EXIT_DONE && code != EXIT_INTERRUPTED) return code;
    if (!m->quiet) report_statistics(g);
    int printed = g->o.json ? report_json(g) : EXIT_DONE;
    if (printed != EXIT_DONE) return printed;
    return code == EXIT_DONE && generate_is_cut_off(g) ? EXIT_FAILED : code;
}

int command_generate(int argc, char **argv) {
    generation g = {.wrote = false};
    int code = generate_parse(&g.o, argc, argv);
    if (code == OPTIONS_RUN) {
        interrupt_install();
        code = generate(&g);
    }
    ag_sampler_destroy(g.sampler);
    constraint_close(&g.constraint);
    draft_close(&g.draft);
    engine_close(&g.engine);
    prompt_free(&g.prompt);
    saved_free(&g.saved);
    generate_chat_free(&g);
    free(g.ids.data);
    text_release(&g.text);
    generate_options_free(&g.o);
    return code;
}
