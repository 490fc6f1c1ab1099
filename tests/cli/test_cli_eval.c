/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval: needle, kl, and ppl with a managed cache. */
#include "json_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A text file for one test. */
typedef struct novel {
    char dir[64], path[96];
} novel;

static novel write_novel(void) {
    novel n;
    char text[1600] = "";
    while (strlen(text) < sizeof text - 128) {
        strcat(text, "The old king had three sons, and the youngest of them was kind to the fox. ");
    }
    make_directory(n.dir);
    write_file(n.dir, "text", text, strlen(text));
    snprintf(n.path, sizeof n.path, "%s/text", n.dir);
    return n;
}

/* ---- needle ---- */

#define SMALL "--context", "256", "-n", "2", "-t", "1"

static void window_finds_only_needles_within_it(void **state) {
    (void)state;
    cli_result r = CLI("eval", "needle", QUICK, SMALL, "--depth", "20,90", "--eviction-policy",
                       "none,sliding", "--kv-budget", "37.5%", "-q", "-o", "json");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    assert_int_equal(n_rows(root), 2);
    json_t *full = row_of(root, 0), *window = row_of(root, 1);
    assert_string_equal(word(full, "policy"), "none");
    assert_true(json_is_null(json_object_get(full, "budget")));
    assert_true(number(full, "accuracy") == 1);
    assert_string_equal(word(window, "policy"), "sliding");
    assert_string_equal(word(window, "budget"), "37.5%");
    assert_int_equal(number(window, "budget_tokens"), 96);
    assert_int_equal(number(window, "documents"), 2);
    assert_true(number(window, "accuracy_at_20") == 0);
    assert_true(number(window, "accuracy_at_90") == 1);
    assert_true(number(window, "accuracy") == 0.5);
    assert_true(number(window, "kv_bytes") < number(full, "kv_bytes"));
    assert_true(number(full, "prefill_tok_per_s") > 0 && number(full, "decode_tok_per_s") > 0);
    json_decref(root);
    cli_free(&r);
}

/* A window of an eighth of the document has its end only. Spilled tokens return when the question
 * is read. */
static void finds_spilled_needles(void **state) {
    (void)state;
    char dir[64];
    make_directory(dir);
    cli_result r = CLI("eval", "needle", "-n", "10", "--context", "1024", "--eviction-policy",
                       "streaming", "--kv-budget", "128", "--kv-spill", dir, "-q", "-o", "json");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    json_t *row = row_of(root, 0);
    assert_int_equal(number(row, "budget_tokens"), 128);
    assert_true(number(row, "accuracy") >= 0.9);
    json_decref(root);
    cli_free(&r);
    remove_directory(dir);
}

/* SnapKV's window covers a question inside the document, but not one read after it. */
static void snapkv_needs_question_inside_document(void **state) {
    (void)state;
    double right[2];
    for (int after = 0; after < 2; after++) {
        cli_result r = CLI("eval", "needle", QUICK, "--context", "320", "-n", "3", "-t", "1",
                           "--depth", "20,50", "--eviction-policy", "snapkv", "--kv-budget", "64",
                           "--snapkv-window", "12", "--snapkv-kernel", "15", "--snapkv-pool", "max",
                           "--question", after ? "after" : "inside", "-q", "-o", "json");
        assert_code(&r, 0);
        json_t *root = cli_json(&r);
        assert_string_equal(word(root, "question"), after ? "after" : "inside");
        assert_int_equal(number(root, "snapkv_kernel"), 15);
        right[after] = number(row_of(root, 0), "right");
        json_decref(root);
        cli_free(&r);
    }
    assert_true(right[0] >= 2);
    assert_true(right[1] == 0);
}

static void documents_depend_only_on_seed(void **state) {
    (void)state;
    static const char *const seeds[] = {"7", "7", "8"};
    char *said[3];
    for (int i = 0; i < 3; i++) {
        cli_result r = CLI("eval", "needle", QUICK, SMALL, "--eviction-policy", "none", "-v",
                           "--seed", seeds[i], "-o", "csv");
        assert_code(&r, 0);
        assert_int_equal(strncmp(r.out, "policy,budget,budget_tokens,k_type,", 35), 0);
        said[i] = strdup(strstr(r.err, "expected "));
        cli_free(&r);
    }
    assert_string_equal(said[0], said[1]);
    assert_string_not_equal(said[0], said[2]);
    for (int i = 0; i < 3; i++) free(said[i]);
}

