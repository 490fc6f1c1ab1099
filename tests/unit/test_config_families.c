/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations of each family. */
#include "config_texts.h"

#include <math.h>

static void smollm3_has_no_rope_in_every_fourth_layer(void **state) {
    (void)state;
    ag_model_spec c = good("{'model_type':'smollm3'}", NULL);
    for (uint32_t l = 0; l < c.n_layers; l++) {
        assert_int_equal(ag_spec_layer(&c, l)->rope, l % 4 == 3 ? AG_NO_ROPE : 0);
        assert_int_equal(ag_spec_layer(&c, l)->window, 0);
    }
    c = good("{'model_type':'smollm3','num_hidden_layers':3,'no_rope_layers':[0,1,1],"
             "'use_sliding_window':true,'sliding_window':16}",
             NULL);
    assert_int_equal(ag_spec_layer(&c, 0)->rope, AG_NO_ROPE);
    assert_int_equal(ag_spec_layer(&c, 0)->window, 16);
    assert_int_equal(ag_spec_layer(&c, 2)->rope, 0);
    assert_int_equal(ag_spec_layer(&c, 2)->window, 0);
}

static void granite_factors_are_in_the_description(void **state) {
    (void)state;
    ag_model_spec c = good("{'model_type':'granite','embedding_multiplier':12,'residual_multiplier'"
                           ":0.25,'attention_multiplier':0.5,'logits_scaling':8,"
                           "'rms_norm_eps':1e-5}",
                           NULL);
    assert_float_equal(c.embedding_scale, 48, 0);
    assert_float_equal(c.norm_eps, 1e-5, 1e-9);
    assert_float_equal(ag_spec_eps(&c), 16e-5, 1e-9);
    assert_float_equal(c.logit_factor, 0.125, 0);
    assert_float_equal(c.kinds[0].scale, 0.5, 0);
    c = good("{'model_type':'granite'}", NULL);
    assert_float_equal(c.embedding_scale * c.kinds[0].scale * c.logit_factor, 1, 0);
    c = good("{'model_type':'granitemoehybrid','num_local_experts':0,'num_hidden_layers':2,"
             "'layer_types':['attention','full_attention'],'shared_intermediate_size':96,"
             "'position_embedding_type':'rope'}",
             NULL);
    assert_int_equal(c.intermediate_size, 96);
    assert_int_equal(c.kinds[0].rope, 0);
    c = good("{'model_type':'granitemoehybrid','num_local_experts':0,'num_hidden_layers':1,"
             "'layer_types':['attention']}",
             NULL);
    assert_int_equal(c.kinds[0].rope, AG_NO_ROPE);
}

static void minicpm_has_the_factors_of_granite(void **state) {
    (void)state;
    ag_model_spec c = good("{'model_type':'minicpm','hidden_size':1024,'num_attention_heads':16,"
                           "'num_hidden_layers':49,'scale_emb':12,'scale_depth':1.4,"
                           "'dim_model_base':256}",
                           NULL);
    assert_float_equal(c.embedding_scale, 60, 1e-4);
    assert_float_equal(ag_spec_eps(&c), 25e-6, 1e-10);
    assert_float_equal(c.logit_factor, 0.25, 0);
    assert_float_equal(c.kinds[0].scale, 0.125, 0);
    c = good("{'model_type':'minicpm'}", NULL);
    assert_float_equal(c.embedding_scale * c.logit_factor, 1, 0);
}

static void ministral_scales_queries_by_position(void **state) {
    (void)state;
    ag_model_spec c = good("{'model_type':'ministral3'}", NULL);
    assert_int_equal(c.ropes[0].scaling.type, AG_ROPE_YARN);
    assert_int_equal(c.ropes[0].n_rotated, 128);
    assert_float_equal(c.query_beta, 0.1, 1e-7);
    assert_int_equal(c.query_period, 16384);
    assert_int_equal(c.kinds[0].window, 0);
    c = good("{'model_type':'mistral3','text_config':{'rope_theta':5e5,'head_dim':64}}", NULL);
    assert_int_equal(c.ropes[0].scaling.type, AG_ROPE_DEFAULT);
    assert_true(c.query_beta == 0);
}

