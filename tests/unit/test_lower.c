/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the programs of all golden models with recorded texts, and checks that they can run.
 * AG_RECORD_PROGRAMS=1 writes the records again: review the differences before committing them. */
#include "core/stages.h"
#include "formats/weight_source.h"
#include "models/config.h"
#include "models/lower.h"
#include "models/model_impl.h"
#include "models/spec.h"

#include <antigravity/alloc.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>

#define MODELS AG_GOLDEN_MODELS
#define RECORDS AG_SOURCE_DIR "/tests/data/programs"

/* ---- programs ---- */

static ag_program *lower(const ag_model_spec *s) {
    ag_program *p;
    ag_error err;
    if (ag_lower(s, &p, &err) != AG_OK) fail_msg("%s", err.msg);
    return p;
}

static void read_spec(const char *name, ag_model_spec *s) {
    ag_weight_source *source = NULL;
    char dir[512];
    ag_error err;
    snprintf(dir, sizeof dir, "%s/%s", MODELS, name);
    ag_status st = ag_source_open(dir, &source, &err);
    if (st == AG_OK) st = ag_spec_read(source, s, &err);
    ag_source_destroy(source);
    if (st != AG_OK) fail_msg("%s: %s", name, err.msg);
}

/* The caller's, to be freed. */
static char *text_of(const ag_program *p) {
    const size_t cap = 1 << 20;
    char *text = malloc(cap);
    size_t n = 0;
    assert_non_null(text);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const ag_op *op = &p->ops[i];
        if (op->flags & AG_OP_LAYER_BEGINS) n += (size_t)snprintf(text + n, cap - n, "\n");
        n += (size_t)ag_program_line(p, i, NULL, text + n, cap - n);
        n += (size_t)snprintf(text + n, cap - n, "\n");
        assert_true(n < cap);
    }
    n += (size_t)snprintf(text + n, cap - n, "\ncut %u, head %u, columns %u\n", p->cut, p->head,
                          p->cols);
    if (p->stages)
        n += (size_t)snprintf(text + n, cap - n, "%u stages of the first %u\n", p->n_stages,
                              p->n_in_stages);
    return text;
}

/* ---- what can be computed ---- */

static bool is_input(const ag_program *p, uint16_t value) {
    for (uint32_t l = 0; p->layer_inputs && l < p->n_layers; l++) {
        if (p->layer_inputs[l] == value) return true;
    }
    return value == p->stream;
}

static void check_operands(const ag_program *p, const uint16_t *values, bool *written, bool reads) {
    for (int i = 0; i < AG_OP_VALUES && values[i] != AG_NONE; i++) {
        assert_true(values[i] < p->n_values);
        if (reads) assert_true(written[values[i]]);
        else written[values[i]] = true;
    }
}

/* Every value that is read has been written, and indices are in range. */
static void check_order(const ag_program *p) {
    bool *written = calloc(p->n_values, sizeof *written);
    assert_non_null(written);
    for (uint16_t v = 0; v < p->n_values; v++) written[v] = is_input(p, v);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        const ag_op *op = &p->ops[i];
        assert_true(op->code < AG_OP_CODES);
        check_operands(p, op->in, written, true);
        check_operands(p, op->out, written, false);
        for (int k = 0; k < AG_OP_VALUES && op->w[k] != AG_NONE; k++)
            assert_true(op->w[k] < p->n_weights);
        if (op->code == AG_OP_ATTEND) assert_true(op->params < p->n_attend);
        if (op->code == AG_OP_SHORT_CONV || op->code == AG_OP_DELTA_NET)
            assert_true(op->params < p->n_recurrent);
        assert_true(op->layer == AG_NONE || op->layer < p->n_layers);
    }
    for (uint16_t v = 0; v < p->n_values; v++) assert_true(written[v]);
    free(written);
}

static bool names(const ag_op *op, uint16_t value) {
    for (int i = 0; i < AG_OP_VALUES; i++) {
        if (op->in[i] == value || op->out[i] == value) return true;
    }
    return false;
}

static bool overlap(const ag_value *a, const ag_value *b) {
    return a->offset < b->offset + b->cols && b->offset < a->offset + a->cols;
}

/* Asserts that values that live at the same time do not overlap. The unit of time is an operation.
 * Inputs exist before the first, and the result after the last. */
