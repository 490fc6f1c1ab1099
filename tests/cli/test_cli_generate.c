/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity generate with the bundled model: text, ids, settings and stops. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "Once upon a time" as ids, and the likeliest continuation according to transformers. */
#define PROMPT_IDS "4090,790,650,258,469"
static const char greedy_text[] = ", there was a little girl named Lily.";

static void bundled_model_continues_prompt(void **state) {
    (void)state;
    cli_result r = CLI("generate", "-p", "Once upon a time", "-n", "12", "--temperature", "0");
    assert_code(&r, 0);
    assert_says(r.out, ", there was a little girl");
    assert_int_equal(r.out[r.n_out - 1], '\n');
    assert_says(r.err, "using the bundled demo model");
    assert_says(r.err, "prompt        5 tokens");
    assert_says(r.err, "decode       12 tokens");
    assert_says(r.err, "tokens/s");
    assert_says(r.err, "the first after");
    assert_says(r.err, "memory   peak");
    assert_says(r.err, "KV cache");
    assert_says(r.err, "evictions 0");
    assert_says(r.err, "finish   length (max_tokens), seed ");
    assert_does_not_say(r.err, "\r");
    cli_free(&r);
}

static void reports_memory_plan_before_loading(void **state) {
    (void)state;
    const char *const *const commands[] = {
        CLI_ARGS("generate", "-v", "-m", TINY, "--prompt-ids", "1", "-n", "1"),
        CLI_ARGS("eval", "ppl", "-v", "-m", TINY, "--prompt-ids", "1,2,3"),
        CLI_ARGS("eval", "kl", "-v", "-m", TINY, "--prompt-ids", "1,2,3"),
        CLI_ARGS("bench", "-v", "-m", TINY, "-p", "2", "-n", "2", "-r", "1"),
    };
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        cli_result r = cli_run(&(cli_setup){.args = commands[i]});
        assert_code(&r, 0);
        assert_says(r.err, "memory: up to ");
        assert_says(r.err, "as mix, KV cache ");
        assert_says(r.err, "this ");
        const char *plan = strstr(r.err, "memory: "), *loaded = strstr(r.err, "loaded in");
        assert_non_null(loaded);
        assert_true(plan < loaded);
        cli_free(&r);
    }
    cli_result r =
        CLI("bench", "--shape", "tiny", "-p", "2", "-n", "0", "-r", "1", "--parallel", "3");
    assert_says(r.err, "for 3 times 2 tokens");
    cli_free(&r);
}

static void greedy_text_equals_reference(void **state) {
    (void)state;
    cli_result r = CLI("generate", "-m", DEMO, "-p", "Once upon a time", "-n", "12", GREEDY,
                       "--weights", "f32", "--kv-type", "f32");
    assert_code(&r, 0);
    assert_int_equal(strncmp(r.out, greedy_text, strlen(greedy_text)), 0);
    assert_does_not_say(r.err, "bundled");
    cli_free(&r);
}

static double setting_of(const cli_result *r, const char *name) {
    json_t *root = cli_json(r);
    double value = json_number_value(json_object_get(json_object_get(root, "settings"), name));
    json_decref(root);
    return value;
}

/* Compares the defaults with those of llama.cpp. */
static void sampling_has_documented_defaults(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double value;
    } all[] = {
        {"temperature", 0.8},      {"top_k", 40},
        {"top_p", 0.95},           {"min_p", 0.05},
        {"repetition_penalty", 1}, {"presence_penalty", 0},
        {"frequency_penalty", 0},
    };
    cli_result r = CLI("generate", "-m", TINY, "--prompt-ids", "1", "-n", "1", "--json");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        assert_float_equal(setting_of(&r, all[i].name), all[i].value, 1e-6);
    cli_free(&r);
}

static void quiet_prints_only_text(void **state) {
    (void)state;
    cli_result r = CLI("generate", QUICK, "-p", "A fox", "-n", "3", "-q");
    assert_code(&r, 0);
    assert_string_equal(r.err, "");
    assert_true(r.n_out > 1);
    cli_free(&r);
}

static void verbose_describes_backend(void **state) {
    (void)state;
    cli_result r = CLI("generate", QUICK, "-p", "A fox", "-n", "1", "-v", "-t", "2");
    assert_code(&r, 0);
    assert_says(r.err, "backend: ");
    assert_says(r.err, "loaded in");
    cli_free(&r);
}

