/* SPDX-License-Identifier: Apache-2.0 */
#include "config_texts.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

/* Loads the configuration of a directory. */
static ag_status load(const char *dir, ag_model_spec *out, ag_error *err) {
    ag_weight_source *source;
    if (ag_source_open(dir, &source, err) != AG_OK) fail_msg("%s", err->msg);
    ag_status st = ag_spec_read(source, out, err);
    ag_source_destroy(source);
    return st;
}

static void reads_llama_3_2_1b_as_published(void **state) {
    (void)state;
    ag_model_spec c = good(
        "{'architectures':['LlamaForCausalLM'],'attention_bias':false,'bos_token_id':128000,"
        "'eos_token_id':[128001,128008,128009],'head_dim':64,'hidden_act':'silu','hidden_size':"
        "2048,"
        "'intermediate_size':8192,'max_position_embeddings':131072,'mlp_bias':false,'model_type':"
        "'llama','num_attention_heads':32,'num_hidden_layers':16,'num_key_value_heads':8,"
        "'pretraining_tp':1,'rms_norm_eps':1e-05,'rope_scaling':{'factor':32.0,'high_freq_factor':"
        "4.0,'low_freq_factor':1.0,'original_max_position_embeddings':8192,'rope_type':'llama3'},"
        "'rope_theta':500000.0,'tie_word_embeddings':true,'torch_dtype':'float16','vocab_size':"
        "128256}",
        "{'bos_token_id':128000,'do_sample':true,'eos_token_id':[128001,128008,128009]}");
    assert_string_equal(c.architecture, "LlamaForCausalLM");
    assert_int_equal(c.vocab_size, 128256);
    assert_int_equal(c.hidden_size, 2048);
    assert_int_equal(c.intermediate_size, 8192);
    assert_int_equal(c.n_layers, 16);
    assert_int_equal(c.kinds[0].n_heads, 32);
    assert_int_equal(c.kinds[0].n_kv_heads, 8);
    assert_int_equal(c.kinds[0].head_dim, 64);
    assert_int_equal(c.max_positions, 131072);
    assert_int_equal(c.kinds[0].window, 0);
    assert_true(c.norm_eps == 1e-5f);
    assert_true(c.ropes[0].theta == 500000);
    assert_int_equal(c.ropes[0].scaling.type, AG_ROPE_LLAMA3);
    assert_true(c.ropes[0].scaling.factor == 32);
    assert_true(c.ropes[0].scaling.low_freq_factor == 1);
    assert_true(c.ropes[0].scaling.high_freq_factor == 4);
    assert_true(c.ropes[0].scaling.original_max_position_embeddings == 8192);
    assert_true(c.tie_word_embeddings);
    assert_false(c.kinds[0].qkv_bias || c.kinds[0].ffn_bias);
    assert_int_equal(c.bos_id, 128000);
    assert_int_equal(c.n_eos, 3);
    assert_int_equal(c.eos_ids[2], 128009);
}

static void absent_keys_have_the_defaults_of_transformers(void **state) {
    (void)state;
    ag_model_spec c = good("{'model_type':'llama'}", NULL);
    assert_string_equal(c.architecture, "LlamaForCausalLM");
    assert_int_equal(c.vocab_size, 32000);
    assert_int_equal(c.hidden_size, 4096);
    assert_int_equal(c.intermediate_size, 11008);
    assert_int_equal(c.n_layers, 32);
    assert_int_equal(c.kinds[0].n_heads, 32);
    assert_int_equal(c.kinds[0].n_kv_heads, 32);
    assert_int_equal(c.kinds[0].head_dim, 128);
    assert_int_equal(c.max_positions, 2048);
    assert_true(c.norm_eps == 1e-6f);
    assert_true(c.ropes[0].theta == 10000);
    assert_int_equal(c.ropes[0].scaling.type, AG_ROPE_DEFAULT);
    assert_false(c.tie_word_embeddings);
    assert_int_equal(c.bos_id, 1);
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos_ids[0], 2);
    c = good("{'model_type':'mistral'}", NULL);
    assert_string_equal(c.architecture, "MistralForCausalLM");
    assert_int_equal(c.intermediate_size, 14336);
    assert_int_equal(c.kinds[0].n_kv_heads, 8);
    c = good("{'model_type':'mistral','num_key_value_heads':null}", NULL);
    assert_int_equal(c.kinds[0].n_kv_heads, 32);
}

