/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files from GGUF files: the type of each tensor, the unchanged parts, and the rejected
 * cases. */
#include "formats/gguf_writer.h"
#include "quant/quant.h"
#include "support/failing_allocator.h"

#include <antigravity/quantize.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

static char dir[] = "/tmp/ag-quantize-XXXXXX", source[128], path[128];

/* ---- a model ---- */

enum { N_LAYERS = 16, WIDE = 256, NARROW = 96, ODD = 48 };

typedef struct tensor_shape {
    const char *name;
    size_t rows, cols; /* rows 0: a vector */
} tensor_shape;

static const tensor_shape layer_tensors[] = {
    {"attn_norm.weight", 0, WIDE},      {"attn_q.weight", 24, WIDE},   {"attn_v.weight", 8, WIDE},
    {"attn_output.weight", 40, NARROW}, {"ffn_down.weight", 32, WIDE}, {"ffn_up.weight", 16, ODD},
};
static const tensor_shape model_tensors[] = {{"token_embd.weight", 100, WIDE},
                                             {"output_norm.weight", 0, WIDE},
                                             {"output.weight", 100, WIDE}};

static uint64_t random_state;

static float uniform(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(random_state >> 40) * 0x1p-24 - 0.5);
}

static size_t values_of(const tensor_shape *t) { return (t->rows ? t->rows : 1) * t->cols; }

static void declare_tensor(ag_gguf_writer *w, const char *prefix, const tensor_shape *t) {
    char name[64];
    const ag_shape shape = t->rows ? ag_shape_2d(t->rows, t->cols) : ag_shape_1d(t->cols);
    snprintf(name, sizeof name, "%s%s", prefix, t->name);
    ag_gguf_add_tensor(w, name, AG_F32, &shape);
}

static void write_values(ag_gguf_writer *w, const tensor_shape *t, float special) {
    float row[WIDE];
    for (size_t i = 0; i < values_of(t); i += t->cols) {
        for (size_t k = 0; k < t->cols; k++) row[k] = uniform();
        if (i == 3 * t->cols && special != 0) row[5] = special;
        assert_int_equal(ag_gguf_write(w, row, t->cols * sizeof *row, NULL), AG_OK);
    }
    assert_int_equal(ag_gguf_end_tensor(w, NULL), AG_OK);
}

/* special: the value of one element of every matrix; n_ends 2: no output matrix. */
static void write_model(size_t n_model_tensors, float special) {
    ag_gguf_writer w = {0};
    char prefix[16];
    static const int32_t list[] = {4, 5};
    random_state = 1;
    ag_gguf_put_string(&w, "general.architecture", (ag_source_string){"llama", 5});
    ag_gguf_put_u32(&w, "general.file_type", 0);
    ag_gguf_put_u32(&w, "split.no", 0);
    ag_gguf_put_array(&w, "some.list", AG_GGUF_I32, list, 2);
    for (size_t i = 0; i < n_model_tensors; i++) declare_tensor(&w, "", &model_tensors[i]);
    for (unsigned l = 0; l < N_LAYERS; l++) {
        snprintf(prefix, sizeof prefix, "blk.%u.", l);
        for (size_t i = 0; i < 6; i++) declare_tensor(&w, prefix, &layer_tensors[i]);
    }
    assert_int_equal(ag_gguf_writer_open(&w, source, NULL), AG_OK);
    for (size_t i = 0; i < n_model_tensors; i++) write_values(&w, &model_tensors[i], special);
    for (unsigned l = 0; l < N_LAYERS; l++) {
        for (size_t i = 0; i < 6; i++) write_values(&w, &layer_tensors[i], special);
    }
    assert_int_equal(ag_gguf_writer_commit(&w, NULL), AG_OK);
    ag_gguf_writer_close(&w);
}

static ag_weight_source *open_file(const char *file) {
    ag_weight_source *s;
    ag_error err;
    assert_int_equal(ag_source_open(file, &s, &err), AG_OK);
    if (ag_source_open_tensors(s, &err) != AG_OK) fail_msg("%s", err.msg);
    return s;
}