static void phi_has_the_configured_windows(void **state) {
    (void)state;
    assert_int_equal(good("{'model_type':'phi3'}", NULL).kinds[0].window, 0);
    assert_int_equal(good("{'model_type':'phi3','sliding_window':2047}", NULL).kinds[0].window,
                     2047);
    assert_true(good("{'model_type':'phi3'}", NULL).norm_eps == 1e-5f);
    /* Phi-4-mini's, with shorter lists. */
    ag_model_spec c = good(
        "{'architectures':['Phi3ForCausalLM'],'hidden_size':16,'num_attention_heads':1,"
        "'num_key_value_heads':1,'partial_rotary_factor':0.75,'max_position_embeddings':131072,"
        "'original_max_position_embeddings':4096,'sliding_window':262144,'rope_scaling':{'type':"
        "'longrope','long_factor':[1,1.5,2,3,4,5],'short_factor':[1,1,1,1,1,1]}}",
        NULL);
    assert_int_equal(c.kinds[0].window, 0);
    assert_int_equal(c.ropes[0].n_rotated, 12);
    assert_float_equal(c.ropes[0].attention_factor, 1.1902380714238083, 1e-6);
    assert_true(ag_spec_is_long(&c, 4097) && !ag_spec_is_long(&c, 4096));
}

static void mistral_window_applies_to_every_layer(void **state) {
    (void)state;
    ag_model_spec c = good("{'model_type':'mistral','max_position_embeddings':32768,"
                           "'sliding_window':4096}",
                           NULL);
    assert_int_equal(c.n_kinds, 1);
    assert_int_equal(c.kinds[0].window, 4096);
    assert_int_equal(c.max_positions, 32768);
    c = good("{'model_type':'mistral','max_position_embeddings':32768}", NULL);
    assert_int_equal(c.kinds[0].window, 4096);
    c = good("{'model_type':'mistral','max_position_embeddings':32768,'sliding_window':null}",
             NULL);
    assert_int_equal(c.kinds[0].window, 0);
    assert_int_equal(c.max_positions, 32768);
    c = good("{'model_type':'llama','max_position_embeddings':1024,'sliding_window':16}", NULL);
    assert_int_equal(c.kinds[0].window, 0);
}

static void qwen_has_windows_only_if_enabled(void **state) {
    (void)state;
    ag_model_spec c = good("{'model_type':'qwen2','num_hidden_layers':4,'sliding_window':64,"
                           "'max_window_layers':2,'use_sliding_window':false}",
                           NULL);
    assert_int_equal(c.n_kinds, 1);
    assert_int_equal(c.kinds[0].window, 0);
    assert_true(c.kinds[0].qkv_bias && !c.kinds[0].out_bias);
    assert_int_equal(c.bos_id, -1);
    assert_int_equal(c.n_eos, 0);
    c = good("{'model_type':'qwen2','num_hidden_layers':4,'sliding_window':64,"
             "'max_window_layers':2,'use_sliding_window':true}",
             NULL);
    for (uint32_t l = 0; l < 4; l++) {
        assert_int_equal(ag_spec_layer(&c, l)->window, l < 2 ? 0 : 64);
    }
    c = good("{'model_type':'qwen3','num_hidden_layers':2,'sliding_window':64,"
             "'layer_types':['sliding_attention','full_attention'],'use_sliding_window':true}",
             NULL);
    assert_int_equal(ag_spec_layer(&c, 0)->window, 64);
    assert_int_equal(ag_spec_layer(&c, 1)->window, 0);
    assert_true(c.kinds[0].qk_norm);
    assert_int_equal(c.kinds[0].head_dim, 128);
    c = good("{'model_type':'qwen2','num_hidden_layers':2,'sliding_window':64,"
             "'max_window_layers':0,'use_sliding_window':true}",
             NULL);
    assert_int_equal(c.n_kinds, 1);
    assert_int_equal(c.kinds[0].window, 64);
    c = good("{'model_type':'qwen2','num_hidden_layers':2,'sliding_window':null,"
             "'max_window_layers':0,'use_sliding_window':true}",
             NULL);
    assert_int_equal(c.kinds[0].window, 0);
    c = good("{'model_type':'qwen2','sliding_window':0,'max_window_layers':2000}", NULL);
    assert_int_equal(c.kinds[0].window, 0);
}