static void reports_evictions_of_prompt_longer_than_cache(void **state) {
    (void)state;
    cli_result r =
        CLI("generate", QUICK, "-p",
            "The old king had three sons, and the eldest of them was proud, and the second was "
            "proud too, but the youngest had a good heart and went out into the wide world.",
            "-n", "60", "-v", "-c", "40", "--eviction-policy", "streaming", "--kv-budget", "32",
            "--kv-recent", "8", "--kv-slack", "4", "--seed", "1", "--ignore-eos");
    assert_code(&r, 0);
    assert_says(r.err, "streaming evicted ");
    assert_says(r.err, "tokens before token ");
    assert_says(r.err, "(budget): ");
    assert_says(r.err, "tokens, ");
    assert_says(r.err, "finish   length (max_tokens)");
    assert_does_not_say(r.err, "evictions 0");
    cli_free(&r);
}

static void rejects_budget_below_minimum(void **state) {
    (void)state;
    cli_result r = CLI("generate", QUICK, "-p", "A fox", "--eviction-policy", "keydiff",
                       "--kv-budget", "20", "-q");
    assert_code(&r, 2);
    assert_says(r.err, "the budget of 20 tokens is too small");
    cli_free(&r);
}

static void seed_gives_same_text_on_any_thread_count(void **state) {
    (void)state;
    char first[512] = "";
    for (int threads = 1; threads <= 4; threads++) {
        char count[8];
        snprintf(count, sizeof count, "%d", threads);
        cli_result r =
            CLI("generate", QUICK, "-p", "The old king", "-n", "16", "-s", "11", "-q", "-t", count);
        assert_code(&r, 0);
        if (threads == 1) snprintf(first, sizeof first, "%s", r.out);
        assert_string_equal(r.out, first);
        cli_free(&r);
    }
    cli_result other = CLI("generate", QUICK, "-p", "The old king", "-n", "16", "-s", "12", "-q");
    assert_string_not_equal(other.out, first);
    cli_free(&other);
}

static void printed_seed_repeats_run(void **state) {
    (void)state;
    cli_result r = CLI("generate", QUICK, "-p", "The old king", "-n", "16");
    assert_code(&r, 0);
    const char *at = strstr(r.err, ", seed ");
    assert_non_null(at);
    char seed[32];
    assert_int_equal(sscanf(at, ", seed %31[0-9]", seed), 1);
    cli_result again = CLI("generate", QUICK, "-p", "The old king", "-n", "16", "--seed", seed);
    assert_string_equal(r.out, again.out);
    cli_result third = CLI("generate", QUICK, "-p", "The old king", "-n", "16", "--seed", "-1");
    const char *drawn = strstr(third.err, ", seed ");
    assert_non_null(drawn);
    assert_string_not_equal(at, drawn);
    cli_free(&third);
    cli_free(&again);
    cli_free(&r);
}

static const char *text_of(json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    if (!text) fail_msg("no string \"%s\"", key);
    return text;
}

static json_t *part_of(json_t *object, const char *key) {
    json_t *part = json_object_get(object, key);
    if (!part) fail_msg("no \"%s\"", key);
    return part;
}