static ag_dtype type_of(const ag_weight_source *s, const char *name) {
    const ag_source_tensor *t = ag_source_find(s, name);
    if (!t) fail_msg("no %s", name);
    return t->dtype;
}

static void quantize(const ag_quantize_params *params, ag_quantize_report *report) {
    ag_error err;
    remove(path);
    if (ag_quantize(source, path, params, report, &err) != AG_OK) fail_msg("%s", err.msg);
}

static void assert_refused(const ag_quantize_params *params, ag_status expected,
                           const char *message) {
    ag_error err = {0};
    const ag_status st = ag_quantize(source, path, params, NULL, &err);
    if (st != expected || !strstr(err.msg, message)) {
        fail_msg("%s: %s; expected %s", ag_status_name(st), err.msg, message);
    }
}

/* ---- tests ---- */

static void chooses_types_by_row_length_and_role(void **state) {
    (void)state;
    static const struct {
        const char *type;
        ag_dtype q, output, narrow, odd;
    } cases[] = {
        {"q4_0", AG_Q4_0, AG_Q6_K, AG_Q4_0, AG_F16},  {"q4_k", AG_Q4_K, AG_Q6_K, AG_Q5_0, AG_F16},
        {"q5_k", AG_Q5_K, AG_Q6_K, AG_Q5_1, AG_F16},  {"Q6_K", AG_Q6_K, AG_Q6_K, AG_Q8_0, AG_F16},
        {"q8_0", AG_Q8_0, AG_Q8_0, AG_Q8_0, AG_F16},  {"f16", AG_F16, AG_F16, AG_F16, AG_F16},
        {"bf16", AG_BF16, AG_BF16, AG_BF16, AG_BF16}, {"f32", AG_F32, AG_F32, AG_F32, AG_F32},
        {"q5_1", AG_Q5_1, AG_Q6_K, AG_Q5_1, AG_F16},
    };
    write_model(3, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ag_quantize_report report;
        quantize(&(ag_quantize_params){.type = cases[i].type}, &report);
        ag_weight_source *s = open_file(path);
        assert_int_equal(type_of(s, "blk.3.attn_q.weight"), cases[i].q);
        assert_int_equal(type_of(s, "token_embd.weight"), cases[i].q);
        assert_int_equal(type_of(s, "output.weight"), cases[i].output);
        assert_int_equal(type_of(s, "blk.0.attn_output.weight"), cases[i].narrow);
        assert_int_equal(type_of(s, "blk.0.ffn_up.weight"), cases[i].odd);
        assert_int_equal(type_of(s, "blk.0.attn_norm.weight"), AG_F32);
        assert_int_equal(type_of(s, "output_norm.weight"), AG_F32);
        const size_t fallbacks = (cases[i].narrow != cases[i].q) + (cases[i].odd != cases[i].q);
        assert_int_equal(report.n_fallback, N_LAYERS * fallbacks);
        assert_int_equal(report.n_tensors, ag_source_n_tensors(s));
        assert_int_equal(report.file_bytes, ag_source_file_bytes(s, 0));
        ag_source_destroy(s);
    }
}

/* The first and the last eighth of the layers and every third layer in between get more bits. */
static void q4_k_m_gives_some_layers_more_bits(void **state) {
    (void)state;
    static const bool more[N_LAYERS] = {1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 1, 1};
    write_model(2, 0);
    quantize(&(ag_quantize_params){.type = "q4_k_m"}, NULL);
    ag_weight_source *s = open_file(path);
    for (unsigned l = 0; l < N_LAYERS; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.attn_v.weight", l);
        assert_int_equal(type_of(s, name), more[l] ? AG_Q6_K : AG_Q4_K);
        snprintf(name, sizeof name, "blk.%u.ffn_down.weight", l);
        assert_int_equal(type_of(s, name), more[l] ? AG_Q6_K : AG_Q4_K);
        snprintf(name, sizeof name, "blk.%u.attn_q.weight", l);
        assert_int_equal(type_of(s, name), AG_Q4_K);
    }
    /* Without an output matrix the embedding is used as one. */
    assert_int_equal(type_of(s, "token_embd.weight"), AG_Q6_K);
    ag_source_destroy(s);
}

