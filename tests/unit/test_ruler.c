/* SPDX-License-Identifier: Apache-2.0 */
/* RULER's prompts and scores with the bundled model's tokenizer: contents, lengths, the division of
 * a prompt, and the scores of answers. */
#include "programs/antigravity/eval/ruler/prompt.h"
#include "programs/antigravity/eval/ruler/score.h"

#include <antigravity/antigravity.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ag_tokenizer *tokenizer;
static prompt_writer plain, chat;

static const char template[] =
    "{% for m in messages %}<turn>{{ m['role'] }}: {{ m['content'] }}</turn>{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant: {% endif %}";

static int load(void **state) {
    (void)state;
    ag_error err;
    if (ag_tokenizer_load(AG_SOURCE_DIR "/models/demo", &tokenizer, &err) != AG_OK) return 1;
    plain.tokenizer = chat.tokenizer = tokenizer;
    ag_status st = ag_chat_format_create(template, sizeof template - 1, NULL, NULL, tokenizer,
                                         &chat.format, &err);
    if (st == AG_OK) st = ag_chat_create(chat.format, &chat.chat, &err);
    return st != AG_OK;
}

static int unload(void **state) {
    (void)state;
    prompt_writer_close(&chat);
    ag_tokenizer_destroy(tokenizer);
    return 0;
}

static ruler_maker maker(const ruler_task *task, uint32_t n_tokens, uint64_t seed) {
    return (ruler_maker){
        .writer = &plain, .task = task, .source = {NULL, 0, n_tokens}, .seed = seed};
}

static ruler_prompt make(const ruler_maker *m, uint64_t number) {
    ruler_prompt p = {.n_units = 0};
    ag_error err;
    if (ruler_prompt_make(m, number, &p, &err) != AG_OK) fail_msg("%s", err.msg);
    return p;
}

static size_t count(const char *text, const char *part) {
    size_t n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    return n;
}

/* Returns the context after its example, if there is one. */
static const char *own_context(const ruler_prompt *p) {
    const char *answer = strstr(p->text.context.data, " Answer:");
    return answer ? answer : p->text.context.data;
}

static void assert_same(const ruler_prompt *a, const ruler_prompt *b, bool same) {
    const ag_ids *x = &a->written.ids, *y = &b->written.ids;
    assert_int_equal(x->n == y->n && !memcmp(x->data, y->data, x->n * sizeof *x->data), same);
}

/* ---- prompts ---- */

static void prompts_depend_only_on_seed_task_and_number(void **state) {
    (void)state;
    for (size_t i = 0; ruler_task_at(i); i++) {
        ruler_maker m = maker(ruler_task_at(i), 1200, 5), other = maker(ruler_task_at(i), 1200, 6);
        ruler_prompt p[] = {make(&m, 3), make(&m, 3), make(&m, 4), make(&other, 3)};
        assert_same(&p[0], &p[1], true);
        assert_same(&p[0], &p[2], false);
        assert_same(&p[0], &p[3], false);
        /* An earlier prompt in the same structure changes nothing. */
        ag_error err;
        assert_int_equal(ruler_prompt_make(&m, 3, &p[3], &err), AG_OK);
        assert_same(&p[0], &p[3], true);
        for (size_t k = 0; k < 4; k++) ruler_prompt_free(&p[k]);
    }
}

static void prompts_have_maximum_length(void **state) {
    (void)state;
    static const uint32_t lengths[] = {1100, 1800};
    for (size_t i = 0; ruler_task_at(i); i++) {
        const ruler_task *task = ruler_task_at(i);
        for (size_t k = 0; k < 2; k++) {
            ruler_maker m = maker(task, lengths[k], 1);
            ruler_prompt p = make(&m, 0);
            const size_t n = p.written.ids.n + task->n_answer;
            /* A unit is a line of noise or needles, a sentence, or a few words. */
            if (n > lengths[k] || n + 130 < lengths[k])
                fail_msg("%s: %zu tokens of %u", task->name, n, lengths[k]);
            ruler_prompt_free(&p);
        }
        ruler_prompt short_one = {.n_units = 0};
        ruler_maker m = maker(task, 150, 1);
        ag_error err;
        assert_int_equal(ruler_prompt_make(&m, 0, &short_one, &err), AG_LIMIT);
        assert_non_null(strstr(err.msg, task->name));
        ruler_prompt_free(&short_one);
    }
}

static void context_has_answer_without_question(void **state) {
    (void)state;
    for (size_t i = 0; ruler_task_at(i); i++) {
        ruler_maker m = maker(ruler_task_at(i), 1200, 2);
        for (uint64_t number = 0; number < 3; number++) {
            ruler_prompt p = make(&m, number);
            const ruler_text *t = &p.text;
            assert_true(t->n_references > 0);
            for (size_t k = 0; k < t->n_references; k++) {
                assert_true(count(own_context(&p), t->references[k]) > 0);
                assert_int_equal(count(t->question.data, t->references[k]), 0);
                assert_int_equal(count(t->answer_prefix.data, t->references[k]), 0);
                for (size_t j = 0; j < k; j++)
                    assert_string_not_equal(t->references[j], t->references[k]);
            }
            assert_int_equal(count(own_context(&p), t->question.data), 0);
            assert_int_equal(t->context.data[t->context.len - 1], '\n');
            ruler_prompt_free(&p);
        }
    }
}