static void hides_needles_in_given_text(void **state) {
    (void)state;
    novel n = write_novel();
    cli_result r =
        CLI("eval", "needle", QUICK, SMALL, "--eviction-policy", "none", "--text", n.path, "-q");
    assert_code(&r, 0);
    assert_says(r.out, "| policy | budget |");
    assert_says(r.out, "| none | | | f16 | f16 | ");
    cli_free(&r);
    write_file(n.dir, "text", " . . \n", 6);
    r = CLI("eval", "needle", QUICK, SMALL, "--eviction-policy", "none", "--text", n.path, "-q");
    assert_refused(&r, 1, "the file has no text");
    cli_free(&r);
    remove_directory(n.dir);
}

/* The template passes document and question through, with the demo model's "Question:" before
 * it. */
static void asks_for_needles_in_template(void **state) {
    (void)state;
    static const char jinja[] = "{{ messages[0]['content'].replace('What is the secret', "
                                "'Question: What is the secret') }}\nAnswer:";
    char dir[64], path[96];
    make_directory(dir);
    write_file(dir, "jinja", jinja, sizeof jinja - 1);
    snprintf(path, sizeof path, "%s/jinja", dir);
    cli_result r = CLI("eval", "needle", QUICK, SMALL, "--depth", "20,90", "--eviction-policy",
                       "none,sliding", "--kv-budget", "37.5%", "--question", "after", "-q", "-o",
                       "json", "--chat-template", path);
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    assert_true(json_is_true(json_object_get(root, "chat_template")));
    assert_true(number(row_of(root, 0), "accuracy") == 1);
    assert_true(number(row_of(root, 1), "accuracy_at_20") == 0);
    assert_true(number(row_of(root, 1), "accuracy_at_90") == 1);
    json_decref(root);
    cli_free(&r);
    r = CLI("eval", "needle", QUICK, "--chat-template", path, "--no-chat-template");
    assert_refused(&r, 2, "exclude each other");
    cli_free(&r);
    remove_directory(dir);
}

/* Finished rows are printed. */
static void prints_finished_rows_when_interrupted(void **state) {
    (void)state;
    cli_result r = cli_run(&(cli_setup){
        .args = CLI_ARGS("eval", "needle", QUICK, "-n", "1", "--context", "400", "-t", "1", "-q"),
        .interrupt_after_output = 380,
    });
    assert_code(&r, 130);
    assert_says(r.err, "interrupted");
    assert_says(r.out, "| none | | | f16 | f16 | ");
    assert_does_not_say(r.out, "keydiff");
    cli_free(&r);
}

/* ---- kl ---- */

static void equal_settings_have_no_divergence(void **state) {
    (void)state;
    novel n = write_novel();
    cli_result r = CLI("eval", "kl", n.path, QUICK, "-c", "256", "-t", "1", "-q", "-o", "json");
    assert_code(&r, 0);
    json_t *root = cli_json(&r), *row = row_of(root, 0);
    assert_int_equal(n_rows(root), 1);
    assert_true(number(row, "kl_mean") == 0 && number(row, "kl_max") == 0);
    assert_true(number(row, "same_top") == 1);
    assert_true(number(row, "ppl_rise") == 0);
    assert_true(number(row, "ppl") == number(json_object_get(root, "base"), "ppl"));
    double kl_ppl = number(row, "ppl");
    assert_int_equal(number(row, "tokens"), number(root, "tokens"));
    json_decref(root);
    cli_free(&r);
    r = CLI("eval", "ppl", n.path, QUICK, "-c", "256", "-t", "1", "-q", "--json");
    root = cli_json(&r);
    assert_true(fabs(number(root, "ppl") / kl_ppl - 1) < 1e-5);
    json_decref(root);
    cli_free(&r);
    remove_directory(n.dir);
}

