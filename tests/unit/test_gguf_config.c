/* SPDX-License-Identifier: Apache-2.0 */
/* Tests models described by the metadata of GGUF files, and metadata that is rejected. */
#include "models/config.h"
#include "support/gguf_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/ag-gguf-config-XXXXXX.gguf";

static int make_path(void **state) {
    (void)state;
    const int fd = mkstemps(path, 5);
    if (fd >= 0) close(fd);
    return fd < 0;
}

static int remove_path(void **state) {
    (void)state;
    return unlink(path);
}

static void put_number(gguf_file *f, const char *arch, const char *key, float v) {
    char name[80];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    if (v == floorf(v)) gguf_put_u32(f, name, (uint32_t)v);
    else gguf_put_f32(f, name, v);
}

/* Two layers of four heads of 16. */
static gguf_file small(const char *arch) {
    static const struct {
        const char *key;
        float value;
    } sizes[] = {
        {"block_count", 2},          {"context_length", 256},
        {"embedding_length", 64},    {"feed_forward_length", 96},
        {"attention.head_count", 4}, {"attention.head_count_kv", 2},
        {"vocab_size", 40},          {"attention.layer_norm_rms_epsilon", 1e-5f},
    };
    gguf_file f = {0};
    gguf_put_string(&f, "general.architecture", arch);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        put_number(&f, arch, sizes[i].key, sizes[i].value);
    }
    return f;
}

static void put_divisors(gguf_file *f, const char *name, size_t n, float first) {
    float values[300];
    for (size_t i = 0; i < n; i++) values[i] = first + (float)i;
    gguf_put_tensor(f, name, GGML_F32, ag_shape_1d(n), values, n * sizeof *values);
}

/* Takes over f. */
static ag_status read_spec(gguf_file *f, ag_model_spec *out, ag_error *err) {
    if (!f->n_tensors) put_divisors(f, "output_norm.weight", 64, 1);
    assert_true(gguf_file_save(f, path));
    gguf_file_free(f);
    ag_weight_source *source;
    assert_int_equal(ag_source_open(path, &source, err), AG_OK);
    assert_int_equal(ag_source_open_tensors(source, err), AG_OK);
    const ag_status st = ag_spec_read(source, out, err);
    ag_source_destroy(source);
    return st;
}

