/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of the answer memory: scopes, limits and the file. */
#include "serve/job/answer_memory.h"
#include "serve/threads/account.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEMO AG_SOURCE_DIR "/models/demo"
enum { ROOM = 1 << 20 };

static ag_tokenizer *tokenizer;
static ag_chat_format *format;
static char root[] = "/tmp/ag-serve-answers-XXXXXX", path[64], reason[ANSWER_REASON_SIZE];

static const char jinja[] = "{% for m in messages %}<|start_header_id|>{{ m.role }}"
                            "<|end_header_id|>{{ m.content }}<|eot_id|>{% endfor %}";

static bool load(const ag_tokenizer *t, ag_chat_format **out) {
    ag_error err;
    return ag_chat_format_create(jinja, strlen(jinja), NULL, NULL, t, out, &err) == AG_OK;
}

static int set_up(void **state) {
    ag_error err;
    (void)state;
    if (!mkdtemp(root)) return -1;
    snprintf(path, sizeof path, "%s/answers", root);
    return ag_tokenizer_load(DEMO, &tokenizer, &err) == AG_OK && load(tokenizer, &format) ? 0 : -1;
}

static int tear_down(void **state) {
    (void)state;
    ag_chat_format_destroy(format);
    ag_tokenizer_destroy(tokenizer);
    unlink(path);
    return rmdir(root);
}

/* Returns one id for each letter, which no tokenizer would choose. */
static ag_ids letters_of(const char *text) {
    ag_ids ids = {.data = account_malloc(strlen(text) * sizeof(int32_t)), .cap = strlen(text)};
    for (; *text; text++) ids.data[ids.n++] = ag_tokenizer_id(tokenizer, text, 1);
    return ids;
}

static void keep_words(answer_memory *m, const char *scope, const char *words) {
    ag_ids ids = letters_of(words);
    ag_text text = {0};
    ag_chat *chat;
    ag_chat_parser *p;
    ag_error err;
    assert_int_equal(ag_chat_create(format, &chat, &err), AG_OK);
    assert_int_equal(ag_chat_parser_create(chat, &p, &err), AG_OK);
    assert_int_equal(ag_chat_parser_push(p, words, strlen(words), &err), AG_OK);
    assert_int_equal(ag_chat_parser_finish(p, &err), AG_OK);
    assert_int_equal(ag_chat_keep_answer(chat, p, ids.data, ids.n, &text, &err), AG_OK);
    answer_memory_store(m, "demo", scope, &text);
    ag_chat_parser_destroy(p);
    ag_chat_destroy(chat);
    ag_text_free(&text);
    ag_ids_free(&ids);
}

/* Counts in how many of n equal messages of the assistant the letters' ids are restored. *n_bytes:
 * their memory. */
static size_t count_known(answer_memory *m, const char *model, const char *scope, const char *words,
                          size_t n, size_t *n_bytes) {
    json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", "hi");
    for (size_t i = 0; i < n; i++)
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", "assistant", "content", words));
    char *text = json_dumps(messages, 0);
    ag_chat *chat;
    ag_ids ids = {0}, letters = letters_of(words);
    ag_error err;
    size_t n_found = 0;
    *n_bytes = 0;
    assert_int_equal(ag_chat_create(format, &chat, &err), AG_OK);
    assert_int_equal(ag_chat_set_messages(chat, text, strlen(text), &err), AG_OK);
    assert_int_equal(answer_memory_restore(m, model, scope, messages, chat, n_bytes, &err), AG_OK);
    assert_int_equal(ag_chat_render(chat, 0, &ids, NULL, &err), AG_OK);
    for (size_t i = 0; i + letters.n <= ids.n; i++)
        n_found += !memcmp(ids.data + i, letters.data, letters.n * sizeof *ids.data);
    ag_ids_free(&ids);
    ag_ids_free(&letters);
    ag_chat_destroy(chat);
    account_free(text);
    json_decref(messages);
    return n_found;
}

static bool is_known(answer_memory *m, const char *model, const char *scope, const char *words) {
    size_t n_bytes;
    return count_known(m, model, scope, words, 1, &n_bytes) == 1;
}

static void separates_answers_by_scope(void **state) {
    answer_memory *m = answer_memory_create(ROOM);
    (void)state;
    keep_words(m, "anna", "somewhere");
    assert_true(is_known(m, "demo", "anna", "somewhere"));
    assert_false(is_known(m, "demo", "bert", "somewhere"));
    assert_false(is_known(m, "other", "anna", "somewhere"));
    assert_false(is_known(m, "demo", "anna", "somewhere."));
    answer_memory_destroy(m);
}

/* Otherwise a short conversation could take the memory of many long answers. */
static void restores_an_answer_once_for_equal_messages(void **state) {
    answer_memory *m = answer_memory_create(ROOM);
    size_t once, often;
    (void)state;
    keep_words(m, "anna", "somewhere");
    keep_words(m, "anna", "elsewhere");
    assert_int_equal(count_known(m, "demo", "anna", "nowhere", 1, &once), 0);
    assert_int_equal(once, 0);
    assert_int_equal(count_known(m, "demo", "anna", "somewhere", 1, &once), 1);
    assert_true(once > 0);
    assert_int_equal(count_known(m, "demo", "anna", "somewhere", 500, &often), 500);
    assert_int_equal(often, once);
    answer_memory_destroy(m);
}

