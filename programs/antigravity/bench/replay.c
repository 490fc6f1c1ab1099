/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a recorded text with and without drafts, alternating. The gain of drafts depends on the
 * text; random weights generate none that repeats. */
#include "bench.h"

#include "../command.h"
#include "../support/input.h"
#include "../support/statistics.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"

#include <stdlib.h>
#include <string.h>

/* ---- the recording ---- */

static bool read_ids(const json_t *list, ag_ids *out) {
    const size_t n = json_array_size(list);
    out->data = calloc(n ? n : 1, sizeof *out->data);
    if (!out->data) return false;
    for (size_t i = 0; i < n; i++) {
        const json_int_t id = json_integer_value(json_array_get(list, i));
        out->data[out->n++] = id >= 0 && id <= INT32_MAX ? (int32_t)id : 0;
    }
    return true;
}

int bench_recording_read(const char *path, bench_recording *out) {
    json_error_t error;
    *out = (bench_recording){.path = path};
    int code = input_check("replay", path, "'antigravity generate --json' prints such a file");
    if (code != EXIT_DONE) return code;
    json_t *root = json_load_file(path, 0, &error);
    if (!root) return complain_failure("%s: line %d: %s", path, error.line, error.text);
    const json_t *read = json_object_get(root, "prompt_ids"), *ids = json_object_get(root, "ids");
    if (!json_array_size(read) || json_array_size(ids) < 2)
        code = complain_failure(
            "%s: \"prompt_ids\" and \"ids\" must be lists of tokens, as printed by generate --json",
            path);
    else if (!read_ids(read, &out->prompt) || !read_ids(ids, &out->ids))
        code = complain_no_memory();
    json_decref(root);
    return code;
}

void bench_recording_free(bench_recording *r) {
    free(r->prompt.data);
    free(r->ids.data);
}

/* Maps the ids into a smaller vocabulary. Equal ids stay equal. */
static void fit_vocabulary(ag_ids *ids, uint32_t n_vocab) {
    for (size_t i = 0; i < ids->n; i++) ids->data[i] %= (int32_t)n_vocab;
}

/* ---- the measuring ---- */

typedef struct replay {
    bench *b;
    const bench_recording *text;
    double plain[MAX_REPETITIONS], drafted[MAX_REPETITIONS], gain[MAX_REPETITIONS];
    ag_generate_stats stats; /* from the last run with drafts */
    ag_error err;
} replay;

static ag_status create_sampler(const replay *r, ag_sampler **out, ag_error *err) {
    ag_sampler_params greedy = ag_sampler_defaults();
    greedy.temperature = 0;
    greedy.repetition_penalty = 1;
    ag_status status = ag_sampler_create(&greedy, (int32_t)r->b->engine.info.n_vocab, out, err);
    if (status == AG_OK) ag_sampler_replay(*out, r->text->ids.data, r->text->ids.n);
    return status;
}

/* Sets *rate to the tokens per second of a new session, as a user sees it. */
static ag_status time_once(replay *r, ag_speculate how, double *rate) {
    const bench_options *o = r->b->o;
    const bench_recording *text = r->text;
    const uint32_t n_slots = (uint32_t)(text->prompt.n + text->ids.n);
    const ag_session_params params = session_params(&o->model, n_slots);
    ag_generate_params p = ag_generate_defaults();
    ag_generate_stats stats;
    ag_session *session;
    ag_status status = ag_session_create(r->b->engine.model, &params, &session, &r->err);
    if (status != AG_OK) return status;
    interrupt_register(session);
    p.max_tokens = (int64_t)text->ids.n;
    p.ignore_eos = true;
    p.on_token = bench_keep_going;
    p.speculate = how;
    p.draft_max = o->draft_max;
    status = create_sampler(r, &p.sampler, &r->err);
    if (status == AG_OK) {
        status =
            ag_session_generate(session, text->prompt.data, text->prompt.n, &p, &stats, &r->err);
    }
    ag_sampler_destroy(p.sampler);
    interrupt_unregister(session);
    ag_session_destroy(session);
    if (status != AG_OK) return status;
    if (stats.finish == AG_FINISH_CANCELLED) return r->err.status = AG_CANCELLED;
    *rate = stats.decode_s > 0 ? (double)(stats.n_generated - 1) / stats.decode_s : 0;
    if (how != AG_SPECULATE_OFF) r->stats = stats;
    return AG_OK;
}

