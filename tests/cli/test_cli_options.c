/* SPDX-License-Identifier: Apache-2.0 */
/* Invalid command lines: one line of error and exit code 2, before a model is read. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

typedef struct wrong {
    const char *args[8];
    const char *message;
} wrong;

static void assert_all_refused(const wrong *cases, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const char *args[10] = {NULL};
        for (size_t k = 0; k < 8 && cases[i].args[k]; k++) args[k] = cases[i].args[k];
        cli_result r = cli_run(&(cli_setup){.args = args});
        assert_refused(&r, 2, cases[i].message);
        cli_free(&r);
    }
}

#define ALL_REFUSED(cases) assert_all_refused(cases, sizeof cases / sizeof cases[0])

static void rejects_unknown_options(void **state) {
    (void)state;
    static const wrong cases[] = {
        {{"generate", "--xyzzy-plugh"}, "unknown option '--xyzzy-plugh'"},
        {{"generate", "--temprature", "1"}, "did you mean '--temperature'?"},
        {{"generate", "--temprature=1"}, "did you mean '--temperature'?"},
        {{"generate", "--top", "1"}, "unknown option '--top'; did you mean '--stop' or '--top-k'?"},
        {{"generate", "--memory-thresh", "9"}, "did you mean '--memory-threshold-mb'?"},
        {{"generate", "--temper=1"}, "did you mean '--temp' or '--temperature'?"},
        {{"generate", "--memory", "600"}, "--memory: only 'antigravity serve' limits its memory"},
        {{"generate", "-Z"}, "unknown option '-Z'"},
        {{"generate", "a", "word"}, "unexpected word 'word': a text of several words is put in"},
        {{"generate", "--", "a", "-p"}, "unexpected word '-p'"},
        {{"bench", "word"}, "unexpected word 'word': this command takes options only"},
        {{"info", DEMO, "b"}, "unexpected word 'b'"},
        {{"info", "-m", DEMO, "b"}, "two models given"},
        {{"generate", DEMO}, "is a directory, not a text; a model is given with -m"},
        {{"generate", "--json=1"}, "takes no value"},
        {{"generate", "--help=1"}, "--help: '1' is not one of text, man, bash"},
        {{"tokenize", "--temp", "1"}, "unknown option '--temp'"},
        {{"devices", "-n", "1"}, "unknown option '-n'"},
        {{"eval", "ppl", "a", "b"}, "unexpected word 'b'"},
        {{"eval", "ruler", "text"}, "unexpected word 'text': prompts are generated"},
        {{"eval", "ruler", "--kv-prefill", "whole"}, "--kv-prefill: not supported"},
        {{"eval", "ruler", "--kv-budget", "512"}, "unknown option '--kv-budget'"},
    };
    ALL_REFUSED(cases);
}

/* Messages show the option's full name, not a cluster of letters. */
static void explains_options_of_other_programs(void **state) {
    (void)state;
    static const wrong cases[] = {
        {{"generate", "-hf", "org/name"}, "-hf: fetch it with 'antigravity pull ORG/NAME[:QUANT]'"},
        {{"generate", "--hf-repo=org/name"}, "antigravity pull"},
        {{"generate", "-cnv"}, "-cnv: use 'antigravity chat'"},
        {{"generate", "-i"}, "-i: use 'antigravity chat'"},
        {{"generate", "-sys", "Be brief"}, "--system needs --chat"},
        {{"generate", "-tb", "4"}, "-tb: one number of threads"},
        {{"generate", "--threads-batch", "4"}, "use -t N"},
        {{"generate", "--keep", "x"}, "--keep: it needs a number"},
        {{"generate", "--main-gpu", "0"}, "use --device N"},
        {{"generate", "-mg", "0"}, "use --device N"},
        {{"generate", "--color"}, "--color: the text is not coloured"},
        {{"generate", "-fa", "off"}, "-fa: only 'on' is supported, which is the default"},
        {{"generate", "--flash-attn=off"}, "only 'on'"},
        {{"generate", "--mirostat", "2"}, "--top-p"},
        {{"generate", "--max-new-tokens", "9"}, "use -n N"},
        {{"generate", "--draft-min", "1"}, "--speculate"},
        {{"generate", "--weights-cache", "auto"},
         "--weights-cache: removed: use 'antigravity quantize' once instead"},
        {{"generate", "-np", "4"}, "only 'antigravity bench' and"},
        {{"bench", "-sm", "none"}, "one device"},
        {{"run"}, "no model given: use 'antigravity run MODEL'"},
        {{"run", "--seed", "1"}, "no model given: use 'antigravity run MODEL'"},
        {{"ps"}, "unknown command 'ps': no model stays loaded"},
        {{"stop", "x"}, "unknown command 'stop': no model stays loaded"},
        {{"cli"}, "unknown command 'cli': use 'antigravity chat'"},
        {{"download", "org/name"}, "antigravity pull ORG/NAME"},
        {{"server"}, "'antigravity serve' answers over HTTP"},
        {{"chat", "--port", "1"}, "'antigravity serve' answers over HTTP"},
    };
    ALL_REFUSED(cases);
}