static void evicts_least_recently_used_answers(void **state) {
    answer_memory *m = answer_memory_create(4096);
    char words[32];
    (void)state;
    keep_words(m, "anna", "thefirst");
    keep_words(m, "anna", "thesecond");
    for (int i = 0; i < 100; i++) {
        snprintf(words, sizeof words, "number%d", i);
        keep_words(m, "anna", words);
        assert_true(answer_memory_bytes(m) <= 4096);
        assert_true(is_known(m, "demo", "anna", "thefirst")); /* uses the answer */
    }
    assert_true(is_known(m, "demo", "anna", "number99"));
    assert_false(is_known(m, "demo", "anna", "thesecond"));
    /* The same answer takes no further memory; one that exceeds the limit is not stored. */
    const size_t bytes = answer_memory_bytes(m);
    keep_words(m, "anna", "number99");
    assert_int_equal(answer_memory_bytes(m), bytes);
    answer_memory_destroy(m);
    m = answer_memory_create(16);
    keep_words(m, "anna", "thefirst");
    assert_int_equal(answer_memory_bytes(m), 0);
    answer_memory_destroy(m);
}

static void saves_and_loads_answers(void **state) {
    answer_memory *m = answer_memory_create(ROOM);
    struct stat st;
    (void)state;
    assert_true(answer_memory_load(m, path, reason)); /* no file: no answers */
    keep_words(m, "anna", "somewhere");
    keep_words(m, "bert", "anywhere");
    assert_true(answer_memory_save(m, path, reason));
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    answer_memory_destroy(m);
    /* Invalid lines are skipped. */
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputs("{\"model\":\"demo\",\"scope\":\"anna\"}\nnothing\n[1,2]\n"
          "{\"model\":\"demo\",\"scope\":\"anna\",\"answer\":{\"message\":{\"role\":\"assistant\","
          "\"content\":\"elsewhere\"},\"ids\":[99999999]}}\n{\"model\":",
          f);
    fclose(f);
    m = answer_memory_create(ROOM);
    assert_true(answer_memory_load(m, path, reason));
    assert_true(is_known(m, "demo", "anna", "somewhere"));
    assert_true(is_known(m, "demo", "bert", "anywhere"));
    assert_false(is_known(m, "demo", "anna", "anywhere"));
    assert_false(is_known(m, "demo", "anna", "elsewhere"));
    answer_memory_destroy(m);
}

/* Returns the demo model's tokenizer with the ids of two letters swapped. */
static ag_tokenizer *tokenizer_with_swapped_letters(void) {
    json_t *root_of_file = json_load_file(DEMO "/tokenizer.json", 0, NULL);
    json_t *vocab = json_object_get(json_object_get(root_of_file, "model"), "vocab");
    json_t *e = json_incref(json_object_get(vocab, "e"));
    assert_int_equal(json_object_set(vocab, "e", json_object_get(vocab, "s")), 0);
    assert_int_equal(json_object_set_new(vocab, "s", e), 0);
    char *text = json_dumps(root_of_file, 0);
    ag_tokenizer *t;
    ag_error err;
    assert_int_equal(ag_tokenizer_parse(text, strlen(text), "swapped", &t, &err), AG_OK);
    account_free(text);
    json_decref(root_of_file);
    return t;
}

/* After a restart another model may have the same name. */
static void ignores_answers_of_another_tokenizer(void **state) {
    answer_memory *m = answer_memory_create(ROOM);
    ag_tokenizer *own = tokenizer, *other = tokenizer_with_swapped_letters();
    ag_chat_format *own_format = format, *other_format;
    size_t n_bytes;
    (void)state;
    assert_true(load(other, &other_format));
    keep_words(m, "anna", "somewhere");
    assert_true(answer_memory_save(m, path, reason));
    answer_memory_destroy(m);
    m = answer_memory_create(ROOM);
    assert_true(answer_memory_load(m, path, reason));
    tokenizer = other;
    format = other_format;
    assert_int_equal(count_known(m, "demo", "anna", "somewhere", 1, &n_bytes), 0);
    assert_int_equal(n_bytes, 0);
    tokenizer = own;
    format = own_format;
    assert_true(is_known(m, "demo", "anna", "somewhere"));
    ag_chat_format_destroy(other_format);
    ag_tokenizer_destroy(other);
    answer_memory_destroy(m);
}

static void does_not_follow_links(void **state) {
    answer_memory *m = answer_memory_create(ROOM);
    char elsewhere[80];
    struct stat st;
    (void)state;
    keep_words(m, "anna", "somewhere");
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", root);
    assert_true(answer_memory_save(m, elsewhere, reason));
    answer_memory_destroy(m);
    unlink(path);
    assert_int_equal(symlink(elsewhere, path), 0);
    m = answer_memory_create(ROOM);
    assert_false(answer_memory_load(m, path, reason));
    assert_int_equal(answer_memory_bytes(m), 0);
    /* The link is replaced, not its target. */
    assert_true(answer_memory_save(m, path, reason));
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISREG(st.st_mode));
    assert_int_equal(stat(elsewhere, &st), 0);
    assert_true(st.st_size > 0);
    unlink(elsewhere);
    answer_memory_destroy(m);
    m = answer_memory_create(ROOM);
    assert_false(answer_memory_save(m, "/nowhere/at/all", reason));
    assert_non_null(strstr(reason, "/nowhere/at/all"));
    answer_memory_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(separates_answers_by_scope),
        cmocka_unit_test(restores_an_answer_once_for_equal_messages),
        cmocka_unit_test(evicts_least_recently_used_answers),
        cmocka_unit_test(saves_and_loads_answers),
        cmocka_unit_test(ignores_answers_of_another_tokenizer),
        cmocka_unit_test(does_not_follow_links),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