static ag_model_spec good(gguf_file f) {
    ag_model_spec s;
    ag_error err = {.msg = ""};
    if (read_spec(&f, &s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static void reads_sizes_and_rotation(void **state) {
    (void)state;
    gguf_file f = small("phi3");
    gguf_put_f32(&f, "phi3.rope.freq_base", 5000);
    gguf_put_u32(&f, "phi3.rope.dimension_count", 10);
    gguf_put_u32(&f, "phi3.attention.sliding_window", 0);
    const ag_model_spec s = good(f);
    assert_string_equal(s.architecture, "Phi3ForCausalLM");
    assert_int_equal(s.hidden_size, 64);
    assert_int_equal(s.kinds[0].head_dim, 16);
    assert_int_equal(s.kinds[0].window, 0);
    assert_int_equal(s.ropes[0].n_rotated, 10);
    assert_true(s.ropes[0].theta == 5000);
    assert_int_equal(s.n_eos, 0);
}

enum { N_TOKENS = 6 };

/* Tokens that begin with "<" are special. */
static ag_model_spec with_vocabulary(const char *const tokens[N_TOKENS], uint32_t eos) {
    gguf_file f = small("phi3");
    int32_t types[N_TOKENS];
    for (size_t i = 0; i < N_TOKENS; i++) {
        types[i] = tokens[i][0] == '<' ? AG_TOKEN_CONTROL : AG_TOKEN_NORMAL;
    }
    gguf_put_string(&f, "tokenizer.ggml.model", "gpt2");
    gguf_put_strings(&f, "tokenizer.ggml.tokens", tokens, N_TOKENS);
    gguf_put_array(&f, "tokenizer.ggml.token_type", AG_GGUF_I32, types, N_TOKENS);
    gguf_put_u32(&f, "tokenizer.ggml.eos_token_id", eos);
    return good(f);
}

static bool ends_at(const ag_model_spec *s, int32_t id) {
    for (size_t i = 0; i < s->n_eos; i++) {
        if (s->eos_ids[i] == id) return true;
    }
    return false;
}

static void harmony_answers_end_at_return_and_call(void **state) {
    (void)state;
    static const char *const harmony[] = {"a", "<|end|>", "<|return|>", "<|call|>", "b", "c"};
    static const char *const others[] = {"a", "<|end|>", "<|return|>", "call", "b", "c"};
    for (uint32_t eos = 1; eos <= 2; eos++) {
        const ag_model_spec s = with_vocabulary(harmony, eos);
        assert_int_equal(s.n_eos, 2);
        assert_true(ends_at(&s, 2) && ends_at(&s, 3));
    }
    const ag_model_spec s = with_vocabulary(others, 4);
    assert_int_equal(s.n_eos, 3);
    assert_true(ends_at(&s, 1) && ends_at(&s, 2) && ends_at(&s, 4));
}

static void recognises_longrope_by_its_tensors(void **state) {
    (void)state;
    gguf_file f = small("phi3");
    gguf_put_u32(&f, "phi3.rope.scaling.original_context_length", 128);
    gguf_put_f32(&f, "phi3.rope.scaling.attn_factor", 1.25f);
    put_divisors(&f, "rope_factors_short.weight", 8, 1);
    put_divisors(&f, "rope_factors_long.weight", 8, 3);
    ag_model_spec s = good(f);
    assert_int_equal(s.ropes[0].scaling.type, AG_ROPE_LONGROPE);
    assert_true(s.ropes[0].attention_factor == 1.25f);
    assert_true(s.ropes[0].divisors[0][7] == 8 && s.ropes[0].divisors[1][7] == 10);
    assert_true(ag_spec_is_long(&s, 129) && !ag_spec_is_long(&s, 128));
    f = small("minicpm");
    put_divisors(&f, "rope_factors_short.weight", 8, 1);
    put_divisors(&f, "rope_factors_long.weight", 8, 3);
    s = good(f);
    assert_true(s.ropes[0].attention_factor == 1);
}

static void reads_the_keys_of_yarn(void **state) {
    (void)state;
    gguf_file f = small("mistral3");
    gguf_put_string(&f, "mistral3.rope.scaling.type", "yarn");
    gguf_put_f32(&f, "mistral3.rope.scaling.factor", 16);
    gguf_put_u32(&f, "mistral3.rope.scaling.original_context_length", 32);
    gguf_put_f32(&f, "mistral3.rope.scaling.yarn_beta_fast", 16);
    gguf_put_f32(&f, "mistral3.rope.scaling.yarn_log_multiplier", 0.5f);
    gguf_put_f32(&f, "mistral3.attention.temperature_scale", 0.25f);
    const ag_model_spec s = good(f);
    assert_int_equal(s.ropes[0].scaling.type, AG_ROPE_YARN);
    assert_true(s.ropes[0].scaling.beta_fast == 16 && s.ropes[0].scaling.beta_slow == 1);
    assert_float_equal(s.ropes[0].attention_factor, (0.1 * log(16) + 1) / (0.05 * log(16) + 1),
                       1e-6);
    assert_true(s.query_beta == 0.25f);
    assert_int_equal(s.query_period, 32);
}

static void reads_keys_of_a_family(void **state) {
    (void)state;
    gguf_file f = small("granite");
    put_number(&f, "granite", "embedding_scale", 12);
    put_number(&f, "granite", "residual_scale", 0.5f);
    put_number(&f, "granite", "attention.scale", 0.0625f);
    put_number(&f, "granite", "logit_scale", 8);
    const ag_model_spec s = good(f);
    assert_true(s.embedding_scale == 24 && s.kinds[0].scale == 0.0625f);
    assert_true(s.logit_factor == 0.125f);
}

static void bad_divisors(gguf_file *f) {
    put_divisors(f, "rope_factors_short.weight", 7, 1);
    put_divisors(f, "rope_factors_long.weight", 8, 1);
}

static void many_divisors(gguf_file *f) {
    put_divisors(f, "rope_factors_short.weight", 8, 1);
    put_divisors(f, "rope_factors_long.weight", 257, 1);
}

static void half_divisors(gguf_file *f) {
    put_divisors(f, "rope_factors_short.weight", 8, 1);
    gguf_put_tensor(f, "rope_factors_long.weight", GGML_F16, ag_shape_1d(8), NULL, 16);
}

static void no_short_divisors(gguf_file *f) { put_divisors(f, "rope_factors_long.weight", 8, 1); }

static void zero_divisor(gguf_file *f) {
    put_divisors(f, "rope_factors_short.weight", 8, 0);
    put_divisors(f, "rope_factors_long.weight", 8, 1);
}

static void unknown_scaling(gguf_file *f) { gguf_put_string(f, "phi3.rope.scaling.type", "ntk"); }

static void factor_as_text(gguf_file *f) {
    gguf_put_string(f, "phi3.rope.scaling.type", "linear");
    gguf_put_string(f, "phi3.rope.scaling.factor", "2");
}

static void text_as_size(gguf_file *f) { gguf_put_string(f, "phi3.attention.key_length", "16"); }

static void rejects_unsupported_models(void **state) {
    (void)state;
    static const struct {
        void (*spoil)(gguf_file *f);
        ag_status status;
        const char *reason;
    } cases[] = {
        {bad_divisors, AG_FORMAT, "short_factor is not a list of 8 numbers"},
        {many_divisors, AG_SHAPE, "rope_factors_long.weight is not a list of up to 256"},
        {half_divisors, AG_SHAPE, "rope_factors_long.weight is not a list of up to 256"},
        {no_short_divisors, AG_NOT_FOUND, "rope_factors_short.weight"},
        {zero_divisor, AG_FORMAT, "number 0 of short_factor"},
        {unknown_scaling, AG_UNSUPPORTED, "unknown rope type \"ntk\""},
        {factor_as_text, AG_FORMAT, "factor is not a number"},
        {text_as_size, AG_FORMAT, "head_dim is not a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_file f = small("phi3");
        ag_model_spec s;
        ag_error err = {.msg = ""};
        cases[i].spoil(&f);
        const ag_status st = read_spec(&f, &s, &err);
        if (st != cases[i].status || !strstr(err.msg, cases[i].reason) || !strstr(err.msg, path)) {
            fail_msg("case %zu: %s: %s", i, ag_status_name(st), err.msg);
        }
    }
    ag_model_spec s;
    ag_error err = {.msg = ""};
    gguf_file mixture = small("qwen3moe");
    gguf_put_u32(&mixture, "qwen3moe.expert_gating_func", 2);
    assert_int_equal(read_spec(&mixture, &s, &err), AG_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "expert_gating_func is 2"));
    gguf_file f = small("t5");
    assert_int_equal(read_spec(&f, &s, &err), AG_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "general.architecture \"t5\" is not supported; known: llama"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_sizes_and_rotation),
        cmocka_unit_test(harmony_answers_end_at_return_and_call),
        cmocka_unit_test(recognises_longrope_by_its_tensors),
        cmocka_unit_test(reads_the_keys_of_yarn),
        cmocka_unit_test(reads_keys_of_a_family),
        cmocka_unit_test(rejects_unsupported_models),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