static void coarser_types_increase_divergence(void **state) {
    (void)state;
    novel n = write_novel();
    cli_result r =
        CLI("eval", "kl", n.path, QUICK, "-c", "256", "-t", "1", "-q", "-o", "json", "--kv-type",
            "f32", "--kv-type", "q8_0", "--kv-type", "q8_0,q4_0", "--kv-type", "q4_0");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    assert_int_equal(n_rows(root), 4);
    for (size_t i = 0; i < 4; i++) {
        json_t *row = row_of(root, i);
        if (i) assert_true(number(row, "kl_mean") > number(row_of(root, i - 1), "kl_mean"));
        assert_true(number(row, "kl_median") <= number(row, "kl_p90"));
        assert_true(number(row, "kl_p90") <= number(row, "kl_p99"));
        assert_true(number(row, "kl_p99") <= number(row, "kl_max"));
        assert_int_equal(json_is_true(json_object_get(row, "k_rotated")), i == 3);
    }
    json_decref(root);
    cli_free(&r);
    r = CLI("eval", "kl", n.path, QUICK, "-c", "256", "--windows", "1", "-t", "1", "-q", "-o",
            "json", "--eviction-policy", "none,streaming,keydiff", "--kv-budget", "48,96");
    assert_code(&r, 0);
    root = cli_json(&r);
    assert_int_equal(n_rows(root), 5);
    assert_true(number(row_of(root, 0), "kl_mean") == 0);
    for (size_t i = 1; i < 5; i += 2) {
        assert_true(number(row_of(root, i), "kl_mean") > number(row_of(root, i + 1), "kl_mean"));
        assert_int_equal(number(row_of(root, i), "budget_tokens"), 48);
    }
    json_decref(root);
    cli_free(&r);
    remove_directory(n.dir);
}

static void base_can_differ_in_every_setting(void **state) {
    (void)state;
    novel n = write_novel();
    cli_result r = CLI("eval", "kl", n.path, "--weights", "q4_0", "--base-weights", "bf16", "-c",
                       "256", "--windows", "1", "-t", "1", "-q", "-o", "json");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    assert_true(number(row_of(root, 0), "kl_mean") > 0.001);
    assert_string_equal(word(root, "weights"), "q4_0");
    assert_string_equal(word(json_object_get(root, "base"), "weights"), "bf16");
    json_decref(root);
    cli_free(&r);
    r = CLI("eval", "kl", n.path, QUICK, "--base-weights", "as-is", "-c", "64", "--windows", "1",
            "-t", "1", "-q", "-o", "json");
    assert_code(&r, 0);
    root = cli_json(&r);
    assert_true(number(row_of(root, 0), "kl_mean") == 0);
    assert_string_equal(word(json_object_get(root, "base"), "weights"), "as-is");
    json_decref(root);
    cli_free(&r);
    r = CLI("eval", "kl", n.path, QUICK, "-c", "160", "--windows", "1", "-t", "1", "-q", "-o",
            "csv", "--kv-type", "q4_0", "--eviction-policy", "streaming", "--kv-budget", "48",
            "--base-kv-type", "q4_0", "--base-eviction-policy", "streaming", "--base-kv-budget",
            "48");
    assert_code(&r, 0);
    assert_says(r.out, "\"streaming\",\"48\",48,\"q4_0\",\"q4_0\",0,0,0,0,0,0,1,0,");
    cli_free(&r);
    remove_directory(n.dir);
}

/* ---- ppl ---- */

static void eviction_reduces_memory_of_windows(void **state) {
    (void)state;
    novel n = write_novel();
    double bytes[2];
    for (int managed = 0; managed < 2; managed++) {
        cli_result r =
            CLI("eval", "ppl", n.path, QUICK, "-c", "512", "-t", "1", "-q", "--json",
                "--prefill-chunk", "64", "--eviction-policy", managed ? "keydiff" : "none",
                managed ? "--kv-budget" : "--tokens", managed ? "64" : "900");
        assert_code(&r, 0);
        json_t *root = cli_json(&r);
        bytes[managed] = number(root, "kv_bytes");
        assert_string_equal(word(root, "policy"), managed ? "keydiff" : "none");
        assert_int_equal(number(root, "budget_tokens"), managed ? 64 : 0);
        assert_int_equal(number(root, "evictions") > 0, managed);
        json_decref(root);
        cli_free(&r);
    }
    assert_true(bytes[1] < bytes[0] / 2);
    remove_directory(n.dir);
}