static void accepts_integers_written_as_reals(void **state) {
    (void)state;
    ag_model_spec c = good("{'model_type':'llama','max_position_embeddings':4096.0,"
                           "'rope_theta':500000,'hidden_size':64.0,'num_attention_heads':4}",
                           NULL);
    assert_int_equal(c.max_positions, 4096);
    assert_int_equal(c.kinds[0].head_dim, 16);
    assert_true(c.ropes[0].theta == 500000);
}

static void reads_all_spellings_of_rope_scaling(void **state) {
    (void)state;
    ag_model_spec c =
        good("{'model_type':'llama','rope_scaling':{'type':'linear','factor':2}}", NULL);
    assert_int_equal(c.ropes[0].scaling.type, AG_ROPE_LINEAR);
    assert_true(c.ropes[0].scaling.factor == 2);
    c = good("{'model_type':'llama','rope_scaling':null}", NULL);
    assert_int_equal(c.ropes[0].scaling.type, AG_ROPE_DEFAULT);
    c = good("{'model_type':'llama','rope_scaling':{'rope_type':'default','type':'x'}}", NULL);
    assert_int_equal(c.ropes[0].scaling.type, AG_ROPE_DEFAULT);
    c = good("{'model_type':'llama','rope_theta':7.0,'rope_parameters':"
             "{'rope_theta':50000.0,'rope_type':'default'}}",
             NULL);
    assert_int_equal(c.ropes[0].scaling.type, AG_ROPE_DEFAULT);
    assert_true(c.ropes[0].theta == 50000);
    c = good("{'model_type':'llama','rope_parameters':{'rope_type':'llama3','rope_theta':5e5,"
             "'factor':8.0,'low_freq_factor':1.0,'high_freq_factor':4.0}}",
             NULL);
    assert_int_equal(c.ropes[0].scaling.type, AG_ROPE_LLAMA3);
    assert_true(c.ropes[0].scaling.original_max_position_embeddings == 2048);
    c = good("{'model_type':'llama','rope_scaling':{'type':'linear','factor':2},"
             "'rope_parameters':{'rope_type':'linear','factor':3}}",
             NULL);
    assert_true(c.ropes[0].scaling.factor == 2);
    c = good("{'model_type':'llama','original_max_position_embeddings':512,'rope_scaling':"
             "{'rope_type':'llama3','factor':8.0,'low_freq_factor':1.0,'high_freq_factor':4.0,"
             "'original_max_position_embeddings':64}}",
             NULL);
    assert_true(c.ropes[0].scaling.original_max_position_embeddings == 512);
}

static void joins_eos_ids_of_both_files(void **state) {
    (void)state;
    ag_model_spec c = good("{'model_type':'llama','eos_token_id':5,'bos_token_id':3}",
                           "{'eos_token_id':[7,5,32000,-1],'bos_token_id':null}");
    assert_int_equal(c.n_eos, 2);
    assert_int_equal(c.eos_ids[0], 5);
    assert_int_equal(c.eos_ids[1], 7);
    assert_int_equal(c.bos_id, 3);
    c = good("{'model_type':'llama','eos_token_id':null,'bos_token_id':null}", "{}");
    assert_int_equal(c.n_eos, 0);
    assert_int_equal(c.bos_id, -1);
    c = good("{'model_type':'llama'}", "{'eos_token_id':9,'bos_token_id':[4,5]}");
    assert_int_equal(c.n_eos, 1);
    assert_int_equal(c.eos_ids[0], 9);
    assert_int_equal(c.bos_id, 4);
}

#define LLAMA "'model_type':'llama',"
#define YARN "'rope_scaling':{'type':'yarn',"
#define LONGROPE "'head_dim':4,'rope_scaling':{'type':'longrope',"
#define LLAMA3 LLAMA "'rope_scaling':{'rope_type':'llama3','factor':8"