/* The text part does not repeat keys of the entire model. */
static void reads_the_text_part_of_multimodal_models(void **state) {
    (void)state;
    ag_model_spec c = good("{'architectures':['Gemma3ForConditionalGeneration'],'eos_token_id':"
                           "[1,106],'text_config':{'num_hidden_layers':2}}",
                           NULL);
    assert_int_equal(c.n_layers, 2);
    assert_int_equal(c.bos_id, 2);
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.eos_ids[1], 106);
    c = good("{'model_type':'gemma3','eos_token_id':106,'bos_token_id':9,"
             "'text_config':{'eos_token_id':7,'bos_token_id':8}}",
             "{'eos_token_id':5}");
    assert_int_equal(c.bos_id, 8);
    assert_int_equal(c.n_eos, 3);
}

/* Keys that transformers 4 wrote; the recorded model has those of version 5. */
static void reads_the_old_keys_of_gemma(void **state) {
    (void)state;
    ag_model_spec c =
        good("{'architectures':['Gemma3ForConditionalGeneration'],'text_config':{'model_type':"
             "'gemma3_text','hidden_size':2560,'num_hidden_layers':7,'sliding_window':1024,"
             "'rope_theta':1000000.0,'rope_local_base_freq':5000.0,'sliding_window_pattern':3,"
             "'rope_scaling':{'factor':8.0,'rope_type':'linear'}}}",
             NULL);
    assert_string_equal(c.architecture, "Gemma3ForConditionalGeneration");
    assert_int_equal(c.hidden_size, 2560);
    assert_true(c.embedding_scale == sqrtf(2560));
    assert_int_equal(c.bos_id, 2);
    for (uint32_t l = 0; l < 7; l++) {
        const ag_layer_spec *kind = ag_spec_layer(&c, l);
        const ag_rope_spec *rope = &c.ropes[kind->rope];
        const bool full = l % 3 == 2;
        assert_int_equal(kind->window, full ? 0 : 1024);
        assert_true(rope->theta == (full ? 1e6 : 5000));
        assert_int_equal(rope->scaling.type, full ? AG_ROPE_LINEAR : AG_ROPE_DEFAULT);
        assert_true(kind->scale == 0.0625f && kind->post_norms && kind->qk_norm);
        assert_true(kind->activation == AG_ACTIVATION_GELU_TANH);
    }
    c = good("{'model_type':'gemma2','num_hidden_layers':2}", NULL);
    assert_true(c.kinds[0].softcap == 50 && c.logit_softcap == 30);
    assert_int_equal(c.kinds[0].window, 4096);
    assert_int_equal(ag_spec_layer(&c, 1)->window, 0);
    c = good("{'model_type':'gemma2','attn_logit_softcapping':null,"
             "'final_logit_softcapping':null}",
             NULL);
    assert_true(c.kinds[0].softcap == 0 && c.logit_softcap == 0);
    c = good("{'model_type':'gemma3_text','attn_logit_softcapping':50,"
             "'final_logit_softcapping':20}",
             NULL);
    assert_true(c.kinds[0].softcap == 0 && c.logit_softcap == 20);
}