/* The types of a mixture are llama.cpp's: values of layer 0 and 5, down projections of layer 0, 1
 * and 5, and queries. */
static void mixtures_have_the_types_of_llama_cpp(void **state) {
    (void)state;
    static const struct {
        const char *type;
        ag_dtype v0, v5, down0, down1, down5, q;
        int64_t number;
    } cases[] = {
        {"q2_k", AG_Q3_K, AG_Q3_K, AG_Q3_K, AG_Q3_K, AG_Q3_K, AG_Q2_K, 10},
        {"q2_k_s", AG_Q2_K, AG_Q2_K, AG_Q4_K, AG_Q4_K, AG_Q2_K, AG_Q2_K, 21},
        {"q3_k_s", AG_Q3_K, AG_Q3_K, AG_Q3_K, AG_Q3_K, AG_Q3_K, AG_Q3_K, 11},
        {"q3_k_m", AG_Q5_K, AG_Q4_K, AG_Q5_K, AG_Q4_K, AG_Q4_K, AG_Q3_K, 12},
        {"q3_k_l", AG_Q5_K, AG_Q5_K, AG_Q5_K, AG_Q5_K, AG_Q5_K, AG_Q3_K, 13},
        {"Q4_K", AG_Q6_K, AG_Q4_K, AG_Q6_K, AG_Q6_K, AG_Q4_K, AG_Q4_K, 15},
        {"q4_k_s", AG_Q5_K, AG_Q4_K, AG_Q5_K, AG_Q5_K, AG_Q4_K, AG_Q4_K, 14},
        {"q5_k_m", AG_Q6_K, AG_Q5_K, AG_Q6_K, AG_Q6_K, AG_Q5_K, AG_Q5_K, 17},
        {"q5_k_s", AG_Q5_K, AG_Q5_K, AG_Q5_K, AG_Q5_K, AG_Q5_K, AG_Q5_K, 16},
        {"iq4_nl", AG_IQ4_NL, AG_IQ4_NL, AG_Q5_K, AG_Q5_K, AG_IQ4_NL, AG_IQ4_NL, 25},
        {"mxfp4_moe", AG_Q8_0, AG_Q8_0, AG_Q8_0, AG_Q8_0, AG_Q8_0, AG_Q8_0, 38},
    };
    write_model(3, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t number = -1;
        quantize(&(ag_quantize_params){.type = cases[i].type}, NULL);
        ag_weight_source *s = open_file(path);
        assert_int_equal(type_of(s, "blk.0.attn_v.weight"), cases[i].v0);
        assert_int_equal(type_of(s, "blk.5.attn_v.weight"), cases[i].v5);
        assert_int_equal(type_of(s, "blk.0.ffn_down.weight"), cases[i].down0);
        assert_int_equal(type_of(s, "blk.1.ffn_down.weight"), cases[i].down1);
        assert_int_equal(type_of(s, "blk.5.ffn_down.weight"), cases[i].down5);
        assert_int_equal(type_of(s, "blk.5.attn_q.weight"), cases[i].q);
        assert_int_equal(
            ag_gguf_integer(ag_gguf_source_header(s), "general.file_type", &number, NULL), AG_OK);
        assert_int_equal(number, cases[i].number);
        ag_source_destroy(s);
    }
}

static void patterns_override_roles(void **state) {
    (void)state;
    static const ag_tensor_type list[] = {{"attn_q", AG_F16},
                                          {"blk.[01].attn_q", AG_Q8_0},
                                          {"output", AG_Q4_1},
                                          {"attn_norm", AG_Q4_0}};
    write_model(3, 0);
    quantize(&(ag_quantize_params){.type = "q4_k", .tensor_types = list, .n_tensor_types = 4},
             NULL);
    ag_weight_source *s = open_file(path);
    assert_int_equal(type_of(s, "blk.1.attn_q.weight"), AG_Q8_0);
    assert_int_equal(type_of(s, "blk.2.attn_q.weight"), AG_F16);
    assert_int_equal(type_of(s, "output.weight"), AG_Q4_1);
    assert_int_equal(type_of(s, "blk.2.attn_v.weight"), AG_Q4_K);
    assert_int_equal(type_of(s, "blk.2.attn_norm.weight"), AG_F32);
    ag_source_destroy(s);
}