static void stream_continues_beyond_cache(void **state) {
    (void)state;
    novel n = write_novel();
    cli_result r = CLI("eval", "ppl", n.path, QUICK, "-c", "128", "-t", "1", "-q", "--json",
                       "--stream", "--bucket", "100", "--tokens", "300", "--eviction-policy",
                       "streaming", "--kv-budget", "64");
    assert_code(&r, 0);
    json_t *root = cli_json(&r), *bucket;
    assert_string_equal(word(root, "measure"), "stream");
    assert_int_equal(number(root, "windows"), 1);
    assert_int_equal(number(root, "tokens"), 300);
    double tokens = 0, nll = 0;
    size_t i;
    json_array_foreach(json_object_get(root, "buckets"), i, bucket) {
        assert_int_equal(number(bucket, "begin"), 100 * i);
        tokens += number(bucket, "tokens");
        nll += number(bucket, "tokens") * number(bucket, "mean_nll");
        assert_true(number(bucket, "kv_bytes") > 0 && number(bucket, "anonymous_bytes") > 0);
    }
    assert_int_equal(i, 3);
    assert_int_equal(tokens, 300);
    assert_true(fabs(nll / 300 - number(root, "mean_nll")) < 1e-9);
    json_decref(root);
    cli_free(&r);
    r = CLI("eval", "ppl", n.path, QUICK, "-c", "256", "--stream", "-q");
    assert_refused(&r, 2, "the cache holds 256 and does not evict");
    cli_free(&r);
    remove_directory(n.dir);
}