static void lfm2_has_convolutions_and_attention(void **state) {
    (void)state;
    ag_model_spec c = good("{'model_type':'lfm2','num_hidden_layers':4,'hidden_size':1024,"
                           "'num_attention_heads':16,'block_ff_dim':6656,'full_attn_idxs':[1,3],"
                           "'conv_L_cache':4,'tie_embedding':false,'norm_eps':0.001}",
                           NULL);
    assert_int_equal(c.intermediate_size, 4608); /* two thirds of it, as a multiple of 256 */
    assert_false(c.tie_word_embeddings);
    assert_true(c.norm_eps == 0.001f);
    for (uint32_t l = 0; l < 4; l++) {
        const ag_layer_spec *kind = ag_spec_layer(&c, l);
        assert_int_equal(kind->mixer, l % 2 ? AG_MIXER_ATTENTION : AG_MIXER_SHORT_CONV);
        assert_int_equal(kind->conv_taps, l % 2 ? 0 : 4);
        assert_int_equal(kind->qk_norm, l % 2);
    }
    c = good("{'model_type':'lfm2','num_hidden_layers':2,'layer_types':['full_attention','conv'],"
             "'intermediate_size':100,'block_auto_adjust_ff_dim':false}",
             NULL);
    assert_int_equal(c.intermediate_size, 100);
    assert_int_equal(ag_spec_layer(&c, 0)->mixer, AG_MIXER_ATTENTION);
    assert_int_equal(ag_spec_layer(&c, 1)->mixer, AG_MIXER_SHORT_CONV);
}

static void qwen3_5_has_attention_in_every_fourth_layer(void **state) {
    (void)state;
    ag_model_spec c = good("{'model_type':'qwen3_5','text_config':{'num_hidden_layers':8,"
                           "'linear_num_value_heads':16,'head_dim':64}}",
                           NULL);
    for (uint32_t l = 0; l < 8; l++) {
        const ag_layer_spec *kind = ag_spec_layer(&c, l);
        const bool full = l % 4 == 3;
        assert_int_equal(kind->mixer, full ? AG_MIXER_ATTENTION : AG_MIXER_DELTA_NET);
        assert_int_equal(kind->out_gate, full);
        if (full) continue;
        assert_int_equal(kind->conv_taps, 4);
        assert_int_equal(kind->delta.n_v_heads, 16);
        assert_int_equal(kind->delta.n_k_heads, 16);
        assert_int_equal(ag_spec_channels(&c, kind), 3 * 16 * 128);
        assert_false(kind->delta.tiled);
    }
    assert_int_equal(c.ropes[0].n_rotated, 16);
    c = good("{'model_type':'qwen3_5_text','full_attention_interval':2,'attn_output_gate':false}",
             NULL);
    assert_int_equal(ag_spec_layer(&c, 1)->mixer, AG_MIXER_ATTENTION);
    assert_false(ag_spec_layer(&c, 1)->out_gate);
}