static void pull_shows_an_example(void **state) {
    (void)state;
    cli_result r = CLI("pull", "smollm2");
    const bool is_absent = strstr(r.err, "libcurl: not found");
    if (!is_absent) assert_refused(&r, 2, "such as bartowski/SmolLM2-135M-Instruct-GGUF");
    cli_free(&r);
    if (is_absent) skip();
}

static void explains_options_of_llama_server(void **state) {
    (void)state;
    skip_without_server();
    static const wrong cases[] = {
        {{"serve", "--prot", "300"}, "did you mean '--port' or '--protected-prefix'?"},
        {{"serve", "--conf", "/nowhere.json"}, "unknown option '--conf'"},
        {{"serve", "--api-key", "k"}, "--api-key: write keys to a file for --api-key-file"},
        {{"serve", "--preset", "nix"}, "--preset: a request chooses a preset"},
        {{"serve", "--timeout", "60"}, "--timeout: use --read-timeout, --write-timeout and"},
        {{"serve", "-to", "60"}, "-to: use --read-timeout"},
        {{"serve", "--no-webui"}, "--no-webui: the page and /slots cannot be turned off"},
        {{"serve", "--props"}, "--props: GET /props is always answered"},
        {{"serve", "--temp", "0.5"}, "--temp: a request sets it, or the preset"},
        {{"serve", "-n", "9"}, "-n: a request sets it"},
        {{"serve", "--seed=1"}, "a request sets it"},
        {{"serve", "-md", "x"}, "-md: the server decodes without drafts"},
        {{"serve", "--reasoning-format", "none"}, "--reasoning-format: reasoning is always"},
        {{"serve", "--slot-save-path", "d"}, "use --prefix-dir"},
        {{"serve", "--mmproj", "x"}, "text from text only"},
        {{"serve", "-cnv"}, "-cnv: use 'antigravity chat'"},
        {{"serve", "-np", "0"}, "'0' is not between 1 and 256"},
        {{"serve", "--metrics", "--slots", "--ssl-key-file", "k"}, "--tls-key requires --tls-cert"},
        {{"serve", "--ssl-cert-file", "c"}, "--tls-cert requires --tls-key"},
        {{"serve", "-a", ""}, "-a: the name is empty"},
        {{"serve", "--models-dir", ""}, "--models-dir: the name is empty"},
        {{"bench", "-np", "0"}, "'0' is not between 1 and 256"},
    };
    ALL_REFUSED(cases);
}

static void accepts_options_that_ask_for_defaults(void **state) {
    (void)state;
    static const char *const accepted[][2] = {
        {"-fa"},         {"-fa", "on"},         {"--flash-attn", "auto"},
        {"--no-warmup"}, {"--flash-attn=on"},   {"--no-display-prompt"},
        {"--simple-io"}, {"--no-conversation"}, {"-no-cnv"},
        {"--mlock"},     {"--no-mmap"},         {"--cont-batching"},
        {"-cb"},         {"--embedding"},       {"--keep", "32"},
        {"--keep=-1"},
    };
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        /* The option is accepted in the middle and at the end, and parsing continues after it. */
        const char *args[10] = {"generate", accepted[i][0]};
        size_t n = 2;
        if (accepted[i][1]) args[n++] = accepted[i][1];
        args[n] = "--xyzzy";
        cli_result r = cli_run(&(cli_setup){.args = args});
        assert_refused(&r, 2, "unknown option '--xyzzy'");
        cli_free(&r);
        args[0] = "devices";
        args[n] = NULL;
        r = cli_run(&(cli_setup){.args = args});
        assert_code(&r, 0);
        cli_free(&r);
    }
    /* An option's value is not taken for one of these options. */
    cli_result r = CLI("generate", "-m", TINY, "-p", "-fa");
    assert_refused(&r, 2, "no tokenizer.json");
    cli_free(&r);
}

static void rejects_missing_values(void **state) {
    (void)state;
    static const wrong cases[] = {
        {{"generate", "-n"}, "option '-n' needs a value"},
        {{"generate", "--top-k"}, "option '--top-k' needs a value"},
        {{"generate", "-ngl"}, "needs a value"},
        {{"tokenize", "-m"}, "option '-m' needs a value"},
    };
    ALL_REFUSED(cases);
}