static void context_has_number_of_needles_of_task(void **state) {
    (void)state;
    static const struct {
        const char *task;
        size_t needles, references; /* needles 0: the haystack consists of needles */
    } rows[] = {
        {"niah_single_1", 1, 1},   {"niah_single_2", 1, 1},   {"niah_single_3", 1, 1},
        {"niah_multikey_1", 4, 1}, {"niah_multikey_2", 0, 1}, {"niah_multikey_3", 0, 1},
        {"niah_multivalue", 4, 4}, {"niah_multiquery", 4, 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ruler_maker m = maker(ruler_task_find(rows[i].task), 1200, 3);
        for (uint64_t number = 0; number < 8; number++) {
            ruler_prompt p = make(&m, number);
            const size_t n = count(p.text.context.data, "One of the special magic ");
            assert_int_equal(n, rows[i].needles ? rows[i].needles : p.n_units + 1);
            assert_int_equal(p.text.n_references, rows[i].references);
            ruler_prompt_free(&p);
        }
    }
}

/* Needles appear at all depths of the context. */
static void needles_have_all_depths(void **state) {
    (void)state;
    static const char *const names[] = {"niah_single_1", "niah_single_2", "niah_multikey_2"};
    for (size_t i = 0; i < 3; i++) {
        ruler_maker m = maker(ruler_task_find(names[i]), 1000, 4);
        size_t n_in[4] = {0};
        for (uint64_t number = 0; number < 40; number++) {
            ruler_prompt p = make(&m, number);
            const char *text = p.text.context.data, *at = strstr(text, p.text.references[0]);
            n_in[(size_t)(at - text) * 4 / p.text.context.len]++;
            ruler_prompt_free(&p);
        }
        for (size_t q = 0; q < 4; q++) assert_in_range(n_in[q], 3, 20);
    }
}

static void uses_given_essay_as_haystack(void **state) {
    (void)state;
    static const char essay[] =
        "Snails are slow. Snails eat leaves at night. Rain is their friend.";
    ruler_maker m = maker(ruler_task_find("niah_single_2"), 900, 4);
    m.source = (ruler_source){essay, sizeof essay - 1, 900};
    ruler_prompt p = make(&m, 0);
    assert_true(count(p.text.context.data, "Snails eat leaves at night. ") > 20);
    assert_int_equal(count(p.text.context.data, " the "),
                     3); /* in the instruction and the needle */
    ruler_prompt_free(&p);
}

static void chain_links_value_to_each_variable(void **state) {
    (void)state;
    ruler_maker m = maker(ruler_task_find("vt"), 1200, 3);
    for (uint64_t number = 0; number < 5; number++) {
        ruler_prompt p = make(&m, number);
        char line[80];
        unsigned value;
        const char *asked = strstr(p.text.question.data, "value ");
        assert_int_equal(sscanf(asked, "value %u in", &value), 1);
        const char *at = own_context(&p);
        snprintf(line, sizeof line, "VAR %s = %u\n", p.text.references[0], value);
        for (size_t i = 0; i < p.text.n_references; i++) {
            at = strstr(at, line); /* the lines have this order */
            assert_non_null(at);
            if (i + 1 < p.text.n_references)
                snprintf(line, sizeof line, "VAR %s = VAR %s\n", p.text.references[i + 1],
                         p.text.references[i]);
        }
        assert_int_equal(p.text.n_references, 5);
        ruler_prompt_free(&p);
    }
}

/* Returns how often a word of a list occurs, between blanks. */
static size_t count_word(const char *list, const char *word) {
    char between[64];
    snprintf(between, sizeof between, " %s ", word);
    size_t n = count(list, between);
    snprintf(between, sizeof between, " %s\n", word);
    return n + count(list, between);
}

static void references_are_the_most_frequent_words(void **state) {
    (void)state;
    ruler_maker m = maker(ruler_task_find("cwe"), 1500, 3);
    ruler_prompt p = make(&m, 1);
    const char *list = strstr(own_context(&p), "Memorize the ones");
    assert_non_null(list);
    for (size_t i = 0; i < 10; i++) assert_int_equal(count_word(list, p.text.references[i]), 6);
    assert_int_equal(count(list, ". "), 60 + p.n_units - 10);
    ruler_prompt_free(&p);
    m = maker(ruler_task_find("fwe"), 1500, 3);
    p = make(&m, 1);
    list = strstr(p.text.context.data, "coded words. ");
    size_t last = count_word(list, "...");
    assert_int_equal(p.text.n_references, 3);
    for (size_t i = 0; i < 3; i++) {
        const size_t n = count_word(list, p.text.references[i]);
        assert_true(n > 0 && n < last);
        last = n;
    }
    char *copy = strdup(list + 13), *rest = copy;
    for (char *word; (word = strsep(&rest, " \n"));) {
        bool known = !*word || !strcmp(word, "...");
        for (size_t i = 0; i < 3; i++) known = known || !strcmp(word, p.text.references[i]);
        if (!known) assert_true(count_word(list, word) < last);
    }
    free(copy);
    ruler_prompt_free(&p);
}

/* ---- division of a prompt ---- */

static char *text_of(const ag_ids *ids, size_t begin, size_t end) {
    ag_text text = {0};
    ag_error err;
    ag_status st =
        ag_tokenizer_decode(tokenizer, ids->data + begin, end - begin, true, &text, &err);
    if (st != AG_OK) fail_msg("%s", err.msg);
    char *copy = strdup(text.data ? text.data : "");
    ag_text_free(&text);
    return copy;
}

static void assert_ends(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    if (n < m || strcmp(text + n - m, end)) fail_msg("does not end in '%s'", end);
}

static void question_is_between_context_and_message_end(void **state) {
    (void)state;
    for (size_t i = 0; ruler_task_at(i); i++) {
        ruler_maker m = maker(ruler_task_at(i), 1200, 2);
        for (int in_chat = 0; in_chat < 2; in_chat++) {
            m.writer = in_chat ? &chat : &plain;
            ruler_prompt p = make(&m, 0);
            const written_prompt *w = &p.written;
            char *context = text_of(&w->ids, 0, w->n_context);
            char *question = text_of(&w->ids, w->n_context, w->n_question);
            char *rest = text_of(&w->ids, w->n_question, w->ids.n);
            char expected[256];
            assert_ends(context, p.text.context.data);
            assert_string_equal(question, p.text.question.data);
            snprintf(expected, sizeof expected, "%s%s", in_chat ? "</turn><turn>assistant: " : "",
                     p.text.answer_prefix.data);
            assert_string_equal(rest, expected);
            if (in_chat) assert_int_equal(strncmp(context, "<turn>user: ", 12), 0);
            free(context);
            free(question);
            free(rest);
            ruler_prompt_free(&p);
        }
    }
}

/* ---- scores ---- */

static void score_is_share_of_named_references(void **state) {
    (void)state;
    const char *const references[] = {"1234567", "Blue-Door", "x"};
    assert_true(ruler_score("it is 1234567 and the BLUE-door.", references, 2) == 1);
    assert_true(ruler_score("1234567, 1234567", references, 2) == 0.5);
    assert_true(ruler_score("123456, 234567", references, 2) == 0);
    assert_true(ruler_score("", references, 3) == 0);
    assert_true(fabs(ruler_score("ax", references, 3) - 1.0 / 3) < 1e-12);
}

static void compares_scores_of_equal_prompts(void **state) {
    (void)state;
    enum { PROMPTS = 50 };
    double full[PROMPTS], reduced[PROMPTS], none[PROMPTS] = {0};
    for (size_t i = 0; i < PROMPTS; i++) full[i] = i % 10 ? 1 : 0;
    memcpy(reduced, full, sizeof full);
    paired_scores p = ruler_compare(full, reduced, PROMPTS);
    /* Both settings lose nothing on any prompt, although scores differ between prompts. */
    assert_true(p.difference.low == 0 && p.difference.mean == 0 && p.difference.high == 0);
    assert_true(p.ratio.low == 1 && p.ratio.mean == 1 && p.ratio.high == 1);
    for (size_t i = 1; i < PROMPTS; i += 5) reduced[i] = 0;
    p = ruler_compare(full, reduced, PROMPTS);
    assert_true(fabs(p.difference.mean + 0.2) < 1e-12);
    assert_true(fabs(p.ratio.mean - 35.0 / 45) < 1e-12);
    /* A share of 0.2 of 50 has the standard error sqrt(0.2 * 0.8 / 50) = 0.057. */
    assert_true(fabs(p.difference.low + 0.2 + 1.96 * 0.0566) < 0.03);
    assert_true(fabs(p.difference.high + 0.2 - 1.96 * 0.0566) < 0.03);
    assert_true(p.ratio.low < p.ratio.mean && p.ratio.mean < p.ratio.high);
    const paired_scores again = ruler_compare(full, reduced, PROMPTS);
    assert_true(again.ratio.low == p.ratio.low && again.ratio.high == p.ratio.high);
    p = ruler_compare(none, reduced, PROMPTS);
    assert_true(isnan(p.ratio.mean) && isnan(p.ratio.low) && isnan(p.ratio.high));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_depend_only_on_seed_task_and_number),
        cmocka_unit_test(prompts_have_maximum_length),
        cmocka_unit_test(context_has_answer_without_question),
        cmocka_unit_test(context_has_number_of_needles_of_task),
        cmocka_unit_test(needles_have_all_depths),
        cmocka_unit_test(uses_given_essay_as_haystack),
        cmocka_unit_test(chain_links_value_to_each_variable),
        cmocka_unit_test(references_are_the_most_frequent_words),
        cmocka_unit_test(question_is_between_context_and_message_end),
        cmocka_unit_test(score_is_share_of_named_references),
        cmocka_unit_test(compares_scores_of_equal_prompts),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
