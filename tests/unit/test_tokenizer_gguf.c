/* SPDX-License-Identifier: Apache-2.0 */
/* Compares tokenizers of GGUF files with recorded ids: llama.cpp's vocabulary-only files, whose ids
 * are stored in files of the same name. We may not copy these files. They are in AG_VOCAB_DIR
 * (docs/reference/tokenizers.md says how to get them) or in the shared data directory; a file that
 * is in neither is skipped. */
#include "support/gguf_file.h"
#include "tokenizer_rows.h"

#include <sys/stat.h>
#include <unistd.h>

/* Finds a file in one of the two directories. Skips the test if neither has it. */
static void find_file(const char *name, char path[1024]) {
    const char *dirs[] = {getenv("AG_VOCAB_DIR"), AG_SHARED_DIR "/formats"};
    for (int i = 0; i < 2; i++) {
        struct stat info;
        if (!dirs[i]) continue;
        snprintf(path, 1024, "%s/ggml-vocab-%s.gguf", dirs[i], name);
        if (stat(path, &info) == 0) return;
    }
    print_message("skipped: no ggml-vocab-%s.gguf; AG_VOCAB_DIR is not its folder\n", name);
    skip();
}

/* state: the name. The texts and ids are in the same directory or in tests/data. */
static void vocabulary_matches_recorded_ids(void **state) {
    const char *name = *(const char **)*state;
    char path[1024], pairs[1100];
    find_file(name, path);
    ag_tokenizer *t = rows_tokenizer(path);
    snprintf(pairs, sizeof pairs, "%s.inp", path);
    if (access(pairs, R_OK) != 0) {
        snprintf(path, sizeof path, AG_ROWS_DIR "ggml-vocab-%s.gguf", name);
        snprintf(pairs, sizeof pairs, "%s.inp", path);
    }
    if (access(pairs, R_OK) == 0) assert_true(rows_check_pairs(t, path) >= 45);
    else print_message("loaded, no texts for it: %s\n", pairs);
    ag_tokenizer_destroy(t);
}

static void rejects_unknown_models_by_name(void **state) {
    static const char *const files[][2] = {{"bert-bge", "\"bert\""}, {"nomic-bert-moe", "\"t5\""}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char path[1024], message[80];
        ag_tokenizer *t;
        ag_error err;
        find_file(files[i][0], path);
        snprintf(message, sizeof message, "tokenizer model %s is not supported", files[i][1]);
        assert_int_equal(ag_tokenizer_load(path, &t, &err), AG_UNSUPPORTED);
        assert_non_null(strstr(err.msg, message));
    }
}

static void loads_a_file_and_its_directory(void **state) {
    (void)state;
    static const char *const tokens[] = {"a", "b", "ab", "<|end|>"};
    static const char *const merges[] = {"a b"};
    static const int32_t types[] = {1, 1, 1, 3};
    char dir[] = "/tmp/ag-tokenizer-XXXXXX", path[64];
    ag_tokenizer *t;
    ag_error err;
    gguf_file f = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/x.gguf", dir);
    gguf_put_string(&f, "general.architecture", "llama");
    assert_true(gguf_file_save(&f, path));
    assert_int_equal(ag_tokenizer_load(path, &t, &err), AG_NOT_FOUND);
    assert_non_null(strstr(err.msg, "x.gguf: holds no tokenizer"));
    gguf_put_string(&f, "tokenizer.ggml.model", "gpt2");
    gguf_put_string(&f, "tokenizer.ggml.pre", "smollm");
    gguf_put_strings(&f, "tokenizer.ggml.tokens", tokens, 4);
    gguf_put_strings(&f, "tokenizer.ggml.merges", merges, 1);
    gguf_put_array(&f, "tokenizer.ggml.token_type", AG_GGUF_I32, types, 4);
    gguf_put_u32(&f, "tokenizer.ggml.bos_token_id", 3);
    gguf_put_bool(&f, "tokenizer.ggml.add_bos_token", true);
    assert_true(gguf_file_save(&f, path));
    const char *const paths[] = {path, dir};
    json_t *ids = json_pack("[i,i,i]", 3, 2, 0);
    for (int i = 0; i < 2; i++) {
        t = rows_tokenizer(paths[i]);
        rows_check_encode(t, "aba", 3, AG_ENCODE_BOS, ids);
        ag_tokenizer_destroy(t);
    }
    json_decref(ids);
    gguf_file_free(&f);
    unlink(path);
    rmdir(dir);
}

#define VOCABULARY(file)                                            \
    {                                                               \
        .name = file, .test_func = vocabulary_matches_recorded_ids, \
        .initial_state = &(const char *) {                          \
            file                                                    \
        }                                                           \
    }

int main(void) {
    struct CMUnitTest tests[] = {
        VOCABULARY("command-r"),
        VOCABULARY("deepseek-coder"),
        VOCABULARY("deepseek-llm"),
        VOCABULARY("falcon"),
        VOCABULARY("gemma-4"),
        VOCABULARY("gpt-2"),
        VOCABULARY("llama-bpe"),
        VOCABULARY("llama-spm"),
        VOCABULARY("mpt"),
        VOCABULARY("phi-3"),
        VOCABULARY("qwen2"),
        VOCABULARY("qwen35"),
        VOCABULARY("refact"),
        VOCABULARY("starcoder"),
        cmocka_unit_test(rejects_unknown_models_by_name),
        cmocka_unit_test(loads_a_file_and_its_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
