/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval, bench, info and devices. */
#include "json_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Compares each position with the loss that transformers computes for the bundled model. */
static void perplexity_equals_reference(void **state) {
    (void)state;
    json_t *golden = json_load_file(AG_SOURCE_DIR "/tests/data/golden/demo.json", 0, NULL), *entry;
    assert_non_null(golden);
    size_t k, i;
    json_array_foreach(golden, k, entry) {
        char ids[512] = "";
        json_t *id, *want;
        json_array_foreach(json_object_get(entry, "ids"), i, id) {
            size_t n = strlen(ids);
            snprintf(ids + n, sizeof ids - n, "%s%d", i ? "," : "", (int)json_integer_value(id));
        }
        cli_result r = CLI("eval", "ppl", "--prompt-ids", ids, "--json", "-q", "--weights", "f32",
                           "--kv-type", "f32");
        assert_code(&r, 0);
        json_t *root = cli_json(&r), *nll = json_object_get(root, "nll");
        assert_int_equal(json_array_size(nll), json_array_size(json_object_get(entry, "nll")));
        double sum = 0;
        json_array_foreach(json_object_get(entry, "nll"), i, want) {
            double got = json_number_value(json_array_get(nll, i));
            assert_true(fabs(got - json_number_value(want)) < 1e-4);
            sum += got;
        }
        double mean = sum / (double)json_array_size(nll);
        assert_true(fabs(number(root, "mean_nll") - mean) < 1e-9);
        assert_true(fabs(number(root, "ppl") - exp(mean)) < 1e-6 * exp(mean));
        json_decref(root);
        cli_free(&r);
    }
    json_decref(golden);
}

/* 17 tokens in windows of BOS + 7: 7, 7 and 3 tokens, all predicted. */
static void divides_text_into_disjoint_windows(void **state) {
    (void)state;
    static const char text[] = "The old king had three sons. The old king had three sons. The";
    cli_result ids =
        cli_run(&(cli_setup){.args = CLI_ARGS("tokenize", "-q", "--no-bos", "-p", text)});
    size_t n_tokens = 1;
    for (const char *p = ids.out; (p = strchr(p, ' ')); p++) n_tokens++;
    cli_free(&ids);
    char dir[64], path[96];
    make_directory(dir);
    write_file(dir, "text", text, sizeof text - 1);
    snprintf(path, sizeof path, "%s/text", dir);
    cli_result r = CLI("eval", "ppl", QUICK, path, "-c", "8", "--json", "-q");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    assert_int_equal(number(root, "tokens"), n_tokens);
    assert_int_equal(number(root, "windows"), (n_tokens + 6) / 7);
    assert_int_equal(number(root, "window"), 8);
    assert_true(json_is_true(json_object_get(root, "bos")));
    json_decref(root);
    cli_free(&r);
    r = CLI("eval", "ppl", QUICK, "-c", "8", "--windows", "1", path, "--json", "-q");
    root = cli_json(&r);
    assert_int_equal(number(root, "tokens"), 7);
    json_decref(root);
    cli_free(&r);
    r = CLI("eval", "ppl", QUICK, "-c", "8", "--windows", "1", path, "--no-bos");
    assert_code(&r, 0);
    assert_says(r.out, "perplexity ");
    assert_says(r.out, "mean nll ");
    assert_says(r.out, "7 in 1 window of 8");
    cli_result typed =
        CLI("eval", "ppl", QUICK, "-c", "8", "--windows", "1", "-p", text, "--no-bos");
    assert_string_equal(typed.out, r.out);
    cli_free(&typed);
    cli_free(&r);
    remove_directory(dir);
}

static void rejects_texts_that_are_too_short(void **state) {
    (void)state;
    cli_result r = CLI("eval", "ppl", "/dev/null", "-q");
    assert_refused(&r, 1, "leave none to predict");
    cli_free(&r);
    r = CLI("eval", "ppl", "--prompt-ids", "5", "-q");
    assert_refused(&r, 1, "leave none to predict");
    cli_free(&r);
    r = CLI("eval", "ppl", "--prompt-ids", "5,6", "-c", "1", "-q");
    assert_refused(&r, 2, "--max-seq-len");
    cli_free(&r);
    r = CLI("eval", "ppl", "/nonexistent/text", "-q");
    assert_refused(&r, 1, "/nonexistent/text");
    cli_free(&r);
    r = CLI("eval", "ppl", "-m", TINY, "/dev/null", "-q");
    assert_refused(&r, 2, "no tokenizer.json");
    cli_free(&r);
}