static void checks_number_syntax(void **state) {
    (void)state;
    static const char *const whole[] = {"-n",      "-t",
                                        "-c",      "--ctx-size",
                                        "--top-k", "--repetition-window",
                                        "--seed",  "--repeat-last-n",
                                        "-s",      "--prefill-chunk",
                                        "-ngl",    "--max-seq-len"};
    static const char *const real[] = {"--temperature",
                                       "--temp",
                                       "--top-p",
                                       "--min-p",
                                       "--repetition-penalty",
                                       "--repeat-penalty",
                                       "--presence-penalty",
                                       "--frequency-penalty"};
    static const char *const no_number[] = {"",    "x",   "12x", " 5", "5 ", "0x10", "--",
                                            "nan", "inf", "1,5", "-",  "1e", "+5"};
    for (size_t k = 0; k < sizeof no_number / sizeof no_number[0]; k++) {
        for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++) {
            cli_result r = CLI("generate", whole[i], no_number[k]);
            assert_refused(&r, 2, "is not a whole number");
            cli_free(&r);
        }
        for (size_t i = 0; i < sizeof real / sizeof real[0]; i++) {
            cli_result r = CLI("generate", real[i], no_number[k]);
            assert_refused(&r, 2, "is not a number");
            cli_free(&r);
        }
    }
}