static void check_places(const ag_program *p) {
    int64_t(*life)[2] = calloc(p->n_values, sizeof *life);
    assert_non_null(life);
    for (uint16_t v = 0; v < p->n_values; v++) {
        life[v][0] = is_input(p, v) ? -1 : INT64_MAX;
        life[v][1] = v == p->hidden ? INT64_MAX : -1;
        for (uint32_t i = 0; i < p->n_ops; i++) {
            if (!names(&p->ops[i], v)) continue;
            if (i < life[v][0]) life[v][0] = i;
            if (i > life[v][1]) life[v][1] = i;
        }
        if (v == p->logits) continue;
        assert_int_equal(p->values[v].offset % AG_VALUE_COLS, 0);
        assert_true(p->values[v].offset + p->values[v].cols <= p->cols);
        for (uint16_t u = 0; u < v; u++) {
            if (u == p->logits || life[u][0] > life[v][1] || life[v][0] > life[u][1]) continue;
            if (overlap(&p->values[u], &p->values[v])) fail_msg("values %u and %u overlap", u, v);
        }
    }
    assert_int_equal(p->values[p->logits].offset, UINT32_MAX);
    free(life);
}

/* Returns the columns of a row if each activation of the widest layer had separate memory. */
static size_t columns_before(const ag_model_spec *s) {
    size_t q_dim = 0, kv_dim = 0, ffn_dim = s->layer_input, expert_dim = 0;
    for (uint32_t i = 0; i < s->n_kinds; i++) {
        const ag_layer_spec *k = &s->kinds[i];
        const ag_delta_params *d = &k->delta;
        const size_t channels = ag_spec_channels(s, k), values = (size_t)d->n_v_heads * d->v_dim;
        const bool attention = k->mixer == AG_MIXER_ATTENTION;
        const bool delta = k->mixer == AG_MIXER_DELTA_NET;
        const size_t q = attention ? (size_t)k->n_heads * k->head_dim : channels;
        const size_t kv = attention ? (size_t)k->n_kv_heads * k->head_dim
                          : delta   ? values
                                    : channels;
        const ag_expert_spec *x = &k->experts;
        const size_t each = (size_t)2 * x->width + s->hidden_size + 3; /* for each chosen expert */
        const size_t experts = x->route.n_experts + x->route.n_used * each + 2 * x->shared_width +
                               6 * (size_t)AG_VALUE_COLS;
        if (x->route.n_experts && experts > expert_dim) expert_dim = experts;
        if (q > q_dim) q_dim = q;
        if (kv > kv_dim) kv_dim = kv;
        if (ag_spec_ffn_dim(s, k) > ffn_dim) ffn_dim = ag_spec_ffn_dim(s, k);
    }
    return 4 * (size_t)s->hidden_size + 2 * q_dim + 2 * kv_dim + 2 * ffn_dim + expert_dim +
           (size_t)s->n_layers * s->layer_input;
}

static void check(const char *name, const ag_model_spec *s, const ag_program *p) {
    check_order(p);
    check_places(p);
    print_message("%s: %u operations, %u columns, before %zu\n", name, p->n_ops, p->cols,
                  columns_before(s));
    assert_true(p->cols <= (columns_before(s) + AG_VALUE_COLS - 1) / AG_VALUE_COLS * AG_VALUE_COLS);
}

/* ---- records ---- */

static void compare_with_record(const char *name, const char *text) {
    char path[512], *want = calloc(1, 1 << 20);
    assert_non_null(want);
    snprintf(path, sizeof path, "%s/%s.txt", RECORDS, name);
    FILE *f = fopen(path, getenv("AG_RECORD_PROGRAMS") ? "w" : "r");
    if (!f) fail_msg("%s cannot be opened; AG_RECORD_PROGRAMS=1 writes it", path);
    if (getenv("AG_RECORD_PROGRAMS")) {
        assert_int_equal(fputs(text, f) >= 0, 1);
    } else {
        assert_true(fread(want, 1, (1 << 20) - 1, f) > 0);
        if (strcmp(text, want) != 0) fail_msg("%s is not the program:\n%s", path, text);
    }
    assert_int_equal(fclose(f), 0);
    free(want);
}

static void golden_models_have_the_recorded_programs(void **state) {
    (void)state;
    static ag_model_spec s;
    size_t n = 0;
    DIR *d = opendir(MODELS);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        read_spec(e->d_name, &s);
        ag_program *p = lower(&s);
        ag_error err;
        if (ag_find_stages(p, &err) != AG_OK) fail_msg("%s", err.msg);
        char *text = text_of(p);
        check(e->d_name, &s, p);
        compare_with_record(e->d_name, text);
        free(text);
        ag_program_destroy(p);
        n++;
    }
    closedir(d);
    assert_true(n >= 20);
}

