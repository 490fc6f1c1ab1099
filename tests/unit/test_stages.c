/* SPDX-License-Identifier: Apache-2.0 */
/* Which programs go in stages from embeddings to logits, and where others stop. */
#include "core/alloc.h"
#include "core/stages.h"
#include "models/lower.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 3 };

/* Each gives the last layer one feature. */
static void plain(ag_model_spec *s) { (void)s; }
static void qkv_bias(ag_model_spec *s) { s->kinds[1].qkv_bias = true; }
static void out_bias(ag_model_spec *s) { s->kinds[1].out_bias = true; }
static void ffn_bias(ag_model_spec *s) { s->kinds[1].ffn_bias = true; }
static void qk_norm(ag_model_spec *s) { s->kinds[1].qk_norm = true; }
static void biases_and_norms(ag_model_spec *s) {
    s->kinds[1].qkv_bias = s->kinds[1].out_bias = s->kinds[1].full_qk_norm = true;
}
static void v_norm(ag_model_spec *s) { s->kinds[1].v_norm = true; }
static void window(ag_model_spec *s) { s->kinds[1].window = 16; }
static void gelu(ag_model_spec *s) { s->kinds[1].activation = AG_ACTIVATION_GELU_TANH; }
static void softcap(ag_model_spec *s) { s->kinds[1].softcap = 30; }
static void out_gate(ag_model_spec *s) { s->kinds[1].out_gate = true; }
static void shares_kv(ag_model_spec *s) { s->kinds[1].shares_kv = true; }
static void post_norms(ag_model_spec *s) { s->kinds[1].post_norms = true; }
static void no_pre_norms(ag_model_spec *s) { s->kinds[1].no_pre_norms = true; }
static void layer_input(ag_model_spec *s) { s->layer_input = 16; }
static void out_scale(ag_model_spec *s) { s->out_scale = true; }
static void logit_softcap(ag_model_spec *s) { s->logit_softcap = 30; }
static void short_conv(ag_model_spec *s) {
    s->kinds[1].mixer = AG_MIXER_SHORT_CONV;
    s->kinds[1].conv_taps = 3;
}
static void delta_net(ag_model_spec *s) {
    s->kinds[1].mixer = AG_MIXER_DELTA_NET;
    s->kinds[1].conv_taps = 4;
    s->kinds[1].delta = (ag_delta_params){2, 4, 16, 16, false, 1e-6f};
}

/* stages: of the last layer, of five, and where all are found, of the head. stop: the operation
 * that is in none. */
static const struct {
    void (*give)(ag_model_spec *s);
    uint32_t stages;
    const char *stop;
} cases[] = {
    {plain, 6, NULL},
    {qkv_bias, 6, NULL},
    {out_bias, 6, NULL},
    {qk_norm, 6, NULL},
    {biases_and_norms, 6, NULL},
    {window, 6, NULL},
    {gelu, 6, NULL},
    {ffn_bias, 3, "NORM ffn_norm "},
    {v_norm, 1, "NORM ones "},
    {softcap, 1, "ATTEND "},
    {out_gate, 2, "PRODUCTS out_gate "},
    {shares_kv, 0, "NORM attention_norm "},
    {post_norms, 2, "PRODUCTS wo "},
    {no_pre_norms, 0, "PRODUCTS wq,wk,wv "},
    {out_scale, 0, "SCALE out_scale "},
    {logit_softcap, 5, "NORM norm "},
    {short_conv, 1, "GATE none "},
    {delta_net, 0, "NORM attention_norm "},
};
enum { CASES = sizeof cases / sizeof cases[0] };

static ag_program *program_of(void (*give)(ag_model_spec *s)) {
    static ag_model_spec s;
    s = ag_spec_plain(4, 2, 32);
    s.vocab_size = 512;
    s.hidden_size = 128;
    s.intermediate_size = 256;
    s.n_layers = LAYERS;
    s.n_kinds = 2;
    s.kinds[1] = s.kinds[0];
    s.kind_of[LAYERS - 1] = 1;
    give(&s);
    ag_program *p;
    ag_error err;
    if (ag_lower(&s, &p, &err) != AG_OK) fail_msg("%s", err.msg);
    if (ag_find_stages(p, &err) != AG_OK) fail_msg("%s", err.msg);
    return p;
}

static const char *stop_of(const ag_program *p, char line[256]) {
    (void)ag_program_line(p, p->n_in_stages, NULL, line, 256);
    return line + strspn(line, "0123456789- ");
}

static void stages_end_at_the_first_other_operation(void **state) {
    (void)state;
    for (size_t i = 0; i < CASES; i++) {
        ag_program *p = program_of(cases[i].give);
        char line[256];
        const uint32_t before = cases[i].give == out_scale ? 5 : 5 * (LAYERS - 1);
        assert_int_equal(ag_has_stages(p), !cases[i].stop);
        if (cases[i].stop && strncmp(stop_of(p, line), cases[i].stop, strlen(cases[i].stop)) != 0)
            fail_msg("case %zu stops at %s, not %s", i, line, cases[i].stop);
        if (p->n_stages != before + cases[i].stages)
            fail_msg("case %zu has %u stages, the last layer %u", i, p->n_stages, cases[i].stages);
        ag_program_destroy(p);
    }
}

static void layer_inputs_are_in_no_stage(void **state) {
    (void)state;
    ag_program *p = program_of(layer_input);
    assert_int_equal(p->n_stages, 0);
    ag_program_destroy(p);
}

/* Each operation is in one stage, and the patterns come in turn. */
static void stages_are_adjacent(void **state) {
    (void)state;
    static const ag_stage_pattern layer[] = {AG_STAGE_NORMED, AG_STAGE_ATTENTION, AG_STAGE_ADDED,
                                             AG_STAGE_GATED, AG_STAGE_ADDED};
    ag_program *p = program_of(biases_and_norms);
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->n_stages; i++) {
        assert_int_equal(p->stages[i].first, at);
        assert_int_equal(p->stages[i].pattern, i < 5 * LAYERS ? layer[i % 5] : AG_STAGE_LOGITS);
        at += p->stages[i].n;
    }
    assert_int_equal(at, p->n_ops);
    ag_program_destroy(p);
}

/* An operand that is another value, or a stage that reads something else than what the stage before
 * it leaves: no error of lowering may become wrong text. */
static void checks_every_operand(void **state) {
    (void)state;
    ag_program *p = program_of(biases_and_norms);
    for (uint32_t i = 0; i < p->n_ops; i++) {
        for (int k = 0; k < 2 * AG_OP_VALUES; k++) {
            ag_op *op = &p->ops[i];
            uint16_t *value = k < AG_OP_VALUES ? &op->in[k] : &op->out[k - AG_OP_VALUES];
            const uint16_t was = *value;
            if (was == AG_NONE || was == p->logits) continue;
            *value = (uint16_t)(was ? was - 1 : was + 1);
            ag_error err;
            ag_stage *stages = p->stages;
            assert_int_equal(ag_find_stages(p, &err), AG_OK);
            if (ag_has_stages(p)) fail_msg("operand %d of operation %u does not matter", k, i);
            ag_program q = *p;
            p->stages = stages;
            *value = was;
            ag_free(q.stages);
        }
    }
    ag_program_destroy(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_end_at_the_first_other_operation),
        cmocka_unit_test(layer_inputs_are_in_no_stage),
        cmocka_unit_test(stages_are_adjacent),
        cmocka_unit_test(checks_every_operand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