static void keeps_metadata_and_tensor_order(void **state) {
    (void)state;
    write_model(3, 0);
    quantize(&(ag_quantize_params){.type = "q4_0"}, NULL);
    ag_weight_source *from = open_file(source), *to = open_file(path);
    const ag_gguf *g = ag_gguf_source_header(to);
    int64_t v = 0;
    assert_int_equal(ag_gguf_integer(g, "general.file_type", &v, NULL), AG_OK);
    assert_int_equal(v, 2);
    assert_int_equal(ag_gguf_integer(g, "general.quantization_version", &v, NULL), AG_OK);
    assert_int_equal(v, 2);
    assert_null(ag_gguf_find(g, "split.no"));
    assert_int_equal(ag_gguf_find(g, "some.list")->n, 2);
    assert_int_equal(ag_source_n_tensors(from), ag_source_n_tensors(to));
    for (size_t i = 0; i < ag_source_n_tensors(to); i++) {
        const ag_source_tensor *t = ag_source_tensor_at(to, i), *before = NULL, *after = NULL;
        for (size_t k = 0; k < ag_source_n_tensors(to); k++) {
            const ag_source_tensor *other = ag_source_tensor_at(to, k);
            if (other->offset < t->offset && (!before || other->offset > before->offset)) {
                before = other;
            }
        }
        if (before) after = ag_source_find(from, before->name);
        if (after) assert_true(after->offset < ag_source_find(from, t->name)->offset);
    }
    ag_source_destroy(from);
    ag_source_destroy(to);
}

static void values_match_the_search(void **state) {
    (void)state;
    static unsigned char expected[4 * WIDE];
    write_model(3, 0);
    quantize(&(ag_quantize_params){.type = "q5_k"}, NULL);
    ag_weight_source *from = open_file(source), *to = open_file(path);
    ag_tensor x, y;
    assert_int_equal(ag_source_map(from, ag_source_find(from, "blk.2.ffn_down.weight"), &x, NULL),
                     AG_OK);
    assert_int_equal(ag_source_map(to, ag_source_find(to, "blk.2.ffn_down.weight"), &y, NULL),
                     AG_OK);
    const size_t bytes = ag_dtype_row_bytes(AG_Q5_K, WIDE);
    for (size_t r = 0; r < 32; r++) {
        const float *row = (const float *)ag_tensor_data(&x) + r * WIDE;
        ag_quantize_weights(&ag_reference_rounding, AG_Q5_K, expected, row, WIDE, NULL, NULL);
        assert_memory_equal((const char *)ag_tensor_data(&y) + r * bytes, expected, bytes);
    }
    ag_source_destroy(from);
    ag_source_destroy(to);
}

static unsigned char *read_all(size_t *n) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    unsigned char *all = malloc(4 << 20);
    assert_non_null(all);
    *n = fread(all, 1, 4 << 20, f);
    fclose(f);
    return all;
}

static void bytes_do_not_depend_on_threads(void **state) {
    (void)state;
    size_t n = 0, m = 0;
    write_model(3, 0);
    quantize(&(ag_quantize_params){.type = "q4_k_m", .n_threads = 1}, NULL);
    unsigned char *one = read_all(&n);
    quantize(&(ag_quantize_params){.type = "q4_k_m", .n_threads = 3}, NULL);
    unsigned char *three = read_all(&m);
    assert_int_equal(n, m);
    assert_memory_equal(one, three, n);
    free(one);
    free(three);
}