static void info_describes_model_and_memory(void **state) {
    (void)state;
    cli_result r = CLI("info", "--json", "-q", "-c", "1024", "--kv-type", "q8_0");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    json_t *model = json_object_get(root, "model"), *memory = json_object_get(root, "memory");
    assert_int_equal(number(model, "layers"), 10);
    assert_int_equal(number(model, "hidden_size"), 256);
    assert_int_equal(number(model, "parameters"), 8918272);
    assert_int_equal(number(model, "bos_id"), 4090);
    assert_true(json_is_true(json_object_get(model, "tied")));
    assert_string_equal(json_string_value(json_object_get(model, "rope_scaling")), "llama3");
    assert_int_equal(number(memory, "max_seq_len"), 1024);
    /* 10 layers, 2 heads, K and V, 64 values of 34 / 32 bytes, and some for positions */
    double kv_bytes = 10 * 2 * 2 * 1024 * 64 * 34 / 32;
    assert_true(number(memory, "kv_bytes") >= kv_bytes);
    assert_true(number(memory, "kv_bytes") <= kv_bytes * 1.5);
    assert_true(number(memory, "total_bytes") >=
                number(memory, "weight_bytes") + number(memory, "kv_bytes"));
    assert_true(number(json_object_get(root, "machine"), "threads") >= 1);
    json_decref(root);
    cli_free(&r);
    r = CLI("info");
    assert_code(&r, 0);
    assert_says(r.out, "LlamaForCausalLM");
    assert_says(r.out, "byte-level BPE");
    assert_says(r.out, "<|begin_of_text|>");
    assert_says(r.out, "KV cache");
    assert_says(r.out, "stays in the file");
    cli_free(&r);
    r = CLI("info", "-q", "--eviction-policy", "h2o", "--kv-budget", "512");
    assert_code(&r, 0);
    assert_says(r.out, "h2o, at most");
    cli_free(&r);
    r = CLI("info", "-q", "--eviction-policy", "h2o", "--kv-budget", "4");
    assert_refused(&r, 2, "the budget of 4 tokens is too small");
    cli_free(&r);
    r = CLI("info", "-m", TINY);
    assert_code(&r, 0);
    assert_says(r.out, "tokenizer      none");
    cli_free(&r);
}

static void info_describes_layer_kinds(void **state) {
    (void)state;
    const char *const dirs = AG_GOLDEN_MODELS "/";
    char dir[4096];
    snprintf(dir, sizeof dir, "%sgemma3", dirs);
    cli_result r = CLI("info", "-q", "-m", dir);
    assert_code(&r, 0);
    assert_says(r.out,
                "  6 of them    4 heads for 1 keys and values, 64 wide, window of 24 tokens\n"
                "  1 of them    4 heads for 1 keys and values, 64 wide, no window\n");
    cli_free(&r);
    r = CLI("info", "-q", "--json", "-m", dir);
    json_t *root = cli_json(&r);
    const json_t *kinds = json_object_get(json_object_get(root, "model"), "layer_kinds");
    assert_int_equal(json_array_size(kinds), 2);
    assert_int_equal(number(json_array_get(kinds, 0), "layers"), 6);
    assert_int_equal(number(json_array_get(kinds, 0), "heads"), 4);
    assert_int_equal(number(json_array_get(kinds, 0), "kv_heads"), 1);
    assert_int_equal(number(json_array_get(kinds, 0), "head_dim"), 64);
    assert_int_equal(number(json_array_get(kinds, 0), "window"), 24);
    assert_int_equal(number(json_array_get(kinds, 1), "layers"), 1);
    assert_int_equal(number(json_array_get(kinds, 1), "window"), 0);
    json_decref(root);
    cli_free(&r);

    snprintf(dir, sizeof dir, "%smistral-window", dirs);
    r = CLI("info", "-q", "-m", dir);
    assert_says(r.out,
                "  4 of them    4 heads for 2 keys and values, 32 wide, window of 24 tokens\n");
    cli_free(&r);
    r = CLI("info", "-q");
    assert_says(r.out, "heads          4 for 2 keys and values, 64 wide\n");
    cli_free(&r);
}

