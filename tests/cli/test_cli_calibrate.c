/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity calibrate: the file it writes, the commands that read it, and the errors of invalid
 * files. */
#include "cli.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TEXT                                                                                       \
    "Once upon a time there was a fox who lived in a forest with a bear and a small grey mouse. "  \
    "Every day the fox went to the river to see the fish, and every day the bear said that there " \
    "were no fish in the river. One day the mouse found a red box under a tree. In the box there " \
    "was a key. The fox took the key and went to the old house, and the door of the house opened."

static char dir[64], path[96];

static int begin(void **state) {
    (void)state;
    make_directory(dir);
    snprintf(path, sizeof path, "%s/heads.json", dir);
    return 0;
}

static int end(void **state) {
    (void)state;
    remove_directory(dir);
    return 0;
}

#define FEW "--kv-budget", "40", "--kv-recent", "8", "--kv-slack", "4"

static void writes_share_of_each_head(void **state) {
    (void)state;
    cli_result r = CLI("calibrate", "-q", "-p", TEXT, "-o", path, "-c", "200");
    assert_code(&r, 0);
    assert_says(r.out, "20 heads of 10 layers");
    cli_free(&r);
    json_t *file = json_load_file(path, 0, NULL), *layer, *share;
    size_t l, h;
    bool differ = false;
    assert_int_equal(json_array_size(json_object_get(file, "layers")), 10);
    json_array_foreach(json_object_get(file, "layers"), l, layer) {
        double sum = 0;
        json_array_foreach(layer, h, share) sum += json_number_value(share);
        assert_true(fabs(sum - 1) < 1e-5);
        differ |= fabs(json_number_value(json_array_get(layer, 0)) - 0.5) > 0.05;
    }
    assert_true(differ);
    json_decref(file);
    r = CLI("generate", "-q", "-p", TEXT, "-n", "20", GREEDY, "--ignore-eos", "--eviction-policy",
            "streaming", FEW, "--head-budget", path);
    cli_result even = CLI("generate", "-q", "-p", TEXT, "-n", "20", GREEDY, "--ignore-eos",
                          "--eviction-policy", "streaming", FEW);
    assert_code(&r, 0);
    assert_string_not_equal(r.out, even.out);
    cli_free(&r);
    cli_free(&even);
    r = CLI("eval", "needle", "-q", "-n", "1", "--context", "256", "--eviction-policy",
            "streaming,keydiff", "--kv-budget", "50%", "--head-budget", path, "-o", "json");
    assert_code(&r, 0);
    assert_says(r.out, "\"head_budget\": \"shares\"");
    cli_free(&r);
    r = CLI("generate", "-q", "-m", TINY, "--prompt-ids", "3,4", "-n", "1", "--eviction-policy",
            "keydiff", FEW, "--head-budget", path);
    assert_refused(&r, 2, "heads.json: shares of 10 layers with 20 KV heads; the model has");
    cli_free(&r);
}

/* The file has the model's number of layers and of heads, but not in each layer. */
static void compares_heads_layer_by_layer(void **state) {
    (void)state;
    char moved[96], text[2048] = "{\"format\":\"antigravity head budget 1\",\"layers\":[[1],";
    for (int l = 2; l < 10; l++) strcat(text, "[0.5,0.5],");
    strcat(text, "[0.5,0.25,0.25]]}");
    snprintf(moved, sizeof moved, "%s/moved.json", dir);
    write_file(dir, "moved.json", text, strlen(text));
    cli_result r = CLI("generate", "-q", "-n", "1", "-p", "a", "--eviction-policy", "keydiff", FEW,
                       "--head-budget", moved);
    assert_refused(&r, 2, "moved.json: layers[0] has shares of 1 KV heads, as 1 layers have");
    cli_free(&r);
}

static void rejects_invalid_file_with_location(void **state) {
    (void)state;
#define HEAD "{\"format\":\"antigravity head budget 1\","
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "wrong.json: line 1: "},
        {"{\"layers\":[[1]]}", "wrong.json: format: must be \"antigravity head budget 1\""},
        {HEAD "\"layers\":[[1]],\"layers\":[[1]]}", "wrong.json: line 1: duplicate object key"},
        {HEAD "\"layers\":[[1]],\"heads\":3}", "wrong.json: unknown field 'heads'"},
        {HEAD "\"tokens\":3}", "wrong.json: layers: must be a list"},
        {HEAD "\"layers\":[[0.5,0.5],7]}", "wrong.json: layers[1]: must be a list of shares"},
        {HEAD "\"layers\":[[0.5,0.5],[]]}", "wrong.json: layers[1]: must be a list of shares"},
        {HEAD "\"layers\":[[0.5,0.5],[1.5,-0.5]]}", "wrong.json: layers[1][0]: must be a share"},
        {HEAD "\"layers\":[[0.5,\"a\"]]}", "wrong.json: layers[0][1]: must be a share from 0 to 1"},
        {HEAD "\"layers\":[[0.5,0.5],[0.5,0.3]]}",
         "wrong.json: layers[1]: the shares add up to 0.8, not 1"},
    };
    char wrong[96];
    snprintf(wrong, sizeof wrong, "%s/wrong.json", dir);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file(dir, "wrong.json", cases[i].text, strlen(cases[i].text));
        cli_result r =
            CLI("generate", "-q", "--eviction-policy", "keydiff", "--head-budget", wrong);
        assert_refused(&r, 2, cases[i].says);
        cli_free(&r);
    }
    cli_result r = CLI("generate", "--eviction-policy", "keydiff", "--head-budget", "./none");
    assert_refused(&r, 2, "./none: No such file");
    cli_free(&r);
}

static void rejects_short_texts_and_unwritable_files(void **state) {
    (void)state;
    cli_result r = CLI("calibrate", "-q", "-p", "The old king", "-o", path);
    assert_refused(&r, 2, "calibration needs 64");
    cli_free(&r);
    r = CLI("calibrate", "-q", "-p", TEXT, "-o", "/nowhere/heads.json");
    assert_refused(&r, 1, "/nowhere/heads.json: No such file or directory");
    cli_free(&r);
    r = CLI("calibrate", "-q", "-m", TINY, "-p", TEXT, "-o", path);
    assert_refused(&r, 2, "tokenizer.json");
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_share_of_each_head),
        cmocka_unit_test(compares_heads_layer_by_layer),
        cmocka_unit_test(rejects_invalid_file_with_location),
        cmocka_unit_test(rejects_short_texts_and_unwritable_files),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