static void reads_yarn_and_longrope_with_their_factors(void **state) {
    (void)state;
    /* From the model card of Qwen 2.5. */
    ag_model_spec c = good("{'model_type':'qwen2','rope_scaling':{'factor':4.0,"
                           "'original_max_position_embeddings':32768,'type':'yarn'}}",
                           NULL);
    const ag_rope_spec *rope = &c.ropes[0];
    assert_int_equal(rope->scaling.type, AG_ROPE_YARN);
    assert_true(rope->scaling.beta_fast == 32 && rope->scaling.beta_slow == 1);
    assert_true(rope->scaling.round_to_pairs && rope->scaling.factor == 4);
    assert_float_equal(rope->attention_factor, 0.1 * log(4) + 1, 1e-6);
    assert_false(ag_spec_is_long(&c, UINT64_MAX));
    c = good("{" LLAMA YARN "'original_max_position_embeddings':512,'truncate':false,"
             "'mscale':1.0,'mscale_all_dim':0.5}}",
             NULL);
    assert_true(rope->scaling.factor == 4 && !rope->scaling.round_to_pairs);
    assert_float_equal(rope->attention_factor, (0.1 * log(4) + 1) / (0.05 * log(4) + 1), 1e-6);
    c = good("{" LLAMA YARN "'mscale':1.0,'factor':2,'attention_factor':3}}", NULL);
    assert_true(rope->attention_factor == 3);
    c = good("{" LLAMA LONGROPE "'short_factor':[1,2],'long_factor':[3,4]},"
             "'original_max_position_embeddings':128,'max_position_embeddings':16384}",
             NULL);
    assert_int_equal(rope->scaling.type, AG_ROPE_LONGROPE);
    assert_int_equal(rope->n_divisors, 2);
    assert_int_equal(good("{'model_type':'phi3','head_dim':2,'rope_scaling':{'type':'yarn',"
                          "'short_factor':[1],'long_factor':[3]}}",
                          NULL)
                         .ropes[0]
                         .scaling.type,
                     AG_ROPE_LONGROPE);
    assert_true(rope->divisors[0][1] == 2 && rope->divisors[1][1] == 4);
    assert_float_equal(rope->attention_factor, sqrt(2), 1e-6);
    assert_false(ag_spec_is_long(&c, 128));
    assert_true(ag_spec_is_long(&c, 129));
    c = good("{'model_type':'phi3','head_dim':64,'partial_rotary_factor':0.75}", NULL);
    assert_int_equal(rope->n_rotated, 48);
    c = good("{'model_type':'phi3','head_dim':64,'partial_rotary_factor':0.75,"
             "'rope_parameters':{'rope_theta':7,'partial_rotary_factor':0.5}}",
             NULL);
    assert_int_equal(rope->n_rotated, 32);
    /* Other families turn whole heads, as in transformers. */
    c = good("{" LLAMA "'head_dim':64,'partial_rotary_factor':0.75}", NULL);
    assert_int_equal(rope->n_rotated, 64);
}

