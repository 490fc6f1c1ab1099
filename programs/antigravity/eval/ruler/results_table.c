/* SPDX-License-Identifier: Apache-2.0 */
#include "results_table.h"

#include "../../command.h"
#include "../../terminal/output.h"
#include "score.h"

#include <math.h>
#include <stdlib.h>

static const double solved_share = 0.8;

static const table_column columns[] = {
    {"task", "task", TABLE_TEXT, 0, 0, 15},
    {"length", "length", TABLE_NUMBER, 0, 0, 6},
    {"policy", "policy", TABLE_TEXT, 0, 0, 9},
    {"removed", "removed", TABLE_SHARE, 1, 0, 7},
    {"score", "score", TABLE_SHARE, 1, 0, 7},
    {"solved", "solved", TABLE_TEXT, 0, 0, 6},
    {"ratio", "kept / full", TABLE_NUMBER, 3, 0, 11},
    {"ratio_interval", "95 %", TABLE_TEXT, 0, 0, 14},
    {"difference_interval", "difference, 95 %", TABLE_TEXT, 0, 3, 16},
    {"kv_bytes", "cache", TABLE_BYTES, 0, 1, 10},
    {"freed_bytes", "freed", TABLE_BYTES, 0, 1, 10},
    {"evict_ms", "evict ms", TABLE_NUMBER, 2, 2, 8},
    {"decode_tok_per_s", "decode tok/s", TABLE_NUMBER, 1, 2, 12},
};

void ruler_table_open(result_table *t, table_format format) {
    *t = (result_table){
        .format = format, .columns = columns, .n = sizeof columns / sizeof columns[0]};
}

size_t ruler_n_rows(const ruler_settings *s) { return 1 + s->n_methods * s->n_ratios; }

static const ruler_result *result_at(const ruler_block *b, size_t i, size_t row) {
    return &b->results[i * ruler_n_rows(b->settings) + row];
}

static void scores_of(const ruler_block *b, size_t row, double *scores) {
    for (size_t i = 0; i < b->n_prompts; i++) scores[i] = result_at(b, i, row)->score;
}

static double mean_score(const ruler_block *b, size_t row) {
    double sum = 0;
    for (size_t i = 0; i < b->n_prompts; i++) sum += result_at(b, i, row)->score;
    return sum / (double)b->n_prompts;
}

bool ruler_is_solved(const ruler_block *b) { return mean_score(b, 0) >= solved_share; }

/* Means over the prompts. */
typedef struct means {
    double n_read, n_retained, n_replayed, kv_bytes, evict_s, decode_per_s;
} means;

static means means_of(const ruler_block *b, size_t row) {
    means m = {0};
    double decode_s = 0, n_decoded = 0;
    const double n = (double)b->n_prompts;
    for (size_t i = 0; i < b->n_prompts; i++) {
        const ruler_result *r = result_at(b, i, row);
        m.n_read += r->n_read / n;
        m.n_retained += r->n_retained / n;
        m.n_replayed += (double)r->n_replayed / n;
        m.kv_bytes += (double)r->kv_bytes / n;
        m.evict_s += r->evict_s / n;
        decode_s += r->decode_s;
        n_decoded += (double)r->n_decoded;
    }
    m.decode_per_s = decode_s > 0 ? n_decoded / decode_s : 0;
    return m;
}

static json_t *range(double low, double high, const char *format, double scale) {
    char text[48];
    if (!isfinite(low) || !isfinite(high)) return json_null();
    snprintf(text, sizeof text, format, low * scale, high * scale);
    return json_string(text);
}

static json_t *score_list(const double *scores, size_t n) {
    json_t *list = json_array();
    for (size_t i = 0; list && i < n; i++) json_append(&list, json_real(scores[i]));
    return list;
}

static json_t *row_of(const ruler_block *b, size_t row, const double *full, double *scores) {
    const ruler_settings *s = b->settings;
    const bool evicts = row > 0;
    const means all = means_of(b, 0), m = means_of(b, row);
    scores_of(b, row, scores);
    const paired_scores p = ruler_compare(full, scores, b->n_prompts);
    const double none = (double)NAN;
    const json_field fields[] = {
        {"task", json_string(b->task)},
        {"length", json_integer(b->length)},
        {"policy", json_string(evicts ? s->methods[(row - 1) / s->n_ratios].name : "none")},
        {"removed", evicts ? json_real(s->ratios[(row - 1) % s->n_ratios]) : json_null()},
        {"score", json_real(mean_score(b, row))},
        {"solved", json_string(ruler_is_solved(b) ? "yes" : "no")},
        {"ratio", json_number(evicts ? p.ratio.mean : none)},
        {"ratio_low", json_number(evicts ? p.ratio.low : none)},
        {"ratio_high", json_number(evicts ? p.ratio.high : none)},
        {"ratio_interval",
         evicts ? range(p.ratio.low, p.ratio.high, "%.3f to %.3f", 1) : json_null()},
        {"difference", json_number(evicts ? p.difference.mean : none)},
        {"difference_low", json_number(evicts ? p.difference.low : none)},
        {"difference_high", json_number(evicts ? p.difference.high : none)},
        {"difference_interval",
         evicts ? range(p.difference.low, p.difference.high, "%+.1f to %+.1f", 100) : json_null()},
        {"kv_bytes", json_real(m.kv_bytes)},
        {"freed_bytes", json_number(evicts ? all.kv_bytes - m.kv_bytes : none)},
        {"evict_ms", json_number(evicts ? m.evict_s * 1e3 : none)},
        {"decode_tok_per_s", json_number(m.decode_per_s > 0 ? m.decode_per_s : none)},
        {"tokens_read", json_real(m.n_read)},
        {"tokens_kept", json_real(m.n_retained)},
        {"tokens_replayed", json_real(m.n_replayed)},
        {"prompts", json_integer((json_int_t)b->n_prompts)},
        {"first_prompt", b->of_tasks ? json_null() : json_integer((json_int_t)b->first_prompt)},
        {"scores", b->of_tasks ? json_null() : score_list(scores, b->n_prompts)},
    };
    return JSON_FIELDS(fields);
}

int ruler_table_add(result_table *t, const ruler_block *b) {
    double *full = malloc(2 * b->n_prompts * sizeof *full), *scores = full + b->n_prompts;
    if (!full) return complain_no_memory();
    int code = EXIT_DONE;
    scores_of(b, 0, full);
    for (size_t row = 0; row < ruler_n_rows(b->settings) && code == EXIT_DONE; row++)
        code = table_add(t, row_of(b, row, full, scores));
    free(full);
    return code;
}