/* ---- texts of programs ---- */

typedef enum member_type { U32, BOOL, REAL, BYTE } member_type;

typedef struct member {
    const char *name;
    size_t offset;
    member_type type;
} member;

#define OF_LAYER(name, type) \
    { #name, offsetof(ag_layer_spec, name), type }
#define OF_MODEL(name, type) \
    { #name, offsetof(ag_model_spec, name), type }

/* All members of a layer's description. */
static const member of_attention[] = {
    OF_LAYER(ffn_dim, U32),       OF_LAYER(n_heads, U32),       OF_LAYER(n_kv_heads, U32),
    OF_LAYER(head_dim, U32),      OF_LAYER(shares_kv, BOOL),    OF_LAYER(v_norm, BOOL),
    OF_LAYER(out_gate, BOOL),     OF_LAYER(rope, U32),          OF_LAYER(window, U32),
    OF_LAYER(scale, REAL),        OF_LAYER(softcap, REAL),      OF_LAYER(activation, BOOL),
    OF_LAYER(qkv_bias, BOOL),     OF_LAYER(out_bias, BOOL),     OF_LAYER(ffn_bias, BOOL),
    OF_LAYER(qk_norm, BOOL),      OF_LAYER(full_qk_norm, BOOL), OF_LAYER(post_norms, BOOL),
    OF_LAYER(no_pre_norms, BOOL), OF_LAYER(v_from_k, BOOL),     OF_LAYER(sinks, BOOL)};
static const member of_experts[] = {
    OF_LAYER(experts.route.n_experts, U32), OF_LAYER(experts.route.n_used, U32),
    OF_LAYER(experts.route.scoring, BOOL),  OF_LAYER(experts.route.normalise, BOOL),
    OF_LAYER(experts.route.sum_eps, REAL),  OF_LAYER(experts.route.factor, REAL),
    OF_LAYER(experts.width, U32),           OF_LAYER(experts.shared_width, U32),
    OF_LAYER(experts.shared_gate, BOOL),    OF_LAYER(experts.router_bias, BOOL),
    OF_LAYER(experts.choice_bias, BOOL),    OF_LAYER(experts.matrix_biases, BOOL),
    OF_LAYER(experts.beside_dense, BOOL),   OF_LAYER(experts.gate_limit, REAL)};
static const member of_delta_net[] = {
    OF_LAYER(conv_taps, U32),   OF_LAYER(delta.n_k_heads, U32), OF_LAYER(delta.n_v_heads, U32),
    OF_LAYER(delta.k_dim, U32), OF_LAYER(delta.v_dim, U32),     OF_LAYER(delta.tiled, BOOL),
    OF_LAYER(delta.eps, REAL),  OF_LAYER(mixer, BOOL)};
/* Members of a model's description. embedding_scale, logit_factor and frequencies are in
 * test_spec_numbers.c: the rows and weights that operations read hold them. */
static const member of_model[] = {OF_MODEL(vocab_size, U32),
                                  OF_MODEL(hidden_size, U32),
                                  OF_MODEL(intermediate_size, U32),
                                  OF_MODEL(n_layers, U32),
                                  OF_MODEL(kind_of, BYTE),
                                  OF_MODEL(norm_eps, REAL),
                                  OF_MODEL(eps_factor, REAL),
                                  OF_MODEL(logit_softcap, REAL),
                                  OF_MODEL(query_beta, REAL),
                                  OF_MODEL(query_period, U32),
                                  OF_MODEL(layer_input, U32),
                                  OF_MODEL(out_scale, BOOL),
                                  OF_MODEL(ropes[0].attention_factor, REAL)};

/* A member that is new belongs in a list above. */
_Static_assert(sizeof(ag_layer_spec) == 128, "the lists above have all members of a layer");
_Static_assert(sizeof(ag_model_spec) == 6504, "the lists above have all members of a model");

static void change(void *base, const member *m) {
    unsigned char *at = (unsigned char *)base + m->offset;
    if (m->type == REAL) {
        float *real = (float *)(void *)at;
        *real = *real != 0 ? 2 * *real : 0.5f;
    } else if (m->type == U32) {
        *(uint32_t *)(void *)at += 2;
    } else {
        *at ^= 1;
    }
}

static void expect_another(const ag_model_spec *s, const char *before, const char *name) {
    ag_program *p = lower(s);
    char *text = text_of(p);
    if (!strcmp(text, before)) fail_msg("another %s is the same program", name);
    free(text);
    ag_program_destroy(p);
}

/* Two layers of each of three kinds, whose members are changed one by one. */
static void every_member_changes_the_program(void **state) {
    (void)state;
    static ag_model_spec s, changed;
    s = ag_spec_plain(4, 2, 32);
    s.vocab_size = 512;
    s.hidden_size = 128;
    s.intermediate_size = 256;
    s.n_layers = 6;
    s.norm_eps = 1e-5f;
    s.query_beta = 0.1f;
    s.query_period = 100;
    s.n_kinds = 3;
    s.kind_of[2] = s.kind_of[3] = 1;
    s.kind_of[4] = s.kind_of[5] = 2;
    s.kinds[2] = s.kinds[0];
    s.kinds[2].activation = AG_ACTIVATION_SWIGLU_CLAMPED;
    s.kinds[2].experts =
        (ag_expert_spec){.route = {.n_experts = 8, .n_used = 3, .normalise = true, .factor = 1},
                         .width = 48,
                         .shared_width = 32,
                         .gate_limit = 7};
    s.kinds[1] = s.kinds[0];
    s.kinds[1].mixer = AG_MIXER_DELTA_NET;
    s.kinds[1].conv_taps = 4;
    s.kinds[1].delta = (ag_delta_params){2, 4, 16, 16, false, 1e-6f};
    ag_program *p = lower(&s);
    char *before = text_of(p);
    check("three kinds", &s, p);
    for (size_t i = 0; i < sizeof of_attention / sizeof *of_attention; i++) {
        changed = s;
        change(&changed.kinds[0], &of_attention[i]);
        expect_another(&changed, before, of_attention[i].name);
    }
    for (size_t i = 0; i < sizeof of_delta_net / sizeof *of_delta_net; i++) {
        changed = s;
        change(&changed.kinds[1], &of_delta_net[i]);
        expect_another(&changed, before, of_delta_net[i].name);
    }
    for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts; i++) {
        changed = s;
        change(&changed.kinds[2], &of_experts[i]);
        expect_another(&changed, before, of_experts[i].name);
    }
    for (size_t i = 0; i < sizeof of_model / sizeof *of_model; i++) {
        changed = s;
        change(&changed, &of_model[i]);
        expect_another(&changed, before, of_model[i].name);
    }
    free(before);
    ag_program_destroy(p);
}

/* ---- memory ---- */

static size_t n_left, n_live; /* allocations that still succeed, and blocks that are there */

static void *limited_realloc(void *user, void *p, size_t bytes) {
    (void)user;
    if (!n_left) return NULL;
    n_left--;
    n_live += !p;
    return realloc(p, bytes);
}

static void *limited_alloc(void *user, size_t bytes) { return limited_realloc(user, NULL, bytes); }

static void counted_free(void *user, void *p) {
    (void)user;
    n_live -= p != NULL;
    free(p);
}

static void failed_allocation_is_reported(void **state) {
    (void)state;
    const ag_allocator limited = {
        .alloc = limited_alloc, .resize = limited_realloc, .release = counted_free};
    static ag_model_spec s;
    ag_status st = AG_NOMEM;
    size_t n = 0;
    read_spec("gemma4", &s);
    ag_set_allocator(&limited);
    for (; st == AG_NOMEM; n++) {
        ag_program *p;
        ag_error err = {0};
        n_left = n;
        st = ag_lower(&s, &p, &err);
        assert_true(st == AG_OK || err.msg[0]);
        ag_program_destroy(p);
        assert_int_equal(n_live, 0);
    }
    ag_set_allocator(NULL);
    assert_int_equal(st, AG_OK);
    assert_true(n > 10);
}

/* ---- sizes ---- */

static void values_share_columns(void **state) {
    (void)state;
    static const struct {
        const char *shape;
        uint32_t cols;
    } cases[] = {{"1b", 22528}, {"8b", 40960}};
    static ag_model_spec s;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ag_error err;
        if (ag_shape_spec(cases[i].shape, &s, &err) != AG_OK) fail_msg("%s", err.msg);
        ag_program *p = lower(&s);
        check(cases[i].shape, &s, p);
        assert_int_equal(p->cols, cases[i].cols);
        ag_program_destroy(p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_models_have_the_recorded_programs),
        cmocka_unit_test(every_member_changes_the_program),
        cmocka_unit_test(failed_allocation_is_reported),
        cmocka_unit_test(values_share_columns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