static const struct {
    const char *json;
    ag_status status;
    const char *reason;
} bad_configs[] = {
    {"{", AG_FORMAT, "config.json, byte 1"},
    {"[]", AG_FORMAT, "must be a JSON object"},
    {"{}", AG_FORMAT, "neither architectures nor model_type"},
    {"{'architectures':['GPT2LMHeadModel']}", AG_UNSUPPORTED,
     "\"GPT2LMHeadModel\"; known: LlamaForCausalLM, MistralForCausalLM"},
    {"{'architectures':[7]}", AG_UNSUPPORTED, "known: LlamaForCausalLM"},
    {"{'architectures':'LlamaForCausalLM'}", AG_FORMAT, "architectures is not a list"},
    {"{'model_type':'bloom'}", AG_UNSUPPORTED, "\"bloom\"; known architectures: Llama"},
    {"{" LLAMA "'quantization_config':{'bits':4}}", AG_UNSUPPORTED, "quantization_config"},
    {"{" LLAMA "'quantization_config':{'bits':4,'quant_method':'gptq'}}", AG_UNSUPPORTED,
     "its weights are quantised (method gptq)"},
    {"{" LLAMA "'quantization':{'bits':4,'group_size':64}}", AG_UNSUPPORTED, "(method mlx)"},
    {"{" LLAMA "'hidden_act':'gelu'}", AG_UNSUPPORTED, "\"gelu\"; known: silu"},
    {"{" LLAMA "'hidden_size':0}", AG_FORMAT, "hidden_size is 0"},
    {"{" LLAMA "'hidden_size':-4096}", AG_FORMAT, "hidden_size is -4096"},
    {"{" LLAMA "'hidden_size':64.5}", AG_FORMAT, "64.5, not an integer"},
    {"{" LLAMA "'hidden_size':'64'}", AG_FORMAT, "hidden_size is not a number"},
    {"{" LLAMA "'hidden_size':9223372036854775807}", AG_FORMAT, "hidden_size is 9.2"},
    {"{" LLAMA "'num_hidden_layers':1000000000}", AG_FORMAT, "num_hidden_layers is 1e+09"},
    {"{" LLAMA "'hidden_size':100,'num_attention_heads':3}", AG_FORMAT, "not a multiple of num"},
    {"{" LLAMA "'num_key_value_heads':5}", AG_FORMAT, "not a multiple of num_key_value_heads 5"},
    {"{" LLAMA "'num_key_value_heads':64}", AG_FORMAT, "num_key_value_heads 64"},
    {"{" LLAMA "'head_dim':65}", AG_FORMAT, "head_dim 65 is odd"},
    {"{" LLAMA "'head_dim':16384,'num_attention_heads':16384,'num_key_value_heads':1}", AG_FORMAT,
     "16384 heads of 16384 exceed"},
    {"{" LLAMA "'rms_norm_eps':0}", AG_FORMAT, "rms_norm_eps is 0"},
    {"{" LLAMA "'rms_norm_eps':NaN}", AG_FORMAT, "byte"},
    {"{" LLAMA "'rope_theta':0.0}", AG_FORMAT, "rope_theta is 0"},
    {"{" LLAMA "'rope_theta':-10000}", AG_FORMAT, "rope_theta is -10000"},
    {"{" LLAMA "'tie_word_embeddings':1}", AG_FORMAT, "tie_word_embeddings is not true or false"},
    {"{" LLAMA "'rope_scaling':'linear'}", AG_FORMAT, "rope_scaling is not an object"},
    {"{" LLAMA "'rope_scaling':{'type':'dynamic','factor':2}}", AG_UNSUPPORTED,
     "\"dynamic\"; known: default, linear, llama3, yarn, longrope"},
    {"{" LLAMA YARN "'factor':0}}", AG_FORMAT, "factor is 0"},
    {"{" LLAMA YARN "'beta_fast':1,'beta_slow':2}}", AG_FORMAT,
     "yarn with beta_fast 1, beta_slow 2"},
    {"{" LLAMA YARN "'rope_theta':1}}", AG_FORMAT, "rope_theta 1;"},
    {"{" LLAMA YARN "'mscale':'1'}}", AG_FORMAT, "mscale is not a number"},
    {"{" LLAMA YARN "'attention_factor':-1}}", AG_FORMAT, "attention_factor is -1"},
    {"{" LLAMA YARN "'truncate':1}}", AG_FORMAT, "truncate is not true or false"},
    {"{" LLAMA LONGROPE "'long_factor':[1,2]}}", AG_FORMAT,
     "rope_scaling: short_factor is not a list of 2 numbers"},
    {"{" LLAMA LONGROPE "'short_factor':[1],'long_factor':[1,2]}}", AG_FORMAT,
     "short_factor is not a list of 2"},
    {"{" LLAMA LONGROPE "'short_factor':[1,2],'long_factor':[1,0]}}", AG_FORMAT,
     "number 1 of long_factor is not within"},
    {"{" LLAMA LONGROPE "'short_factor':[1,2],'long_factor':[1,'2']}}", AG_FORMAT,
     "number 1 of long_factor is not within"},
    {"{" LLAMA "'head_dim':514,'rope_scaling':{'type':'longrope'}}", AG_UNSUPPORTED,
     "longrope has 257 pairs"},
    {"{" LLAMA "'rope_scaling':{'type':'linear'}}", AG_FORMAT, "rope_scaling: factor is missing"},
    {"{" LLAMA "'rope_scaling':{'type':'linear','factor':0}}", AG_FORMAT, "factor is 0"},
    {"{" LLAMA "'head_dim':8,'rope_parameters':{'partial_rotary_factor':0.4}}", AG_UNSUPPORTED,
     "rope_parameters: partial_rotary_factor 0.4 rotates 3 of 8 values"},
    {"{" LLAMA "'head_dim':8,'partial_rotary_factor':0.1}", AG_UNSUPPORTED,
     "partial_rotary_factor 0.1 rotates 0 of 8"},
    {"{" LLAMA "'partial_rotary_factor':1.5}", AG_FORMAT, "partial_rotary_factor is 1.5"},
    {"{" LLAMA3 "}}", AG_FORMAT, "low_freq_factor is missing"},
    {"{" LLAMA3 ",'low_freq_factor':4,'high_freq_factor':4}}", AG_FORMAT,
     "high_freq_factor 4 is not above low_freq_factor 4"},
    {"{" LLAMA3 ",'low_freq_factor':1,'high_freq_factor':4,"
     "'original_max_position_embeddings':0}}",
     AG_FORMAT, "original_max_position_embeddings is 0"},
    {"{" LLAMA "'eos_token_id':'</s>'}", AG_FORMAT, "eos_token_id is not a token id"},
    {"{" LLAMA "'eos_token_id':[1,2.5]}", AG_FORMAT, "eos_token_id is not a token id"},
    {"{" LLAMA "'bos_token_id':{}}", AG_FORMAT, "bos_token_id is not a token id"},
    {"{" LLAMA "'eos_token_id':[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}", AG_LIMIT,
     "more than 16"},
    {"{'model_type':'mistral','sliding_window':-1}", AG_FORMAT, "sliding_window is -1"},
    {"{'model_type':'gemma2','layer_types':['conv']}", AG_UNSUPPORTED, "layer 0 is \"conv\""},
    {"{'model_type':'gemma2','num_hidden_layers':2,'layer_types':['full_attention']}", AG_FORMAT,
     "lacks the type of layer 1"},
    {"{'model_type':'gemma2','hidden_activation':'gelu'}", AG_UNSUPPORTED,
     "hidden_activation is \"gelu\"; known: gelu_pytorch_tanh"},
    {"{'model_type':'gemma3_text','rope_parameters':{'sliding_attention':"
     "{'rope_theta':1,'rope_type':'ntk'}}}",
     AG_UNSUPPORTED, "rope_parameters.sliding_attention: unknown rope type \"ntk\""},
    {"{'model_type':'gemma3_text','rope_parameters':{'full_attention':7}}", AG_FORMAT,
     "full_attention is not an object"},
    {"{'model_type':'gemma3_text','use_bidirectional_attention':true}", AG_UNSUPPORTED,
     "use_bidirectional_attention"},
    {"{'model_type':'gemma3','text_config':'gemma3_text'}", AG_FORMAT,
     "text_config is not an object"},
    {"{'model_type':'gemma3','quantization_config':{'quant_method':'gptq'},'text_config':"
     "{'hidden_size':64}}",
     AG_UNSUPPORTED, "its weights are quantised (method gptq)"},
    {"{'model_type':'smollm3','num_hidden_layers':2,'no_rope_layers':[1]}", AG_FORMAT,
     "lacks an integer for layer 1"},
    {"{'model_type':'smollm3','no_rope_layers':['a']}", AG_FORMAT, "lacks an integer for layer 0"},
    {"{'model_type':'smollm3','no_rope_layer_interval':0}", AG_FORMAT,
     "no_rope_layer_interval is 0"},
    {"{'model_type':'granite','residual_multiplier':0}", AG_FORMAT, "residual_multiplier is 0"},
    {"{'model_type':'granite','logits_scaling':0}", AG_FORMAT, "logits_scaling is 0"},
    {"{'model_type':'granite','attention_multiplier':'1'}", AG_FORMAT,
     "attention_multiplier is not a number"},
    {"{'model_type':'granite','embedding_multiplier':-1}", AG_FORMAT, "embedding_multiplier is -1"},
    {"{'model_type':'minicpm','scale_depth':0}", AG_FORMAT, "scale_depth is 0"},
    {"{'model_type':'minicpm','dim_model_base':0}", AG_FORMAT, "dim_model_base is 0"},
    {"{'model_type':'minicpm','scale_emb':true}", AG_FORMAT, "scale_emb is not a number"},
    {"{'model_type':'granitemoehybrid'}", AG_UNSUPPORTED, "num_local_experts is not 0"},
    {"{'model_type':'granitemoehybrid','num_local_experts':0,'layer_types':['mamba']}",
     AG_UNSUPPORTED, "layer_types has other layers than attention"},
    {"{'model_type':'ministral3','rope_parameters':{'llama_4_scaling_beta':-1}}", AG_FORMAT,
     "llama_4_scaling_beta is -1"},
    {"{'model_type':'ministral3','rope_parameters':{'llama_4_scaling_beta':0.1}}", AG_FORMAT,
     "llama_4_scaling_beta needs original_max_position_embeddings"},
    {"{'model_type':'lfm2','conv_bias':true}", AG_UNSUPPORTED, "conv_bias is true"},
    {"{'model_type':'lfm2','conv_L_cache':9}", AG_FORMAT, "conv_L_cache is 9"},
    {"{'model_type':'lfm2','layer_types':['mamba']}", AG_UNSUPPORTED,
     "layer 0 is \"mamba\"; known: conv, full_attention"},
    {"{'model_type':'qwen3_5','linear_num_value_heads':24}", AG_FORMAT,
     "24 value heads, 16 key heads"},
    {"{'model_type':'qwen3_5','attention_bias':true}", AG_UNSUPPORTED, "attention_bias is true"},
    {"{'model_type':'gemma4','enable_moe_block':true}", AG_FORMAT,
     "enable_moe_block needs num_experts and top_k_experts"},
    {"{'model_type':'qwen3_moe','num_experts':4,'num_experts_per_tok':5}", AG_FORMAT,
     "num_experts_per_tok is 5, but num_experts is 4"},
    {"{'model_type':'qwen3_moe','hidden_size':1048576,'num_attention_heads':64,'num_experts':128,"
     "'num_experts_per_tok':65}",
     AG_LIMIT, "65 experts of 1048576 values"},
    {"{'model_type':'qwen3_moe','num_experts':0}", AG_FORMAT, "num_experts"},
    {"{'model_type':'mixtral','num_local_experts':1025}", AG_FORMAT, "num_local_experts"},
    {"{'model_type':'olmoe','clip_qkv':8}", AG_UNSUPPORTED, "clip_qkv"},
    {"{'model_type':'gpt_oss','swiglu_alpha':2}", AG_UNSUPPORTED, "swiglu_alpha is 2"},
    {"{'architectures':['DeepseekV3ForCausalLM']}", AG_UNSUPPORTED,
     "\"DeepseekV3ForCausalLM\" has latent attention, which is not supported"},
    {"{'model_type':'glm4_moe_lite'}", AG_UNSUPPORTED,
     "\"glm4_moe_lite\" has latent attention, which is not supported"},
    {"{'architectures':['MiniMaxM2ForCausalLM']}", AG_UNSUPPORTED, "\"MiniMaxM2ForCausalLM\""},
    {"{'model_type':'gemma4','num_kv_shared_layers':30}", AG_FORMAT, "no layer before 0 has"},
    {"{'model_type':'gemma4','use_bidirectional_attention':'all'}", AG_UNSUPPORTED,
     "use_bidirectional_attention is \"all\""},
    {"{'model_type':'gemma4','per_layer_config':{'5':{'head_dim':3}}}", AG_FORMAT,
     "layer 5 has 8 heads of 3"},
    {"{'model_type':'qwen3_5','num_hidden_layers':3}", AG_UNSUPPORTED,
     "layer_types has no layer with attention"},
    {"{" LLAMA "'partial_rotary_factor':0.5,'rope_scaling':{'type':'linear','factor':2}}",
     AG_UNSUPPORTED, "partial_rotary_factor is not supported with rope type linear"},
    {"{'model_type':'phi3','sliding_window':0}", AG_FORMAT, "sliding_window is 0"},
    {"{'model_type':'olmo2','attention_bias':0}", AG_FORMAT, "attention_bias is not true"},
};