static void keeps_bytes_of_tensors_with_the_same_type(void **state) {
    (void)state;
    size_t n = 0, m = 0;
    char first[160];
    write_model(3, 0);
    quantize(&(ag_quantize_params){.type = "q4_k_m"}, NULL);
    unsigned char *one = read_all(&n);
    snprintf(first, sizeof first, "%s/first.gguf", dir);
    assert_int_equal(rename(path, first), 0);
    ag_error err;
    const ag_quantize_params same = {.type = "q4_k_m"};
    if (ag_quantize(first, path, &same, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    unsigned char *two = read_all(&m);
    assert_int_equal(n, m);
    assert_memory_equal(one, two, n);
    free(one);
    free(two);
    /* .requantize permits a second rounding. */
    assert_int_equal(rename(first, source), 0);
    remove(path);
    assert_refused(&(ag_quantize_params){.type = "q4_0"}, AG_DTYPE, "would be rounded again");
    quantize(&(ag_quantize_params){.type = "q4_0", .requantize = true}, NULL);
    quantize(&(ag_quantize_params){.type = "f32"}, NULL);
}

static void keeps_matrices_that_are_mxfp4(void **state) {
    (void)state;
    static const ag_tensor_type mxfp4 = {"ffn_down", AG_MXFP4}, q5_0 = {"ffn_down", AG_Q5_0};
    static const char name[] = "blk.3.ffn_down.weight";
    ag_tensor before, after;
    write_model(3, 0);
    quantize(&(ag_quantize_params){.type = "f32", .tensor_types = &mxfp4, .n_tensor_types = 1},
             NULL);
    assert_int_equal(rename(path, source), 0);
    quantize(&(ag_quantize_params){.type = "q4_k_m"}, NULL);
    ag_weight_source *from = open_file(source), *to = open_file(path);
    assert_int_equal(type_of(to, name), AG_MXFP4);
    assert_int_equal(type_of(to, "blk.3.attn_q.weight"), AG_Q4_K);
    assert_int_equal(ag_source_map(from, ag_source_find(from, name), &before, NULL), AG_OK);
    assert_int_equal(ag_source_map(to, ag_source_find(to, name), &after, NULL), AG_OK);
    assert_memory_equal(ag_tensor_data(&before), ag_tensor_data(&after),
                        32 * ag_dtype_row_bytes(AG_MXFP4, WIDE));
    ag_source_destroy(from);
    ag_source_destroy(to);
    quantize(&(ag_quantize_params){.type = "q4_0", .requantize = true}, NULL);
    to = open_file(path);
    assert_int_equal(type_of(to, name), AG_Q4_0);
    ag_source_destroy(to);
    remove(path);
    assert_refused(
        &(ag_quantize_params){.type = "q4_0", .tensor_types = &q5_0, .n_tensor_types = 1}, AG_DTYPE,
        "would be rounded again");
}

static void rejects_impossible_conversions(void **state) {
    (void)state;
    static const ag_tensor_type empty = {"", AG_F16}, ids = {"attn_q", AG_I32};
    write_model(3, 0);
    remove(path);
    assert_refused(&(ag_quantize_params){.type = "q9"}, AG_INVALID, "known: q2_k, q2_k_s");
    assert_refused(&(ag_quantize_params){.type = NULL}, AG_INVALID, "unknown file type");
    ag_quantize_params p = {.type = "q4_0", .n_tensor_types = 1, .tensor_types = &empty};
    assert_refused(&p, AG_INVALID, "tensor_types has an empty pattern");
    p.tensor_types = &ids;
    assert_refused(&p, AG_UNSUPPORTED, "tensors \"attn_q\" cannot be i32");
    assert_int_equal(access(path, F_OK), -1);
}

/* Quantises a recorded model whose config.json has one changed value; "a.b" is the key b of the
 * object a. */
static ag_status quantize_edited(const char *model, const char *key, json_t *value, ag_error *err) {
    static const char *const models = AG_GOLDEN_MODELS;
    char edited[] = "/tmp/ag-quantize-edited-XXXXXX", file[300], weights[128], config[128];
    assert_non_null(mkdtemp(edited));
    snprintf(file, sizeof file, "%s/%s/config.json", models, model);
    json_t *root = json_load_file(file, 0, NULL), *at = root;
    const char *dot = strchr(key, '.');
    assert_non_null(root);
    if (dot) at = json_object_getn(root, key, (size_t)(dot - key));
    assert_int_equal(json_object_set_new(at, dot ? dot + 1 : key, value), 0);
    snprintf(config, sizeof config, "%s/config.json", edited);
    assert_int_equal(json_dump_file(root, config, 0), 0);
    json_decref(root);
    snprintf(file, sizeof file, "%s/%s/model.safetensors", models, model);
    snprintf(weights, sizeof weights, "%s/model.safetensors", edited);
    assert_int_equal(symlink(file, weights), 0);
    remove(path);
    const ag_status st = ag_quantize(edited, path, &(ag_quantize_params){.type = "f16"}, NULL, err);
    remove(weights);
    remove(config);
    remove(edited);
    return st;
}

static void rejects_models_that_gguf_cannot_describe(void **state) {
    (void)state;
    const struct {
        const char *model, *key;
        json_t *value;
        const char *lost; /* NULL: the conversion succeeds */
    } cases[] = {
        {"smollm3", "no_rope_layers", json_pack("[iiiiiiii]", 0, 1, 1, 1, 1, 1, 1, 1),
         "the layers that have rotary positions"},
        {"qwen2", "layer_types",
         json_pack("[ssss]", "sliding_attention", "full_attention", "full_attention",
                   "full_attention"),
         NULL}, /* disabled windows */
        {"gemma2", "attn_logit_softcapping", json_null(), "attn_logit_softcapping"},
        {"ministral3", "rope_parameters.truncate", json_false(), "rope_parameters"},
        {"qwen3.5", "rope_parameters.partial_rotary_factor", json_integer(1), NULL},
        {"qwen3-moe-all", "norm_topk_prob", json_false(), "norm_topk_prob"},
        {"olmoe", "norm_topk_prob", json_true(), "norm_topk_prob"},
        {"gpt-oss", "swiglu_limit", json_real(6), "swiglu_limit"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ag_error err = {0};
        const ag_status st = quantize_edited(cases[i].model, cases[i].key, cases[i].value, &err);
        const char *lost = cases[i].lost;
        if (lost ? st != AG_UNSUPPORTED || !strstr(err.msg, lost) : st != AG_OK) {
            fail_msg("%s: %s: %s", cases[i].model, ag_status_name(st), err.msg);
        }
        assert_int_equal(access(path, F_OK), lost ? -1 : 0);
    }
}

/* Other readers need keys that this library derives. */
static void files_of_mixtures_state_their_experts(void **state) {
    (void)state;
    static const struct {
        const char *model, *key;
        int64_t value; /* -1: absent */
    } cases[] = {
        {"lfm2-moe", "lfm2moe.expert_count", 12},
        {"lfm2-moe", "lfm2moe.expert_used_count", 3},
        {"lfm2-moe", "lfm2moe.expert_feed_forward_length", 48},
        {"lfm2-moe", "lfm2moe.feed_forward_length", 256},
        {"lfm2-moe", "lfm2moe.leading_dense_block_count", 2},
        {"lfm2-moe", "lfm2moe.expert_gating_func", 2},
        {"qwen2-moe", "qwen2moe.expert_shared_feed_forward_length", 96},
        {"qwen2-moe", "qwen2moe.expert_gating_func", 1},
        {"mixtral", "llama.expert_count", 8},
        {"gpt-oss", "gpt-oss.expert_gating_func", 3},
        {"gemma4-moe", "gemma4.embedding_length_per_layer_input", 0},
        {"qwen3", "qwen3.expert_count", -1},
        {"qwen3", "qwen3.expert_gating_func", -1},
    };
    const ag_quantize_params params = {.type = "f16", .overwrite = true};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char model[512];
        ag_error err;
        snprintf(model, sizeof model, AG_GOLDEN_MODELS "/%s", cases[i].model);
        if (ag_quantize(model, path, &params, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
        ag_weight_source *file = open_file(path);
        const ag_gguf *g = ag_gguf_source_header(file);
        int64_t v = -1;
        if (ag_gguf_find(g, cases[i].key))
            assert_int_equal(ag_gguf_integer(g, cases[i].key, &v, NULL), AG_OK);
        if (v != cases[i].value) fail_msg("%s is %d", cases[i].key, (int)v);
        ag_source_destroy(file);
    }
}

/* Experts that were trained in MXFP4 have the same bytes in every quantised file; routers are F32.
 */
static void experts_in_mxfp4_stay(void **state) {
    static const char model[] = AG_GOLDEN_MODELS "/gpt-oss-mxfp4";
    static const char *const types[] = {"q8_0", "q4_k_m", "mxfp4_moe"};
    static const char *const experts[] = {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight",
                                          "blk.1.ffn_down_exps.weight"};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        ag_error err;
        const ag_quantize_params params = {.type = types[i], .overwrite = true};
        if (ag_quantize(model, path, &params, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
        if (i == 0) assert_int_equal(rename(path, source), 0);
        ag_weight_source *first = open_file(source), *file = open_file(i ? path : source);
        assert_int_equal(type_of(file, "blk.0.ffn_gate_inp.weight"), AG_F32);
        assert_int_equal(type_of(file, "blk.0.ffn_gate_inp.bias"), AG_F32);
        for (size_t k = 0; k < sizeof experts / sizeof experts[0]; k++) {
            const ag_source_tensor *a = ag_source_find(first, experts[k]),
                                   *b = ag_source_find(file, experts[k]);
            ag_tensor x, y;
            assert_int_equal(type_of(file, experts[k]), AG_MXFP4);
            assert_int_equal(a->n_bytes, b->n_bytes);
            assert_int_equal(ag_source_map(first, a, &x, NULL), AG_OK);
            assert_int_equal(ag_source_map(file, b, &y, NULL), AG_OK);
            assert_memory_equal(ag_tensor_data(&x), ag_tensor_data(&y), a->n_bytes);
        }
        ag_source_destroy(first);
        ag_source_destroy(file);
    }
    remove(path);
}

static void does_not_replace_existing_files(void **state) {
    (void)state;
    ag_error err;
    write_model(3, 0);
    quantize(&(ag_quantize_params){.type = "q8_0"}, NULL);
    assert_refused(&(ag_quantize_params){.type = "q8_0"}, AG_INVALID, "file exists already");
    assert_int_equal(ag_quantize(source, path,
                                 &(ag_quantize_params){.type = "q8_0", .overwrite = true}, NULL,
                                 &err),
                     AG_OK);
    assert_int_equal(ag_quantize(source, source,
                                 &(ag_quantize_params){.type = "q8_0", .overwrite = true}, NULL,
                                 &err),
                     AG_INVALID);
    assert_non_null(strstr(err.msg, "is a file of the source model"));
}

static void names_values_that_do_not_fit(void **state) {
    (void)state;
    write_model(3, NAN);
    remove(path);
    assert_refused(&(ag_quantize_params){.type = "q4_k", .n_threads = 3}, AG_FORMAT,
                   "tensor token_embd.weight: row 3, column 5: nan");
    write_model(3, 1e10f);
    assert_refused(&(ag_quantize_params){.type = "q4_k"}, AG_FORMAT, "cannot be stored as q4_k");
    assert_int_equal(access(path, F_OK), -1);
}

/* ---- parts ---- */

static void write_part(uint16_t no, const char *file, const tensor_shape *t) {
    ag_gguf_writer w = {0};
    ag_gguf_put_string(&w, "general.architecture", (ag_source_string){"llama", 5});
    ag_gguf_put_u32(&w, "split.no", no);
    ag_gguf_put_u32(&w, "split.count", 2);
    ag_gguf_put_u32(&w, "split.tensors.count", 2);
    declare_tensor(&w, "", t);
    assert_int_equal(ag_gguf_writer_open(&w, file, NULL), AG_OK);
    write_values(&w, t, 0);
    assert_int_equal(ag_gguf_writer_commit(&w, NULL), AG_OK);
    ag_gguf_writer_close(&w);
}

static void joins_split_files(void **state) {
    (void)state;
    char first[160], second[160];
    ag_error err;
    snprintf(first, sizeof first, "%s/split-00001-of-00002.gguf", dir);
    snprintf(second, sizeof second, "%s/split-00002-of-00002.gguf", dir);
    write_part(0, first, &model_tensors[0]);
    write_part(1, second, &model_tensors[2]);
    remove(path);
    const ag_quantize_params params = {.type = "q8_0"};
    if (ag_quantize(first, path, &params, NULL, &err) != AG_OK) fail_msg("%s", err.msg);
    ag_weight_source *s = open_file(path);
    assert_int_equal(type_of(s, "token_embd.weight"), AG_Q8_0);
    assert_int_equal(type_of(s, "output.weight"), AG_Q8_0);
    assert_int_equal(ag_source_n_files(s), 1);
    ag_source_destroy(s);
    const ag_quantize_params over = {.type = "q8_0", .overwrite = true};
    assert_int_equal(ag_quantize(first, second, &over, NULL, &err), AG_INVALID);
    remove(first);
    remove(second);
}

static void leaves_no_file_when_an_allocation_fails(void **state) {
    (void)state;
    bool failed = true;
    size_t n = 0;
    write_model(2, 0);
    remove(path);
    for (; failed && n < 5000; n++) {
        failing_allocator f;
        ag_error err;
        failing_install(&f, n);
        const ag_quantize_params params = {.type = "q4_k", .n_threads = 2, .overwrite = true};
        const ag_status st = ag_quantize(source, path, &params, NULL, &err);
        failed = f.failed;
        assert_int_equal(f.in_use, 0);
        ag_set_allocator(NULL);
        if (failed && st != AG_NOMEM) fail_msg("allocation %zu: %s", n, ag_status_name(st));
        if (!failed && st != AG_OK) fail_msg("%s", err.msg);
        assert_int_equal(access(path, F_OK), failed ? -1 : 0);
    }
    assert_true(n > 20 && !failed);
}

static bool stop(void *user, uint64_t done, uint64_t total) {
    int *calls = user;
    assert_true(done <= total);
    return ++*calls < 5;
}

static void leaves_no_file_when_cancelled(void **state) {
    (void)state;
    int calls = 0;
    write_model(3, 0);
    remove(path);
    assert_refused(&(ag_quantize_params){.type = "q4_k", .progress = stop, .progress_user = &calls},
                   AG_CANCELLED, "writing was cancelled");
    assert_int_equal(calls, 5);
    remove(source);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(mkdir(dir, 0700), 0);
}

int main(void) {
    if (!mkdtemp(dir)) return 1;
    snprintf(source, sizeof source, "%s/source.gguf", dir);
    snprintf(path, sizeof path, "%s/file.gguf", dir);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooses_types_by_row_length_and_role),
        cmocka_unit_test(q4_k_m_gives_some_layers_more_bits),
        cmocka_unit_test(mixtures_have_the_types_of_llama_cpp),
        cmocka_unit_test(patterns_override_roles),
        cmocka_unit_test(keeps_metadata_and_tensor_order),
        cmocka_unit_test(values_match_the_search),
        cmocka_unit_test(bytes_do_not_depend_on_threads),
        cmocka_unit_test(keeps_bytes_of_tensors_with_the_same_type),
        cmocka_unit_test(keeps_matrices_that_are_mxfp4),
        cmocka_unit_test(rejects_impossible_conversions),
        cmocka_unit_test(rejects_models_that_gguf_cannot_describe),
        cmocka_unit_test(experts_in_mxfp4_stay),
        cmocka_unit_test(files_of_mixtures_state_their_experts),
        cmocka_unit_test(does_not_replace_existing_files),
        cmocka_unit_test(names_values_that_do_not_fit),
        cmocka_unit_test(joins_split_files),
        cmocka_unit_test(leaves_no_file_when_an_allocation_fails),
        cmocka_unit_test(leaves_no_file_when_cancelled),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(path);
    remove(source);
    return rmdir(dir) == 0 ? failed : 1;
}