static void keeps_weight_types_as_is(void **state) {
    (void)state;
    cli_result r = CLI("info", "--json", "-q", "--weights", "as-is");
    assert_code(&r, 0);
    json_t *root = cli_json(&r), *memory = json_object_get(root, "memory");
    assert_string_equal(json_string_value(json_object_get(memory, "weights")), "as-is");
    const double kept = number(memory, "weight_bytes");
    json_decref(root);
    cli_free(&r);
    r = CLI("info", "--json", "-q", "--weights", "bf16"); /* the type in the file */
    root = cli_json(&r);
    assert_true(number(json_object_get(root, "memory"), "weight_bytes") == kept);
    json_decref(root);
    cli_free(&r);

    r = CLI("generate", "-p", "Once upon a time", "-n", "8", "--temperature", "0", "--weights",
            "as-is", "-t", "1");
    cli_result same = CLI("generate", "-p", "Once upon a time", "-n", "8", "-t", "1", GREEDY);
    assert_code(&r, 0);
    assert_says(r.err, " as they are, KV cache");
    assert_string_equal(r.out, same.out);
    cli_free(&r);
    cli_free(&same);

    r = CLI("generate", "--help");
    assert_says(r.out, "(the file's types), mix");
    cli_free(&r);
    r = CLI("info", "--weights", "as_is");
    assert_refused(&r, 2,
                   "'as_is' is not one of f32, f16, bf16, q4_0, q4_1, q8_0, "
                   "q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, mxfp4, as-is, mix, auto");
    cli_free(&r);
}