static void rejects_unsupported_configs_with_a_reason(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_configs / sizeof bad_configs[0]; i++) {
        ag_model_spec c = {.vocab_size = 77};
        ag_error err = {0};
        ag_status st = parse2(bad_configs[i].json, NULL, &c, &err);
        if (st != bad_configs[i].status || !strstr(err.msg, bad_configs[i].reason) ||
            !strstr(err.msg, "config.json")) {
            fail_msg("%s: %s: %s", bad_configs[i].json, ag_status_name(st), err.msg);
        }
        assert_int_equal(c.vocab_size, 77);
        assert_int_equal(parse2(bad_configs[i].json, NULL, &c, NULL), st);
    }
}

static void generation_config_is_optional_and_checked(void **state) {
    (void)state;
    char dir[] = "/tmp/ag-config-XXXXXX", path[128], more[128];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/config.json", dir);
    snprintf(more, sizeof more, "%s/generation_config.json", dir);
    ag_model_spec c;
    ag_error err = {0};
    assert_int_equal(load(dir, &c, &err), AG_NOT_FOUND);
    assert_non_null(strstr(err.msg, dir));
    assert_non_null(strstr(err.msg, "is not a model: it holds neither config.json"));
    FILE *f = fopen(path, "w");
    fputs("{\"model_type\":\"llama\"}", f);
    fclose(f);
    assert_int_equal(load(dir, &c, &err), AG_OK);
    f = fopen(more, "w");
    fputs("{\"eos_token_id\":", f);
    fclose(f);
    assert_int_equal(load(dir, &c, &err), AG_FORMAT);
    assert_non_null(strstr(err.msg, more));
    unlink(path);
    unlink(more);
    rmdir(dir);
}