/* Alternates both modes, after a warm-up run of each. The first mode alternates as well. */
static ag_status measure(replay *r) {
    double rates[2];
    for (uint32_t i = 0; i <= r->b->o->repetitions; i++) {
        for (uint32_t turn = 0; turn < 2; turn++) {
            const bool drafts = (i + turn) % 2;
            const ag_speculate how = drafts ? AG_SPECULATE_AUTO : AG_SPECULATE_OFF;
            ag_status status = time_once(r, how, &rates[drafts]);
            if (status != AG_OK) return status;
        }
        if (!i) continue;
        r->plain[i - 1] = rates[0];
        r->drafted[i - 1] = rates[1];
        r->gain[i - 1] = rates[0] > 0 ? rates[1] / rates[0] : 0;
    }
    return AG_OK;
}

static double median_of(double *x, size_t n) {
    sort_ascending(x, n);
    return percentile(x, n, 0.5);
}

static json_t *row_of(replay *r) {
    const bench *b = r->b;
    const size_t n = b->o->repetitions;
    const char *slash = strrchr(r->text->path, '/'), *name = slash ? slash + 1 : r->text->path;
    const double gain = median_of(r->gain, n);
    const json_field fields[] = {
        {"model", json_text(b->name, strlen(b->name))},
        {"backend", json_string(ag_backend_name(b->engine.backend))},
        {"threads", json_integer((json_int_t)ag_backend_threads(b->engine.backend))},
        {"text", json_text(name, strlen(name))},
        {"n_prompt", json_integer((json_int_t)r->text->prompt.n)},
        {"n_gen", json_integer((json_int_t)r->text->ids.n)},
        {"plain", json_real(median_of(r->plain, n))},
        {"drafts", json_real(median_of(r->drafted, n))},
        {"gain", json_real(gain)},
        {"gain_min", json_real(r->gain[0])},
        {"gain_max", json_real(r->gain[n - 1])},
        {"n_drafted", json_integer((json_int_t)r->stats.n_drafted)},
        {"n_accepted", json_integer((json_int_t)r->stats.n_accepted)},
    };
    return JSON_FIELDS(fields);
}

static const table_column columns[] = {
    {"model", "model", TABLE_TEXT, 0, 4, 12},
    {"backend", "backend", TABLE_TEXT, 0, 4, 7},
    {"threads", "threads", TABLE_NUMBER, 0, 1, 7},
    {"text", "text", TABLE_TEXT, 0, 0, 14},
    {"n_prompt", "prompt", TABLE_NUMBER, 0, 3, 6},
    {"n_gen", "tokens", TABLE_NUMBER, 0, 2, 6},
    {"plain", "tokens/s", TABLE_NUMBER, 2, 0, 8},
    {"drafts", "with drafts", TABLE_NUMBER, 2, 0, 8},
    {"gain", "gain", TABLE_NUMBER, 3, 0, 6},
    {"gain_min", "lowest", TABLE_NUMBER, 3, 0, 6},
    {"gain_max", "highest", TABLE_NUMBER, 3, 0, 6},
    {"n_drafted", "drafted", TABLE_NUMBER, 0, 1, 7},
    {"n_accepted", "accepted", TABLE_NUMBER, 0, 1, 8},
};

result_table bench_replay_table(table_format format) {
    return (result_table){
        .format = format, .columns = columns, .n = sizeof columns / sizeof columns[0]};
}

int bench_replay(bench *b, bench_recording *text, result_table *table) {
    replay r = {.b = b, .text = text};
    fit_vocabulary(&text->prompt, b->engine.info.n_vocab);
    fit_vocabulary(&text->ids, b->engine.info.n_vocab);
    progress_begin(text->path);
    ag_status status = measure(&r);
    progress_end();
    if (status != AG_OK) return complain_error(&r.err);
    return table_add(table, row_of(&r));
}