/* The model states linear scaling by 4. */
static void options_replace_the_scaling_of_positions(void **state) {
    (void)state;
    static const struct {
        const char *args[6], *scaling;
        double positions, theta;
    } cases[] = {
        {{"--rope-scaling", "none"}, "none", 512, 10000},
        {{"--rope-scale", "8"}, "linear", 4096, 10000},
        {{"--rope-freq-scale", "0.0625", "--rope-freq-base", "5000"}, "linear", 8192, 5000},
        {{"--rope-scaling", "yarn", "--yarn-orig-ctx", "256"}, "yarn", 1024, 10000},
        {{"--rope-scaling", "yarn", "--yarn-ext-factor", "0"}, "linear", 2048, 10000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const *a = cases[i].args;
        cli_result r = CLI("info", "--json", "-q", "-m", TINY, a[0], a[1], a[2], a[3]);
        assert_code(&r, 0);
        json_t *root = cli_json(&r);
        json_t *model = json_object_get(root, "model");
        assert_string_equal(json_string_value(json_object_get(model, "rope_scaling")),
                            cases[i].scaling);
        assert_true(number(model, "max_positions") == cases[i].positions);
        assert_true(number(model, "rope_theta") == cases[i].theta);
        json_decref(root);
        cli_free(&r);
    }
    cli_result r = CLI("info", "-q", "-m", TINY, "--yarn-beta-fast", "8");
    assert_refused(&r, 2, "yarn parameters need the scaling yarn, not linear");
    cli_free(&r);
}

static void sets_types_of_single_tensors(void **state) {
    (void)state;
    cli_result r = CLI("info", "--json", "-q", "--tensor-type", "ffn_down=q6_k,attn_v=q5_k",
                       "--tensor-type", "output.weight=q8_0");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    json_t *bytes = json_object_get(json_object_get(root, "memory"), "matrix_bytes");
    /* 10 layers, 256 wide, 768 in the gated layer, 2 heads of 64 for values, vocabulary of 4096 */
    assert_true(number(bytes, "q6_k") == 10.0 * 256 * 768 / 256 * 210);
    assert_true(number(bytes, "q5_k") == 10.0 * 128 * 256 / 256 * 176);
    assert_true(number(bytes, "q8_0") == 4096.0 * 256 / 32 * 34);
    json_decref(root);
    cli_free(&r);
    r = CLI("info", "--json", "-q", "--weights", "mix");
    root = cli_json(&r);
    bytes = json_object_get(json_object_get(root, "memory"), "matrix_bytes");
    const double mixed = number(bytes, "q4_k") + number(bytes, "q5_k") + number(bytes, "q6_k");
    /* 4.5 to 5.3 bits of each of the 8,912,896 values */
    assert_true(mixed > 4.5 / 8 * 8912896 && mixed <= 5.3 / 8 * 8912896);
    json_decref(root);
    cli_free(&r);
    static const char *const bad[] = {"ffn_down", "=q8_0", "ffn_down=q9", "ffn_down=q8_0,,"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        r = CLI("info", "--tensor-type", bad[i]);
        assert_refused(&r, 2, "is not PATTERN=TYPE with one of f32");
        cli_free(&r);
    }
}

static void devices_lists_cpu(void **state) {
    (void)state;
    cli_result r = CLI("devices");
    assert_code(&r, 0);
    assert_says(r.out, "cpu ");
    cli_free(&r);
    r = CLI("devices", "--json");
    json_t *root = cli_json(&r), *cpu = json_array_get(root, 0);
    assert_string_equal(json_string_value(json_object_get(cpu, "name")), "cpu");
    assert_true(number(cpu, "threads") >= 1);
    json_t *opencl = json_array_get(root, 1), *device;
    size_t i;
    json_array_foreach(json_object_get(opencl, "devices"), i, device) {
        assert_true(json_is_string(json_object_get(device, "extensions")));
    }
    json_decref(root);
    cli_free(&r);
}

/* PoCL then offers no device and gives no reason. */
static void names_driver_without_device(void **state) {
    (void)state;
    cli_result r = CLI("devices");
    bool pocl = strstr(r.out, "Portable Computing Language") != NULL;
    cli_free(&r);
    if (!pocl) skip();
    char before[1024] = "";
    snprintf(before, sizeof before, "%s", getenv("POCL_CACHE_DIR") ? getenv("POCL_CACHE_DIR") : "");
    setenv("POCL_CACHE_DIR", "/proc/none", 1);
    cli_result listed = CLI("devices"), run = CLI("bench", "-q", "--shape", "tiny", "-b", "opencl");
    if (before[0]) setenv("POCL_CACHE_DIR", before, 1);
    else unsetenv("POCL_CACHE_DIR");
    if (!strstr(listed.out, "opencl   0: ")) { /* another driver may offer one */
        assert_says(listed.out, "the driver Portable Computing Language gives no device: ");
        assert_says(listed.out, "$POCL_CACHE_DIR");
        assert_refused(&run, 1, "the driver Portable Computing Language gives no device: ");
    }
    cli_free(&listed);
    cli_free(&run);
}

static void tables_fit_terminal_width(void **state) {
    (void)state;
    const struct {
        const char *const *args;
        const char *whole, *left_out; /* left_out: a column that is not shown in 80 columns */
    } tables[] = {
        {CLI_ARGS("bench", "-q", "--shape", "tiny", "-p", "2", "-n", "2", "-r", "1", "-d", "16"),
         "| model | params | weights |", "params"},
        {CLI_ARGS("eval", "needle", "-q", "--documents", "1", "--context", "200",
                  "--eviction-policy", "streaming", "--kv-budget", "50%"),
         "| prefill tok/s | decode tok/s |", "keys"},
        {CLI_ARGS("eval", "kl", "-q", "-p", "Once upon a time", "--kv-type", "q8_0"),
         "| RMS dp | perplexity |", "RMS dp"},
        {CLI_ARGS("eval", "ppl", "-q", "-p", "Once upon a time", "--stream"), "| own memory |", ""},
    };
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        cli_result whole = cli_run(&(cli_setup){.args = tables[i].args});
        assert_code(&whole, 0);
        assert_says(whole.out, tables[i].whole);
        assert_does_not_say(whole.out, "Left out");
        cli_result narrow =
            cli_run(&(cli_setup){.args = tables[i].args, .terminal_output = true, .columns = 80});
        assert_code(&narrow, 0);
        for (const char *line = narrow.out; *line;) {
            size_t n = strcspn(line, "\r\n");
            bool table = line[0] == '|';
            if (table && n > 80) fail_msg("%zu columns: %.*s", n, (int)n, line);
            line += n + strspn(line + n, "\r\n");
        }
        const char *note = strstr(narrow.out, "Left out here, in -o csv and -o json: ");
        if (tables[i].left_out[0]) assert_true(note && strstr(note, tables[i].left_out));
        cli_free(&whole);
        cli_free(&narrow);
    }
}