static void checks_number_ranges(void **state) {
    (void)state;
    static const wrong cases[] = {
        {{"generate", "-n", "-2"}, "-n: '-2' is not between -1 and 2147483647"},
        {{"generate", "-n", "99999999999999999999"}, "is not between -1 and 2147483647"},
        {{"generate", "-n", "1.5"}, "is not a whole number"},
        {{"generate", "-t", "-1"}, "is not between 0 and 1024"},
        {{"generate", "-t", "4294967297"}, "is not between 0 and 1024"},
        {{"generate", "-c", "-1"}, "is not between 0 and 2147483647"},
        {{"generate", "-c", "4294967296"}, "is not between 0 and 2147483647"},
        {{"generate", "--top-k", "-1"}, "is not between 0 and"},
        {{"generate", "--top-p", "0"}, "is not between"},
        {{"generate", "--top-p", "1.01"}, "--top-p: '1.01' is not between"},
        {{"generate", "--min-p", "-0.1"}, "is not between 0 and 1"},
        {{"generate", "--min-p", "2"}, "is not between 0 and 1"},
        {{"generate", "--typical", "1.5"}, "is not between 0 and 1"},
        {{"generate", "--xtc-threshold", "-1"}, "is not between 0 and 1"},
        {{"generate", "--dry-base", "0.5"}, "is not between 1 and"},
        {{"generate", "--dry-allowed-length", "0"}, "is not between 1 and"},
        {{"generate", "--dry-sequence-breaker", ""}, "it must have 1 to 40"},
        {{"generate", "--temp", "-1"}, "is not between 0 and"},
        {{"generate", "--temp", "1e999"}, "is not between 0 and"},
        {{"generate", "--repeat-penalty", "0"}, "is not between"},
        {{"generate", "--repeat-penalty", "-1"}, "is not between"},
        {{"generate", "--repeat-last-n", "-2"}, "is not between -1 and"},
        {{"generate", "--presence-penalty", "1e9"}, "is not between -1000 and 1000"},
        {{"generate", "--seed", "-2"}, "is less than -1"},
        {{"generate", "--seed", "99999999999999999999"}, "is too large"},
        {{"generate", "--prefill-chunk", "0"}, "is not between 1 and"},
        {{"bench", "-r", "0"}, "is not between 1 and 100"},
        {{"bench", "--parallel", "0"}, "is not between 1 and 256"},
        {{"bench", "-p", "1,x"}, "is not a whole number"},
        {{"bench", "-p", ""}, "0 numbers"},
        {{"bench", "-d", "-1"}, "is not between 0 and"},
        {{"bench", "-t", "1,1025"}, "'1025' is not between 0 and 1024"},
        {{"bench", "-p", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"}, "17 numbers given; 1 to 16"},
        {{"eval", "needle", "--depth", "50,101"}, "'101' is not between 0 and 100"},
        {{"eval", "ppl", "--windows", "-1"}, "is not between 0 and"},
        {{"eval", "ruler", "--length", "1024,255"}, "'255' is not between 256 and"},
        {{"eval", "ruler", "--ratios", "0.5,1"}, "'1' is not between 0.01 and 0.99"},
        {{"eval", "ruler", "--ratios", "0.5,"}, "'' is not a number"},
        {{"eval", "ruler", "--samples", "0"}, "is not between 1 and"},
    };
    ALL_REFUSED(cases);
}

static void checks_names_against_lists(void **state) {
    (void)state;
    static const wrong cases[] = {
        {{"generate", "--weights", "q5"},
         "'q5' is not one of f32, f16, bf16, q4_0, q4_1, q8_0, "
         "q5_0, q5_1, q2_k, q3_k, q4_k, q5_k, q6_k, iq4_nl, mxfp4"},
        {{"generate", "--weights", "i32"}, "is not one of"},
        {{"generate", "--kv-type", "bf16"}, "'bf16' is not one of f32, f16, q4_0, q8_0"},
        {{"generate", "--kv-type", "f16,q5"}, "'q5' is not one of"},
        {{"generate", "--kv-type", "f16,f16,f16"}, "is not one of"},
        {{"generate", "--kv-type", ","}, "'' is not one of"},
        {{"generate", "-ctk", "q5"}, "'q5' is not one of"},
        {{"generate", "-ctv", "q5"}, "'q5' is not one of"},
        {{"generate", "--k-rotation", "yes"}, "'yes' is not one of auto, off, on"},
        {{"generate", "-b", "vulkan"}, "'vulkan': unknown backend; this build has cpu"},
        {{"generate", "-b", "512"}, "use --prefill-chunk 512"},
        {{"generate", "--zero-copy"}, "needs the opencl backend"},
        {{"generate", "--gpu-attn"}, "needs the opencl backend"},
        {{"generate", "--no-gpu-attn"}, "needs the opencl backend"},
        {{"generate", "-b", "cpu", "--device", "0"}, "needs the opencl backend"},
        {{"generate", "--logit-bias", "5"}, "is not of the form ID:BIAS"},
        {{"generate", "--logit-bias", ":5"}, "is not of the form ID:BIAS"},
        {{"generate", "--logit-bias", "5:"}, "is not a number"},
        {{"generate", "--logit-bias", "5:nan"}, "is not a number"},
        {{"generate", "--logit-bias", "99999999999:1"}, "is not between"},
        {{"generate", "--stop", ""}, "the text is empty"},
        {{"generate", "-m", ""}, "-m: the name is empty"},
        {{"generate", "--prompt-file="}, "--prompt-file: the name is empty"},
        {{"generate", "--save-cache", ""}, "--save-cache: the name is empty"},
        {{"generate", "-b", "opencl", "--device", ""}, "--device: the name is empty"},
        {{"tokenize", "-m", ""}, "-m: the name is empty"},
        {{"bench", "-o", "xml"}, "'xml' is not one of md, csv, json"},
        {{"bench", "-o", "m"}, "'m' is not one of md, csv, json"},
        {{"bench", "-o", "md|csv"}, "'md|csv' is not one of md, csv, json"},
        {{"bench", "-o", ""}, "'' is not one of md, csv, json"},
        {{"bench", "--shape", "gpt-5"}, "unknown shape \"gpt-5\"; known: tiny, "},
        {{"eval"}, "no measure given"},
        {{"eval", "colour"}, "unknown measure 'colour'"},
        {{"eval", "ruler", "--tasks", "vt,qa_1"}, "'vt,qa_1' is not one of niah_single_1, "},
        {{"eval", "ruler", "--tasks", "vt,cwe,vt"}, "'vt' is given twice"},
        {{"eval", "ruler", "--question", "inside"}, "'inside' is not one of unseen, seen"},
        {{"eval", "ruler", "--eviction-policy", "best"}, "'best' is not one of none, sliding, "},
    };
    ALL_REFUSED(cases);
}

static void eviction_options_need_policy(void **state) {
    (void)state;
    static const wrong cases[] = {
        {{"generate", "--eviction-policy", "lru"},
         "'lru' is not one of none, sliding, streaming, turns, snapkv, h2o, tova, keydiff"},
        {{"generate", "--eviction-window", "9"}, "needs an eviction policy other than none"},
        {{"generate", "--kv-budget", "9"}, "needs an eviction policy other than none"},
        {{"generate", "--protected-prefix", "9"}, "needs an eviction policy other than none"},
        {{"generate", "--eviction-target-ratio", "0.5"},
         "needs an eviction policy other than none"},
        {{"generate", "--eviction-policy", "none", "--memory-threshold-mb", "9"},
         "needs an eviction policy other than none"},
        {{"generate", "--eviction-target-ratio", "1"}, "is not between 0.01 and 0.99"},
        {{"generate", "--kv-budget", "9k"}, "'9k': invalid budget; use N tokens, N% or NMiB"},
        {{"generate", "--kv-budget", "0"}, "is not between 1 and"},
        {{"generate", "--kv-budget", "101%"}, "is not between 0.01 and 100"},
        {{"generate", "--kv-budget", "0.5MiB"}, "is not a whole number"},
        {{"generate", "--kv-prefill", "half"}, "'half' is not one of bounded, whole"},
        {{"generate", "--head-budget", "odd"},
         "'odd' is not one of even, adaptive, adaptive-values"},
        {{"generate", "--head-budget", "adaptive-values", "--eviction-policy", "keydiff"},
         "keydiff has no attention scores for values"},
        {{"generate", "--head-budget", "adaptive"}, "needs an eviction policy other than none"},
        {{"generate", "--head-budget", "adaptive", "--eviction-policy", "sliding"},
         "--head-budget: eviction policy sliding has no scores"},
        {{"chat", "--head-budget", "adaptive"}, "eviction policy turns has no scores"},
        {{"eval", "needle", "--head-budget", "adaptive", "--eviction-policy", "keydiff,streaming"},
         "eviction policy streaming has no scores"},
        {{"generate", "--snapkv-pool", "min"}, "'min' is not one of avg, max"},
        {{"generate", "--cpu-mask", "0xg"}, "'0xg' is not a hexadecimal number"},
        {{"generate", "-C", "0"}, "'0': no usable core"},
    };
    ALL_REFUSED(cases);
}

static void rejects_conflicting_options(void **state) {
    (void)state;
    static const wrong cases[] = {
        {{"generate", "x", "-p", "y"}, "two prompts given: 'x' and --prompt; give one"},
        {{"generate", "x", "-f", "y"}, "several prompts given"},
        {{"tokenize", "x", "-f", "y"}, "several prompts given"},
        {{"generate", "-p", "x", "-f", "y"}, "several prompts given"},
        {{"generate", "-p", "x", "--prompt-ids", "1"}, "several prompts given"},
        {{"generate", "-f", "x", "--prompt-ids", "1"}, "several prompts given"},
        {{"eval", "ppl", "x", "-p", "y"}, "several prompts given"},
        {{"tokenize", "--prompt-ids", "1"}, "needs --decode"},
        {{"tokenize", "--decode", "--prompt-ids", "1", "-p", "1"}, "several prompts given"},
        {{"generate", "-p", "x", "-q", "-v"}, "-q and -v exclude each other"},
        {{"generate", "--prompt-ids", ""}, "the list is empty"},
        {{"generate", "--prompt-ids", "1,a"}, "'a' is not a whole number"},
        {{"generate", "--prompt-ids", "1,-1"}, "'-1' is not between 0 and"},
        {{"bench", "-m", DEMO, "--shape", "tiny"}, "exclude each other"},
        {{"bench", "-p", "0,0", "-n", "0"}, "nothing to measure"},
        {{"eval", "ppl", "x", "-f", "y"}, "two texts given"},
    };
    ALL_REFUSED(cases);
}

static void removes_control_characters_from_messages(void **state) {
    (void)state;
    static const wrong cases[] = {
        {{"generate", "-t", "\x1b[31m\n"}, "'?[31m?' is not a whole number"},
        {{"generate", "--\x1b[31m"}, "unknown option '--?[31m'"},
        {{"a\nb"}, "unknown command 'a?b'"},
        {{"a\xc2\x9b"
          "31mb"},
         "unknown command 'a??31mb'"}, /* ESC [ in one character */
        {{"a\xff\xc3(\xe2\x80"}, "unknown command 'a?\?(?\?'"},
        {{"K\xc3\xb6ln \xe2\x98\x95"}, "unknown command 'K\xc3\xb6ln \xe2\x98\x95'"},
    };
    ALL_REFUSED(cases);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejects_unknown_options),
        cmocka_unit_test(explains_options_of_other_programs),
        cmocka_unit_test(pull_shows_an_example),
        cmocka_unit_test(explains_options_of_llama_server),
        cmocka_unit_test(accepts_options_that_ask_for_defaults),
        cmocka_unit_test(rejects_missing_values),
        cmocka_unit_test(checks_number_syntax),
        cmocka_unit_test(checks_number_ranges),
        cmocka_unit_test(checks_names_against_lists),
        cmocka_unit_test(eviction_options_need_policy),
        cmocka_unit_test(rejects_conflicting_options),
        cmocka_unit_test(removes_control_characters_from_messages),
    };
    return cmocka_run_group_tests_name("cli options", tests, NULL, NULL);
}