static void gemma4_last_layers_share_keys_and_values(void **state) {
    (void)state;
    ag_model_spec c = good("{'model_type':'gemma4','text_config':{'num_hidden_layers':12,"
                           "'num_kv_shared_layers':4,'hidden_size':64,"
                           "'intermediate_size':300,'use_double_wide_mlp':true,'vocab_size':600,"
                           "'num_global_key_value_heads':2}}", /* not without attention_k_eq_v */
                           NULL);
    assert_true(c.out_scale && c.embedding_scale == 8);
    assert_int_equal(c.layer_input, 256);
    assert_int_equal(c.n_layer_inputs, 600);
    for (uint32_t l = 0; l < 12; l++) {
        const ag_layer_spec *kind = ag_spec_layer(&c, l);
        const bool full = l % 6 == 5;
        assert_int_equal(kind->shares_kv, l >= 8);
        assert_int_equal(kind->window, full ? 0 : 512);
        assert_int_equal(kind->head_dim, full ? 512 : 256);
        assert_int_equal(kind->n_kv_heads, 4);
        assert_int_equal(ag_spec_ffn_dim(&c, kind), l < 8 ? 300 : 600);
        assert_int_equal(ag_spec_kv_source(&c, l), l < 8 ? l : full ? 5 : 7);
        assert_true(kind->scale == 1 && kind->v_norm && kind->post_norms);
    }
    assert_int_equal(c.ropes[0].n_rotated, 512);
    assert_int_equal(c.ropes[0].n_turned, 128);
    assert_int_equal(c.ropes[1].n_rotated, 256);
    c = good("{'model_type':'gemma4_text','num_hidden_layers':8,'global_head_dim':64,"
             "'use_bidirectional_attention':'vision'}",
             NULL);
    assert_int_equal(ag_spec_layer(&c, 5)->head_dim, 64);
    assert_int_equal(ag_spec_layer(&c, 7)->window, 0); /* the last one */
    c = good("{'model_type':'gemma4_text','num_hidden_layers':6,'global_head_dim':64,"
             "'per_layer_config':{'5':{'head_dim':128,'num_key_value_heads':2}}}",
             NULL);
    assert_int_equal(ag_spec_layer(&c, 5)->head_dim, 128);
    assert_int_equal(ag_spec_layer(&c, 5)->n_kv_heads, 2);
    c = good("{'model_type':'gemma4_text','hidden_size_per_layer_input':null}", NULL);
    assert_int_equal(c.layer_input, 0);
    c = good("{'model_type':'gemma4_text','hidden_size_per_layer_input':0}", NULL);
    assert_int_equal(c.layer_input, 0);
    /* The last layer has no window; heads are wider there though nothing says so. */
    c = good("{'model_type':'gemma4_text','num_hidden_layers':2,'intermediate_size':100,"
             "'layer_types':['sliding_attention','sliding_attention']}",
             NULL);
    assert_int_equal(c.layer_input, 256);
    assert_int_equal(ag_spec_layer(&c, 0)->window, 512);
    assert_int_equal(ag_spec_layer(&c, 1)->window, 0);
    assert_int_equal(ag_spec_layer(&c, 1)->head_dim, 512);
    c = good("{'model_type':'gemma4_text','num_hidden_layers':6,"
             "'per_layer_config':{'5':{'head_dim':64}}}",
             NULL);
    assert_int_equal(ag_spec_layer(&c, 5)->head_dim, 64);
}

static void bias_keys_apply_to_llama_not_to_mistral(void **state) {
    (void)state;
    ag_model_spec c = good("{'model_type':'llama','attention_bias':true,'mlp_bias':true}", NULL);
    assert_true(c.kinds[0].qkv_bias && c.kinds[0].ffn_bias);
    c = good("{'model_type':'mistral','attention_bias':true,'mlp_bias':true}", NULL);
    assert_false(c.kinds[0].qkv_bias || c.kinds[0].ffn_bias);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smollm3_has_no_rope_in_every_fourth_layer),
        cmocka_unit_test(granite_factors_are_in_the_description),
        cmocka_unit_test(minicpm_has_the_factors_of_granite),
        cmocka_unit_test(ministral_scales_queries_by_position),
        cmocka_unit_test(phi_has_the_configured_windows),
        cmocka_unit_test(mistral_window_applies_to_every_layer),
        cmocka_unit_test(qwen_has_windows_only_if_enabled),
        cmocka_unit_test(reads_the_text_part_of_multimodal_models),
        cmocka_unit_test(reads_the_old_keys_of_gemma),
        cmocka_unit_test(lfm2_has_convolutions_and_attention),
        cmocka_unit_test(qwen3_5_has_attention_in_every_fourth_layer),
        cmocka_unit_test(gemma4_last_layers_share_keys_and_values),
        cmocka_unit_test(bias_keys_apply_to_llama_not_to_mistral),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