static void bench_prints_row_per_test(void **state) {
    (void)state;
    cli_result r = CLI("bench", QUICK, "--shape", "tiny", "-p", "8", "-n", "4", "-d", "0,16", "-r",
                       "2", "-t", "1", "--json");
    assert_code(&r, 0);
    json_t *rows = cli_json(&r), *row;
    static const char *const tests[] = {"pp8", "tg4", "pp8 @ d16", "tg4 @ d16"};
    assert_int_equal(json_array_size(rows), 4);
    size_t i;
    json_array_foreach(rows, i, row) {
        assert_string_equal(json_string_value(json_object_get(row, "test")), tests[i]);
        assert_true(number(row, "tok_per_s") > 0);
        assert_true(number(row, "tok_per_s_min") <= number(row, "tok_per_s"));
        assert_true(number(row, "tok_per_s_max") >= number(row, "tok_per_s"));
        assert_int_equal(json_array_size(json_object_get(row, "samples")), 2);
        assert_true(number(row, "read_bytes_per_s_before") > 1e8);
        assert_true(number(row, "read_bytes_per_s_after") > 1e8);
        assert_int_equal(json_is_number(json_object_get(row, "bandwidth_share")), i % 2);
        assert_int_equal(json_is_number(json_object_get(row, "bytes_per_token")), i % 2);
    }
    /* Keys and values of 16 tokens: 10 layers, 2 heads of 64, 16 bits. */
    const double cache_bytes = number(json_array_get(rows, 3), "bytes_per_token") -
                               number(json_array_get(rows, 1), "bytes_per_token");
    assert_true(cache_bytes == 2 * 16 * 10 * 2 * 64 * 2);
    json_decref(rows);
    cli_free(&r);
}

/* The counter stands still here: 0 joules. */
static void bench_prints_energy_if_it_can_be_read(void **state) {
    (void)state;
    char dir[64], package[96];
    make_directory(dir);
    for (int known = 0; known < 2; known++) {
        if (known) {
            snprintf(package, sizeof package, "%s/intel-rapl:0", dir);
            assert_int_equal(mkdir(package, 0700), 0);
            write_file(package, "name", "package-0", 9);
            write_file(package, "energy_uj", "5", 1);
            write_file(package, "max_energy_range_uj", "1000", 4);
        }
        setenv("AG_POWERCAP_DIR", dir, 1);
        cli_result r =
            CLI("bench", QUICK, "-q", "--shape", "tiny", "-p", "4", "-n", "0", "-r", "1");
        cli_result list =
            CLI("bench", QUICK, "-q", "--shape", "tiny", "-p", "4", "-n", "0", "-r", "1", "--json");
        unsetenv("AG_POWERCAP_DIR");
        assert_code(&r, 0);
        assert_int_equal(strstr(r.out, "J/token") != NULL, known);
        json_t *rows = cli_json(&list);
        const json_t *joules = json_object_get(json_array_get(rows, 0), "joules_per_token");
        if (known) assert_true(json_is_real(joules) && json_real_value(joules) == 0);
        else assert_true(json_is_null(joules));
        json_decref(rows);
        cli_free(&list);
        cli_free(&r);
    }
    remove_directory(package);
    remove_directory(dir);
}

static void bench_measures_shapes_of_fewer_layers(void **state) {
    (void)state;
    cli_result r = CLI("bench", QUICK, "-q", "--shape", "tiny", "--layers", "2", "-p", "0", "-n",
                       "2", "-r", "1", "--json");
    assert_code(&r, 0);
    json_t *rows = cli_json(&r);
    assert_string_equal(json_string_value(json_object_get(json_array_get(rows, 0), "model")),
                        "tiny:2");
    json_decref(rows);
    cli_free(&r);
    r = CLI("bench", "--layers", "2", "-m", TINY);
    assert_code(&r, 2);
    assert_says(r.err, "--layers needs --shape");
    cli_free(&r);
    r = CLI("bench", "-q", "--shape", "tiny:0");
    assert_says(r.err, "the number of layers must be 1 to 1024");
    cli_free(&r);
}

/* A token reads only its experts: 4 of 12 in each layer. */
static void info_states_bytes_for_a_token(void **state) {
    (void)state;
    cli_result r = CLI("info", "-m", AG_GOLDEN_MODELS "/granite-moe", "--weights", "f32", "--json");
    assert_code(&r, 0);
    json_t *root = cli_json(&r);
    const json_t *memory = json_object_get(root, "memory"), *model = json_object_get(root, "model");
    const double experts = 4 * 12 * 3 * 48 * 128 * 4; /* layers, experts, matrices, sizes, F32 */
    assert_int_equal(number(model, "experts"), 12);
    assert_int_equal(number(model, "experts_used"), 4);
    assert_true(number(memory, "weight_bytes") - number(memory, "active_bytes") ==
                experts * 8 / 12);
    json_decref(root);
    cli_free(&r);
    r = CLI("info", "-m", AG_GOLDEN_MODELS "/granite-moe");
    assert_says(r.out, "4 of 12 for a token");
    assert_says(r.out, "for a token, with its experts only");
    cli_free(&r);
}

