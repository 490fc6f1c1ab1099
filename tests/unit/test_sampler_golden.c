/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the candidates of random rows with those that llama.cpp's samplers leave, as
 * tools/make_sampler_golden.py recorded them: each sampler alone and all by chance. */
#include "support/failing_allocator.h"
#include "text/candidates.h"

#include <antigravity/antigravity.h>

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_VOCAB = 4096 };

/* The recording tool's generator. */
static uint32_t next_random(uint32_t *x, uint32_t n) {
    *x = *x * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*x >> 8) * n >> 24);
}

static double unit(uint32_t *x) { return next_random(x, 1 << 24) / (double)(1 << 24); }

static float number(const json_t *params, const char *key, float usual) {
    const json_t *v = json_object_get(params, key);
    return v ? (float)json_number_value(v) : usual;
}

static ag_sampler_params params_of(const json_t *row, ag_dry_breakers *breakers) {
    const json_t *p = json_object_get(row, "params");
    const uint32_t window = (uint32_t)json_integer_value(json_object_get(row, "window"));
    return (ag_sampler_params){
        .repetition_penalty = number(p, "repetition_penalty", 1),
        .repetition_window = window,
        .presence_penalty = number(p, "presence_penalty", 0),
        .frequency_penalty = number(p, "frequency_penalty", 0),
        .dry_multiplier = number(p, "dry_multiplier", 0),
        .dry_base = number(p, "dry_base", 1),
        .dry_allowed_length = (uint32_t)number(p, "dry_allowed_length", 2),
        .dry_window = window,
        .dry_breakers = breakers,
        .top_n_sigma = number(p, "top_n_sigma", 0),
        .top_k = (uint32_t)number(p, "top_k", 0),
        .typical_p = number(p, "typical_p", 1),
        .top_p = number(p, "top_p", 1),
        .min_p = number(p, "min_p", 0),
        .xtc_probability = number(p, "xtc_probability", 0),
        .xtc_threshold = number(p, "xtc_threshold", 1),
        .temperature = number(p, "temperature", 1),
        .dynamic_range = number(p, "dynamic_range", 0),
        .dynamic_exponent = number(p, "dynamic_exponent", 1),
    };
}

/* Makes the text and the logits of row i, as the tool does. */
static void make_row(uint32_t i, size_t n_vocab, ag_sampler *s, float *logits) {
    uint32_t x = i, words[16];
    const uint32_t spread = 4 + next_random(&x, 16), n_words = 2 + next_random(&x, 12);
    for (uint32_t k = 0; k < n_words; k++) words[k] = next_random(&x, (uint32_t)n_vocab);
    for (uint32_t k = next_random(&x, 120); k > 0; k--)
        ag_sampler_accept(s, (int32_t)words[next_random(&x, n_words)]);
    for (size_t k = 0; k < n_vocab; k++) {
        const double a = unit(&x) * spread;
        logits[k] = (float)(a + (unit(&x) - 0.5) * spread);
    }
}

static void check_row(uint32_t i, const json_t *row, const ag_candidates *c) {
    const json_t *ids = json_object_get(row, "ids"), *p = json_object_get(row, "p");
    const json_int_t n = json_integer_value(json_object_get(row, "n"));
    double sum = 0;
    char *text = json_dumps(json_object_get(row, "params"), 0);
    for (size_t k = 0; k < c->n; k++) sum += (double)c->weights[k];
    if ((json_int_t)c->n != n)
        fail_msg("row %u: %zu candidates, not %lld: %s", i, c->n, (long long)n, text);
    for (size_t k = 0; k < json_array_size(ids); k++) {
        const json_int_t id = json_integer_value(json_array_get(ids, k));
        const double wanted = json_real_value(json_array_get(p, k));
        size_t at = 0;
        while (at < c->n && c->ids[at] != id) at++;
        if (at == c->n) fail_msg("row %u: token %lld is not left: %s", i, (long long)id, text);
        const double got = (double)c->weights[at] / sum;
        if (fabs(got - wanted) > 1e-5) {
            fail_msg("row %u: token %lld has the probability %.7f, not %.7f: %s", i, (long long)id,
                     got, wanted, text);
        }
    }
    free(text);
}