static void reads_recorded_models_and_the_demo(void **state) {
    (void)state;
    static const char *const dirs[] = {
        "models/demo",
        "tests/data/golden/models/gqa-llama3rope-sharded",
        "tests/data/golden/models/mha-tied-f32",
        "tests/data/golden/models/mqa-odd-sizes-f16",
        "tests/data/golden/models/linear-rope",
        "tests/data/golden/models/bias-wide-head",
        "tests/data/golden/models/mistral-v5-config",
    };
    for (size_t i = 0; i < sizeof dirs / sizeof dirs[0]; i++) {
        char path[512];
        ag_model_spec c;
        ag_error err = {0};
        snprintf(path, sizeof path, "%s/%s", AG_SOURCE_DIR, dirs[i]);
        if (load(path, &c, &err) != AG_OK) fail_msg("%s", err.msg);
        assert_true(c.norm_eps == 1e-5f);
        if (strstr(path, "bias")) assert_true(c.kinds[0].qkv_bias && c.kinds[0].ffn_bias);
        if (strstr(path, "bias")) assert_int_equal(c.kinds[0].head_dim, 128);
        if (strstr(path, "mistral")) assert_int_equal(c.max_positions, 512);
        if (strstr(path, "demo")) assert_int_equal(c.n_eos, 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_llama_3_2_1b_as_published),
        cmocka_unit_test(absent_keys_have_the_defaults_of_transformers),
        cmocka_unit_test(accepts_integers_written_as_reals),
        cmocka_unit_test(reads_all_spellings_of_rope_scaling),
        cmocka_unit_test(joins_eos_ids_of_both_files),
        cmocka_unit_test(reads_yarn_and_longrope_with_their_factors),
        cmocka_unit_test(rejects_unsupported_configs_with_a_reason),
        cmocka_unit_test(generation_config_is_optional_and_checked),
        cmocka_unit_test(reads_recorded_models_and_the_demo),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