static void rejects_impossible_measurements(void **state) {
    (void)state;
    static const struct {
        const char *args[8], *says;
    } cases[] = {
        {{"needle", "novel.txt"}, "unexpected word 'novel.txt'"},
        {{"needle", "--context", "2045"}, "that the model was trained for"},
        {{"needle", "--context", "9"}, "is not between 160 and"},
        {{"needle", "--eviction-policy", "none", "--kv-spill", "/tmp"}, "needs an eviction policy"},
        {{"needle", "--eviction-policy", "tova", "--kv-spill", "/dev/null"}, "file exists"},
        {{"needle", "--eviction-policy", "tova", "--kv-spill-max", "9"}, "needs --kv-spill"},
        {{"needle", "--depth", "101"}, "is not between 0 and 100"},
        {{"needle", "--question", "never"}, "'never' is not one of inside, after"},
        {{"needle", "--eviction-policy", "none", "--kv-budget", "9"}, "needs an eviction policy"},
        {{"needle", "--eviction-policy", "none,lru"}, "'lru' is not one of"},
        {{"needle", "--kv-budget", "50%,"}, "'': invalid budget"},
        {{"needle", "-m", TINY}, "no tokenizer.json"},
        {{"needle", "--kv-budget", "5", "--eviction-policy", "snapkv"}, "budget"},
        {{"kl", "a", "-f", "b"}, "two texts given"},
        {{"kl", "a", "--k-rotation", "yes"}, "'yes' is not one of auto, off, on"},
        {{"kl", "a", "--base-kv-type", "f16", "--base-kv-type", "f32"}, "2 bases"},
        {{"kl", "a", "--base-weights", "q2"}, "'q2' is not one of"},
        {{"kl", "a", "--kv-prefill", "whole", "--eviction-policy", "h2o"},
         "it would evict only after"},
        {{"ppl", "a", "--kv-prefill", "whole", "--eviction-policy", "h2o"},
         "it would evict only after"},
        {{"ppl", "a", "--stream", "--windows", "2"}, "exclude each other"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *args[12] = {"eval"};
        size_t n = 1;
        for (size_t a = 0; cases[i].args[a]; a++) args[n++] = cases[i].args[a];
        args[n] = "-q";
        cli_result r = cli_run(&(cli_setup){.args = args});
        assert_refused(&r, 2, cases[i].says);
        cli_free(&r);
    }
}

/* ---- routes ---- */

#define MIXTURE AG_GOLDEN_MODELS "/olmoe"
enum { RECORDED = 32 }; /* tokens whose choices are recorded */

/* The choices are those of the reference. */
static void routes_lists_recorded_experts(void **state) {
    (void)state;
    json_t *record = json_load_file(AG_SOURCE_DIR "/tests/data/golden/olmoe.json", 0, NULL);
    const json_t *first = json_is_array(record) ? json_array_get(record, 0) : record;
    char ids[8 * RECORDED] = "";
    assert_non_null(first);
    for (size_t i = 0; i < RECORDED; i++) {
        const json_t *id = json_array_get(json_object_get(first, "ids"), i);
        snprintf(ids + strlen(ids), sizeof ids - strlen(ids), "%s%d", i ? "," : "",
                 (int)json_integer_value(id));
    }
    cli_result r = CLI("eval", "routes", "-m", MIXTURE, "--weights", "f32", "-q", "--json",
                       "--prefill-chunk", "7", "--prompt-ids", ids);
    assert_code(&r, 0);
    json_t *root = cli_json(&r), *layers = json_object_get(root, "layers"), *layer;
    const char *name;
    assert_int_equal(number(root, "tokens"), RECORDED);
    assert_int_equal(number(root, "experts"), 16);
    assert_int_equal(number(root, "experts_used"), 4);
    assert_int_equal(json_object_size(layers), 4);
    json_object_foreach(layers, name, layer) {
        const json_t *recorded = json_object_get(json_object_get(first, "routing"), name);
        double n = 0;
        assert_true(
            json_equal(json_object_get(layer, "experts"), json_object_get(recorded, "experts")));
        for (size_t e = 0; e < 16; e++)
            n += json_number_value(json_array_get(json_object_get(layer, "counts"), e));
        assert_true(n == 4 * RECORDED);
    }
    json_decref(root);
    json_decref(record);
    cli_free(&r);
    r = CLI("eval", "routes", "-m", MIXTURE, "-q", "--prompt-ids", ids);
    assert_code(&r, 0);
    assert_says(r.out, "4 of 16 experts each");
    assert_says(r.out, "busiest quarter");
    cli_free(&r);
    r = CLI("eval", "routes", "-m", TINY, "-q", "--prompt-ids", "1,2");
    assert_code(&r, 2);
    assert_says(r.err, "has no experts; a mixture of experts is needed");
    cli_free(&r);
}

static void each_measure_has_help(void **state) {
    (void)state;
    static const char *const measures[] = {"ppl", "needle", "kl", "routes"};
    for (size_t i = 0; i < 4; i++) {
        cli_result r = CLI("eval", measures[i], "--help");
        assert_code(&r, 0);
        assert_says(r.out, "Usage: antigravity eval ");
        assert_says(r.out, measures[i]);
        assert_says(r.out, "--eviction-policy");
        assert_says(r.out, "\nExamples:\n");
        for (const char *line = r.out; *line;) {
            size_t n = strcspn(line, "\n");
            if (n > 100) fail_msg("%zu columns: %.*s", n, (int)n, line);
            line += n + (line[n] == '\n');
        }
        cli_free(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(window_finds_only_needles_within_it),
        cmocka_unit_test(finds_spilled_needles),
        cmocka_unit_test(snapkv_needs_question_inside_document),
        cmocka_unit_test(documents_depend_only_on_seed),
        cmocka_unit_test(hides_needles_in_given_text),
        cmocka_unit_test(asks_for_needles_in_template),
        cmocka_unit_test(prints_finished_rows_when_interrupted),
        cmocka_unit_test(equal_settings_have_no_divergence),
        cmocka_unit_test(coarser_types_increase_divergence),
        cmocka_unit_test(base_can_differ_in_every_setting),
        cmocka_unit_test(eviction_reduces_memory_of_windows),
        cmocka_unit_test(stream_continues_beyond_cache),
        cmocka_unit_test(rejects_impossible_measurements),
        cmocka_unit_test(routes_lists_recorded_experts),
        cmocka_unit_test(each_measure_has_help),
    };
    return cmocka_run_group_tests_name("cli eval", tests, NULL, NULL);
}