static void agrees_with_llama_cpp(void **state) {
    (void)state;
    static float logits[MAX_VOCAB];
    const char *file = AG_SOURCE_DIR "/tests/data/samplers/llama.cpp.json";
    json_error_t e;
    json_t *all = json_load_file(file, 0, &e);
    ag_tokenizer *t;
    ag_dry_breakers *breakers;
    const char *texts[8];
    size_t n_texts = 0, i;
    json_t *row, *v;
    if (!all) fail_msg("%s: %s", file, e.text);
    assert_int_equal(ag_tokenizer_load(AG_SOURCE_DIR "/models/demo", &t, NULL), AG_OK);
    json_array_foreach(json_object_get(all, "breakers"), i, v) texts[n_texts++] =
        json_string_value(v);
    assert_int_equal(ag_dry_breakers_create(t, texts, n_texts, &breakers, NULL), AG_OK);
    const size_t n_vocab = (size_t)json_integer_value(json_object_get(all, "n_vocab"));
    assert_true(n_vocab <= MAX_VOCAB);
    json_array_foreach(json_object_get(all, "rows"), i, row) {
        const ag_sampler_params p = params_of(row, breakers);
        ag_sampler *s;
        ag_error err;
        int32_t id;
        if (ag_sampler_create(&p, (int32_t)n_vocab, &s, &err) != AG_OK) fail_msg("%s", err.msg);
        make_row((uint32_t)i, n_vocab, s, logits);
        assert_int_equal(ag_sampler_sample(s, logits, &id, &err), AG_OK);
        check_row((uint32_t)i, row, ag_sampler_candidates(s));
        ag_sampler_destroy(s);
    }
    assert_true(i >= 200);
    ag_dry_breakers_destroy(breakers);
    ag_tokenizer_destroy(t);
    json_decref(all);
}

/* Breakers without memory fail: no token of a breaker is missed. */
static void breakers_fail_without_memory(void **state) {
    (void)state;
    static const char *const texts[] = {"\n", "\xc3\xa9t\xc3\xa9"};
    failing_allocator f;
    ag_tokenizer *t;
    ag_status st = AG_NOMEM;
    ag_error err;
    assert_int_equal(ag_tokenizer_load(AG_SOURCE_DIR "/models/demo", &t, NULL), AG_OK);
    for (size_t nth = 0; st != AG_OK; nth++) {
        ag_dry_breakers *b;
        failing_install(&f, nth);
        st = ag_dry_breakers_create(t, texts, 2, &b, &err);
        if (st != AG_OK) assert_int_equal(st, AG_NOMEM);
        assert_true(st == AG_NOMEM || !atomic_load(&f.failed));
        ag_dry_breakers_destroy(b);
        assert_int_equal(atomic_load(&f.in_use), 0);
        ag_set_allocator(NULL);
        if (nth > 64) nth += nth / 4; /* thousands of tokens fail alike */
    }
    ag_tokenizer_destroy(t);
}

static void checks_parameters_of_dry(void **state) {
    (void)state;
    static const char *const texts[] = {"\n"};
    ag_dry_breakers *b;
    ag_sampler *s;
    ag_error err;
    assert_int_equal(ag_dry_breakers_create(NULL, texts, 1, &b, &err), AG_INVALID);
    assert_non_null(strstr(err.msg, "there is no tokenizer"));
    ag_sampler_params p = ag_sampler_defaults();
    p.dry_window = UINT32_MAX; /* a context; not used without a multiplier */
    assert_int_equal(ag_sampler_create(&p, 8, &s, &err), AG_OK);
    ag_sampler_destroy(s);
    p.dry_multiplier = 1;
    assert_int_equal(ag_sampler_create(&p, 8, &s, &err), AG_INVALID);
    p.dry_window = 8;
    p.dry_multiplier = -1;
    assert_int_equal(ag_sampler_create(&p, 8, &s, &err), AG_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_llama_cpp),
        cmocka_unit_test(breakers_fail_without_memory),
        cmocka_unit_test(checks_parameters_of_dry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