static void bench_rejects_long_rows_before_measuring(void **state) {
    (void)state;
    cli_result r = CLI("bench", "-m", TINY, "-p", "2", "-n", "2", "-d", "0,600", "-r", "1");
    assert_refused(&r, 2, "2 tokens at depth 600; the model was trained for 512");
    cli_free(&r);
    r = CLI("bench", "-m", TINY, "-p", "0", "-n", "2", "--parallel", "2", "--first-depth", "511");
    assert_refused(&r, 2, "2 tokens at depth 511; the model was trained for 512");
    cli_free(&r);
}

/* Returns a number of the only row of bench. */
static double bench_number(const cli_result *r, const char *name) {
    assert_code(r, 0);
    json_t *rows = cli_json(r);
    const double value = number(json_array_get(rows, 0), name);
    json_decref(rows);
    return value;
}

static void bench_measures_a_first_sequence_that_is_longer(void **state) {
    (void)state;
    cli_result r = CLI("bench", "-m", TINY, "-p", "0", "-n", "4", "-r", "1", "--parallel", "3",
                       "-d", "100", "-o", "json");
    const double equal = bench_number(&r, "bytes_per_token");
    cli_free(&r);
    r = CLI("bench", "-m", TINY, "-p", "0", "-n", "4", "-r", "1", "--parallel", "3", "-d", "100",
            "--first-depth", "400", "-o", "json");
    assert_int_equal(bench_number(&r, "first_depth"), 400);
    const double longer = bench_number(&r, "bytes_per_token");
    cli_free(&r);
    r = CLI("bench", "-m", TINY, "-p", "0", "-n", "4", "-r", "1", "--parallel", "3", "-d", "200",
            "-o", "json");
    /* One sequence of 400 tokens and two of 100 read as much as three of 200. */
    assert_true(longer > equal);
    assert_int_equal(longer, bench_number(&r, "bytes_per_token"));
    cli_free(&r);
    r = CLI("bench", "-m", TINY, "--first-depth", "400");
    assert_refused(&r, 2, "--first-depth needs --parallel");
    cli_free(&r);
}

static void bench_measures_parallel_sequences(void **state) {
    (void)state;
    cli_result r =
        CLI("bench", "-m", TINY, "-p", "0", "-n", "4", "-r", "1", "--parallel", "3", "-o", "csv");
    assert_code(&r, 0);
    assert_int_equal(strncmp(r.out, "model,parameters,", 17), 0);
    assert_says(r.out, "\n\"linear-rope\",");
    assert_says(r.out, ",3,0,4,0,0,tg4,");
    cli_free(&r);
    r = CLI("bench", "-m", TINY, "-p", "4", "-n", "0", "-r", "1");
    assert_code(&r, 0);
    assert_says(r.out, "| model | params |");
    assert_says(r.out, "| pp4 |");
    cli_free(&r);
}

static void bench_rejects_more_tokens_than_positions(void **state) {
    (void)state;
    cli_result r = CLI("bench", QUICK, "-m", DEMO, "-p", "512", "-n", "0", "-d", "2000", "-q");
    assert_refused(&r, 2, "2048");
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(perplexity_equals_reference),
        cmocka_unit_test(divides_text_into_disjoint_windows),
        cmocka_unit_test(rejects_texts_that_are_too_short),
        cmocka_unit_test(info_describes_model_and_memory),
        cmocka_unit_test(info_describes_layer_kinds),
        cmocka_unit_test(keeps_weight_types_as_is),
        cmocka_unit_test(options_replace_the_scaling_of_positions),
        cmocka_unit_test(sets_types_of_single_tensors),
        cmocka_unit_test(devices_lists_cpu),
        cmocka_unit_test(tables_fit_terminal_width),
        cmocka_unit_test(names_driver_without_device),
        cmocka_unit_test(bench_prints_row_per_test),
        cmocka_unit_test(bench_prints_energy_if_it_can_be_read),
        cmocka_unit_test(bench_measures_shapes_of_fewer_layers),
        cmocka_unit_test(info_states_bytes_for_a_token),
        cmocka_unit_test(bench_rejects_long_rows_before_measuring),
        cmocka_unit_test(bench_measures_parallel_sequences),
        cmocka_unit_test(bench_measures_a_first_sequence_that_is_longer),
        cmocka_unit_test(bench_rejects_more_tokens_than_positions),
    };
    return cmocka_run_group_tests_name("cli measure", tests, NULL, NULL);
}