static double number_in(json_t *object, const char *part, const char *key) {
    json_t *v = part_of(part ? part_of(object, part) : object, key);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

/* Returns the number of pairs of neighbours that occurred before. */
static size_t repeated_pairs(const json_t *ids) {
    size_t n = 0;
    for (size_t i = 1; i < json_array_size(ids); i++) {
        for (size_t k = 1; k < i; k++) {
            if (json_equal(json_array_get(ids, k - 1), json_array_get(ids, i - 1)) &&
                json_equal(json_array_get(ids, k), json_array_get(ids, i))) {
                n++;
                break;
            }
        }
    }
    return n;
}

static void dry_prevents_repetitions(void **state) {
    (void)state;
    for (int dry = 0; dry < 2; dry++) {
        cli_result r = CLI("generate", QUICK, "-p", "The old king", "-n", "120", GREEDY,
                           "--ignore-eos", "--json", "--dry-allowed-length", "1",
                           "--dry-sequence-breaker", "none", "--dry-multiplier", dry ? "20" : "0");
        assert_code(&r, 0);
        json_t *root = json_loads(r.out, 0, NULL);
        const size_t n = repeated_pairs(part_of(root, "ids"));
        if (dry) assert_int_equal(n, 0);
        else assert_true(n > 0);
        json_decref(root);
        cli_free(&r);
    }
}

static void prints_one_json_object(void **state) {
    (void)state;
    cli_result r = CLI("generate", "--prompt-ids", PROMPT_IDS, "-n", "4", GREEDY, "--seed", "7",
                       "--json", "-q", "--stop", "zzz", "--logit-bias", "5:-1.5", "-t", "2");
    assert_code(&r, 0);
    assert_string_equal(r.err, "");
    json_t *root = cli_json(&r);
    assert_int_equal(json_array_size(part_of(root, "prompt_ids")), 5);
    assert_int_equal(json_integer_value(json_array_get(part_of(root, "prompt_ids"), 4)), 469);
    assert_int_equal(json_array_size(part_of(root, "ids")), 4);
    assert_int_equal(json_integer_value(json_array_get(part_of(root, "ids"), 0)), 11);
    assert_string_equal(text_of(root, "text"), ", there was a");
    assert_string_equal(text_of(root, "finish_reason"), "length");
    assert_string_equal(text_of(root, "finish_detail"), "max_tokens");
    assert_int_equal(json_integer_value(part_of(root, "seed")), 7);
    json_t *settings = part_of(root, "settings");
    assert_string_equal(text_of(settings, "weights"), "bf16");
    assert_string_equal(text_of(settings, "k_type"), "f16");
    assert_true(json_is_false(part_of(settings, "k_rotated")));
    assert_string_equal(text_of(settings, "backend"), "cpu");
    assert_int_equal(number_in(root, "settings", "threads"), 2);
    assert_true(number_in(root, "settings", "top_p") == 0.95);
    assert_int_equal(json_array_size(part_of(settings, "stop")), 1);
    assert_int_equal(json_array_size(part_of(settings, "logit_bias")), 1);
    assert_true(number_in(root, "timings", "load_s") > 0);
    assert_true(number_in(root, "timings", "prefill_s") > 0);
    assert_true(number_in(root, "timings", "first_token_s") > 0);
    assert_true(number_in(root, "timings", "decode_tok_per_s") > 0);
    assert_true(number_in(root, "memory", "peak_bytes") > 1e6);
    assert_true(number_in(root, "memory", "weight_bytes") > 1e6);
    assert_true(number_in(root, "memory", "kv_bytes") > 0);
    json_decref(root);
    cli_free(&r);
}

static void accepts_llama_cpp_aliases(void **state) {
    (void)state;
    cli_result r =
        CLI("generate", QUICK, "-p", "A fox", "--n-predict", "2", "--temp", "0.5",
            "--repeat-penalty", "1.25", "--repeat-last-n", "-1", "--ctx-size", "300", "-s", "9",
            "-ctk", "q8_0", "-ctv", "q4_0", "-ngl", "0", "--batch-size", "64", "--json", "-q");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    json_t *settings = part_of(root, "settings");
    assert_string_equal(text_of(settings, "k_type"), "q8_0");
    assert_string_equal(text_of(settings, "v_type"), "q4_0");
    assert_int_equal(number_in(root, "settings", "max_tokens"), 2);
    assert_true(number_in(root, "settings", "temperature") == 0.5);
    assert_true(number_in(root, "settings", "repetition_penalty") == 1.25);
    assert_true(number_in(root, "settings", "repetition_window") == -1);
    assert_int_equal(number_in(root, "settings", "max_seq_len"), 300);
    assert_int_equal(number_in(root, "settings", "prefill_chunk"), 64);
    assert_int_equal(number_in(root, NULL, "seed"), 9);
    json_decref(root);
    cli_free(&r);
}

static void runs_on_cpu_without_gpu(void **state) {
    (void)state;
    setenv("AG_OPENCL_LIBRARY", "/no/such/library", 1);
    cli_result r = CLI("generate", QUICK, "-p", "A fox", "-n", "1", "-ngl", "99");
    assert_code(&r, 0);
    assert_says(r.err, "no GPU here: running on the CPU");
    cli_free(&r);
    unsetenv("AG_OPENCL_LIBRARY");
}

static void runs_every_weight_and_cache_type(void **state) {
    (void)state;
    static const char *const weights[] = {"q4_0", "q4_1", "q8_0", "f16", "bf16", "f32"};
    static const char *const caches[] = {"f16", "f32", "q8_0", "q4_0", "q8_0,q4_0", "F16,f32"};
    for (size_t i = 0; i < 6; i++) {
        cli_result r = CLI("generate", "-p", "Once upon a time", "-n", "3", "-q", GREEDY,
                           "--weights", weights[i], "--kv-type", caches[i]);
        assert_code(&r, 0);
        assert_int_equal(strncmp(r.out, ", there", 7), 0);
        cli_free(&r);
    }
}

static void echo_prints_prompt_first(void **state) {
    (void)state;
    cli_result r = CLI("generate", "-p", "Once upon a time", "-n", "4", GREEDY, "--echo", "-q");
    assert_string_equal(r.out, "Once upon a time, there was a\n");
    cli_free(&r);
    r = CLI("generate", "--prompt-ids", PROMPT_IDS, "-n", "4", GREEDY, "--echo", "-q");
    assert_string_equal(r.out, "Once upon a time, there was a\n");
    cli_free(&r);
    r = CLI("generate", QUICK, "-p", "Once upon", "-n", "0", "--echo", "-q");
    assert_string_equal(r.out, "Once upon\n");
    cli_free(&r);
}

static void zero_max_tokens_generates_none(void **state) {
    (void)state;
    cli_result r = CLI("generate", QUICK, "-p", "Once upon", "-n", "0");
    assert_code(&r, 0);
    assert_int_equal(r.n_out, 0);
    assert_says(r.err, "decode        0 tokens");
    cli_free(&r);
}

/* " girl named" is two tokens; the text before it must be printed. */
static void ends_before_stop_text_split_over_tokens(void **state) {
    (void)state;
    cli_result r = CLI("generate", "-p", "Once upon a time", "-n", "30", GREEDY, "--stop", "zzz",
                       "--stop", "le girl na", "--json", "-q");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    assert_string_equal(text_of(root, "text"), ", there was a litt");
    assert_string_equal(text_of(root, "finish_reason"), "stop");
    assert_string_equal(text_of(root, "finish_detail"), "stop_string");
    json_decref(root);
    cli_free(&r);
    r = CLI("generate", "-p", "Once upon a time", "-n", "30", GREEDY, "--stop", "le girl na", "-q");
    assert_string_equal(r.out, ", there was a litt\n");
    cli_free(&r);
}

static void bias_forbids_or_forces_token(void **state) {
    (void)state;
    cli_result r = CLI("generate", "--prompt-ids", PROMPT_IDS, "-n", "1", GREEDY, "--logit-bias",
                       "11:-inf", "--json", "-q");
    json_t *root = cli_json(&r);
    assert_int_not_equal(json_integer_value(json_array_get(part_of(root, "ids"), 0)), 11);
    json_decref(root);
    cli_free(&r);
    static const char *const spellings[] = {"296:500", "296+500"};
    for (size_t i = 0; i < 2; i++) {
        r = CLI("generate", "--prompt-ids", PROMPT_IDS, "-n", "1", GREEDY, "--logit-bias",
                spellings[i], "--json", "-q");
        root = cli_json(&r);
        assert_int_equal(json_integer_value(json_array_get(part_of(root, "ids"), 0)), 296);
        json_decref(root);
        cli_free(&r);
    }
}

static void rejects_bias_outside_vocabulary(void **state) {
    (void)state;
    cli_result r = CLI("generate", QUICK, "-p", "x", "--logit-bias", "4096:1", "-q");
    assert_refused(&r, 2, "4096");
    cli_free(&r);
}

static void end_of_text_stops_unless_ignored(void **state) {
    (void)state;
    cli_result r = CLI("generate", QUICK, "-p", "A fox", "--logit-bias", "4091:500", "-n", "5",
                       "--json", "-q", "--temp", "0");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    assert_string_equal(text_of(root, "finish_reason"), "stop");
    assert_string_equal(text_of(root, "finish_detail"), "eos");
    assert_string_equal(text_of(root, "text"), "");
    json_decref(root);
    cli_free(&r);
    r = CLI("generate", QUICK, "-p", "A fox", "--logit-bias", "4091:500", "-n", "5", "--json", "-q",
            "--temp", "0", "--ignore-eos");
    root = cli_json(&r);
    assert_string_equal(text_of(root, "finish_reason"), "length");
    assert_int_equal(json_array_size(part_of(root, "ids")), 5);
    assert_string_equal(text_of(root, "text"), "");
    json_decref(root);
    cli_free(&r);
    r = CLI("generate", QUICK, "-p", "A fox", "--logit-bias", "4091:500", "-n", "2", "-q", "--temp",
            "0", "--ignore-eos", "--special");
    assert_string_equal(r.out, "<|end_of_text|><|end_of_text|>\n");
    cli_free(&r);
}

static void reports_full_context(void **state) {
    (void)state;
    cli_result r = CLI("generate", "-p", "Once upon a time", "-n", "-1", "-c", "9", GREEDY, "-q");
    assert_code(&r, 0);
    assert_says(r.out, ", there was");
    assert_says(r.err, "the context of 9 tokens is full (--max-seq-len");
    cli_free(&r);
    r = CLI("generate", "-p", "Once upon a time", "-n", "-1", "-c", "9", GREEDY, "-q", "--json");
    json_t *root = cli_json(&r);
    assert_string_equal(text_of(root, "finish_reason"), "length");
    assert_string_equal(text_of(root, "finish_detail"), "context");
    json_decref(root);
    cli_free(&r);
}

static void runs_on_ids_without_tokenizer(void **state) {
    (void)state;
    cli_result r = CLI("generate", "-m", TINY, "--prompt-ids", "1, 2 3", "-n", "4", GREEDY, "-q",
                       "--ignore-eos", "--echo");
    assert_code(&r, 0);
    int ids[7], n = sscanf(r.out, "%d %d %d %d %d %d %d", &ids[0], &ids[1], &ids[2], &ids[3],
                           &ids[4], &ids[5], &ids[6]);
    assert_int_equal(n, 7);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[2], 3);
    cli_free(&r);
    r = CLI("generate", "-m", TINY, "--prompt-ids", "1,2,3", "-n", "4", "--json", "-q");
    json_t *root = cli_json(&r);
    assert_true(json_is_null(part_of(root, "text")));
    json_decref(root);
    cli_free(&r);
    r = CLI("generate", "-m", TINY, "-p", "x");
    assert_refused(&r, 2, ": no tokenizer.json: give --prompt-ids");
    cli_free(&r);
    r = CLI("generate", "-m", TINY, "--prompt-ids", "1", "--stop", "x");
    assert_refused(&r, 2, "--stop needs one");
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bundled_model_continues_prompt),
        cmocka_unit_test(greedy_text_equals_reference),
        cmocka_unit_test(sampling_has_documented_defaults),
        cmocka_unit_test(quiet_prints_only_text),
        cmocka_unit_test(verbose_describes_backend),
        cmocka_unit_test(reports_evictions_of_prompt_longer_than_cache),
        cmocka_unit_test(rejects_budget_below_minimum),
        cmocka_unit_test(seed_gives_same_text_on_any_thread_count),
        cmocka_unit_test(dry_prevents_repetitions),
        cmocka_unit_test(printed_seed_repeats_run),
        cmocka_unit_test(prints_one_json_object),
        cmocka_unit_test(accepts_llama_cpp_aliases),
        cmocka_unit_test(runs_on_cpu_without_gpu),
        cmocka_unit_test(runs_every_weight_and_cache_type),
        cmocka_unit_test(echo_prints_prompt_first),
        cmocka_unit_test(zero_max_tokens_generates_none),
        cmocka_unit_test(ends_before_stop_text_split_over_tokens),
        cmocka_unit_test(bias_forbids_or_forces_token),
        cmocka_unit_test(rejects_bias_outside_vocabulary),
        cmocka_unit_test(reports_memory_plan_before_loading),
        cmocka_unit_test(end_of_text_stops_unless_ignored),
        cmocka_unit_test(reports_full_context),
        cmocka_unit_test(runs_on_ids_without_tokenizer),
    };
    return cmocka_run_group_tests_name("cli generate", tests, NULL, NULL);
}
