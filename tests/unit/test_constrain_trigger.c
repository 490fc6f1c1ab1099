/* SPDX-License-Identifier: Apache-2.0 */
/* Triggers: a text is free until a mark, then constrained, then free again, wherever tokens end. */
#include "constrain/constraint.h"
#include "constrain_texts.h"
#include "text/sampler_top.h"

#include <time.h>

/* A mark, a start, reasoning, and a text that may precede a start. */
static const char grammar[] =
    "%trigger {\"anywhere\": [\"\\\"the\\\"\", \"<[4095]>\"],\n"
    "  \"before\": [\"\\\"```\\\"\", \"\\\"```json\\\"\", \"\\\",\\\"\"],\n"
    "  \"starts\": [[\"{\", \"\\\"name\\\"\", \":\", \"\\\"go\\\"\"], [\"[\", \"go(\"]],\n"
    "  \"reasoning_open\": [\"\\\"<th>\\\"\"], \"reasoning_close\": [\"\\\"</th>\\\"\"]}\n"
    "root ::= (\"the\" | <[4095]>) \" \" (\"king\" | \"queen\" | [0-9]+ \"th day\") \".\" |\n"
    "  %json {\"properties\": {\"name\": {\"const\": \"go\"}, \"n\": {\"type\": \"integer\"}},"
    " \"required\": [\"name\", \"n\"], \"additionalProperties\": false} | \"[go(\" [0-9] \")]\"";

static ag_constraint *lazy_constraint(const char *text) {
    const ag_constraint_params p = texts_params(AG_CONSTRAINT_GRAMMAR, text);
    return texts_create(&p);
}

/* ---- byte by byte ---- */

static const char *const free_texts[] = {
    "",
    "a king",
    "th",
    "t he",
    "a {\"name\": \"go\", \"x",
    "{\"name\": \"stop\", \"n\": 1",
    "{  \"name\": \"go\", \"x",
    "<th>the cat, {\"name\": \"go\"",
    "<th>the</th>a cat",
    " <th>the</th> <th>a cat",
    "the king.",
    "a the 12th day. cat",
    "{\"name\": \"go\", \"n\": 1} cat",
    "```json\n{\"name\":\"go\",\"n\":2}\n``` cat",
    "{\"name\":\"go\",\"n\":1}, {\"name\":\"go\",\"n\":2} cat",
    "[go(7)] cat",
    "<th>x</th>\n{\"name\":\"go\",\"n\":1}",
};
static const char *const constrained_texts[] = {
    "the",
    "a the",
    "tthe k",
    "the king. the queen",
    "<th>the</th>the",
    "<th>the</th> {\"name\": \"go\"",
    "a <th>the",
    "{\"name\":\n    \"go\", ",
    "```{\"name\":\"go\"",
    "the king.{\"name\":\"go\"",
    "{\"name\":\"go\",\"n\":1}, {\"name\":\"go\",\"n\"",
    "[go(",
};
/* The last byte is rejected. */
static const char *const rejected_texts[] = {
    "thee", "the b", "a the king,", "{\"name\": \"go\"}", "{\"name\": \"go\", \"m", "[go(x",
};

static bool accept_bytes(ag_constraint *c, const char *text, size_t n) {
    ag_error err;
    assert_int_equal(ag_constraint_reset(c, &err), AG_OK);
    for (size_t i = 0; i < n; i++) {
        if (ag_constraint_accept(c, texts_byte_id((unsigned char)text[i]), &err) != AG_OK)
            return false;
    }
    return true;
}

static void constrains_from_the_mark_to_the_end(void **state) {
    ag_constraint *c = lazy_constraint(grammar);
    (void)state;
    for (size_t i = 0; i < sizeof free_texts / sizeof *free_texts; i++) {
        const char *s = free_texts[i];
        if (!accept_bytes(c, s, strlen(s)) || !ag_constraint_is_free(c)) fail_msg("%s", s);
        assert_true(ag_constraint_may_end(c));
    }
    for (size_t i = 0; i < sizeof constrained_texts / sizeof *constrained_texts; i++) {
        const char *s = constrained_texts[i];
        if (!accept_bytes(c, s, strlen(s)) || ag_constraint_is_free(c)) fail_msg("%s", s);
        assert_false(ag_constraint_may_end(c));
        texts_check_mask(c);
    }
    for (size_t i = 0; i < sizeof rejected_texts / sizeof *rejected_texts; i++) {
        const char *s = rejected_texts[i];
        if (!accept_bytes(c, s, strlen(s) - 1) || accept_bytes(c, s, strlen(s))) fail_msg("%s", s);
    }
    ag_constraint_destroy(c);
}

/* ---- tokens that cross a border ---- */

static const char *const pieces[] = {"the", " the", "there", " they", "th",  "he",  " king",
                                     ".",   "{",    "\"",    "name",  "\":", "go",  "\",",
                                     " ",   "n",    ":",     "1",     "}",   "<",   "</",
                                     ">",   "day",  "\n",    "12",    "[",   "go(", ")",
                                     "a",   "```",  "json",  "t",     "h",   "e",   "queen"};

static uint32_t next_random(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Returns a token that is often near a border. */
static int32_t random_token(uint32_t *seed) {
    ag_ids ids = {0};
    const int32_t any = (int32_t)(next_random(seed) % 4090);
    if (next_random(seed) % 4 == 0 && any != texts_byte_id(0xFF)) return any;
    const char *s = pieces[next_random(seed) % (sizeof pieces / sizeof *pieces)];
    assert_int_equal(ag_tokenizer_encode(texts_tokenizer, s, strlen(s), 0, &ids, NULL), AG_OK);
    const int32_t id = ids.data[next_random(seed) % ids.n];
    ag_ids_free(&ids);
    return id;
}

/* Accepts the token's bytes one by one. *ends_inside: a constrained part has ended before the last
 * one. */
static bool accept_slowly(ag_constraint *c, int32_t id, bool *ends_inside) {
    const ag_token_tree *t = &c->program->vocab->tree;
    bool was_free = ag_constraint_is_free(c);
    *ends_inside = false;
    for (uint32_t i = t->start[id]; i < t->start[id + 1]; i++) {
        if (ag_constraint_accept(c, texts_byte_id(t->bytes[i]), NULL) != AG_OK) return false;
        if (!was_free && ag_constraint_is_free(c) && i + 1 < t->start[id + 1]) *ends_inside = true;
        was_free = ag_constraint_is_free(c);
    }
    return true;
}

/* The border may be inside a token: what a token may do does not depend on its bytes' tokens. */
static void tokens_are_judged_by_their_bytes(void **state) {
    size_t n_rejected = 0, n_constrained = 0;
    (void)state;
    ag_constraint *start = lazy_constraint(grammar);
    for (uint32_t seed = 1; seed < 150; seed++) {
        ag_constraint *c, *slow;
        uint32_t random = seed;
        assert_int_equal(ag_constraint_clone(start, &c, NULL), AG_OK);
        for (int i = 0; i < 60; i++) {
            bool ends_inside;
            const int32_t id = random_token(&random);
            assert_int_equal(ag_constraint_clone(c, &slow, NULL), AG_OK);
            const bool may = accept_slowly(slow, id, &ends_inside) && !ends_inside;
            assert_int_equal(ag_constraint_accept(c, id, NULL) == AG_OK, may);
            if (may) assert_int_equal(ag_constraint_is_free(c), ag_constraint_is_free(slow));
            n_rejected += !may;
            n_constrained += !ag_constraint_is_free(c);
            ag_constraint_destroy(slow);
        }
        ag_constraint_destroy(c);
    }
    ag_constraint_destroy(start);
    assert_true(n_rejected > 500 && n_constrained > 500);
}

/* ---- masks ---- */

static int32_t token(const char *s) {
    ag_ids ids = {0};
    assert_int_equal(ag_tokenizer_encode(texts_tokenizer, s, strlen(s), 0, &ids, NULL), AG_OK);
    if (ids.n != 1) fail_msg("'%s' is %zu tokens", s, ids.n);
    const int32_t id = ids.data[0];
    ag_ids_free(&ids);
    return id;
}

static void free_text_has_no_mask(void **state) {
    ag_constraint *c = lazy_constraint(grammar), *copy;
    const uint32_t *mask;
    ag_text forced = {0};
    (void)state;
    assert_int_equal(ag_constraint_mask(c, &mask, NULL), AG_OK);
    assert_null(mask);
    assert_int_equal(ag_constraint_forced_text(c, 10, &forced, NULL), AG_OK);
    assert_int_equal(forced.len, 0);
    /* A rejected token is left out until the text continues. */
    assert_int_equal(ag_constraint_accept(c, token(" there"), NULL), AG_INVALID);
    assert_int_equal(ag_constraint_mask(c, &mask, NULL), AG_OK);
    assert_non_null(mask);
    assert_int_equal(ag_constraint_clone(c, &copy, NULL), AG_OK);
    for (int32_t id = 0; id < 4096; id++) {
        assert_int_equal(texts_allows(c, id), id != token(" there"));
        assert_int_equal(texts_allows(copy, id), id != token(" there"));
    }
    ag_constraint_destroy(copy);
    assert_int_equal(ag_constraint_accept(c, token(" a"), NULL), AG_OK);
    assert_int_equal(ag_constraint_mask(c, &mask, NULL), AG_OK);
    assert_null(mask);
    /* A special token is a mark too. */
    assert_int_equal(ag_constraint_accept(c, 4095, NULL), AG_OK);
    assert_int_equal(ag_constraint_forced_text(c, 10, &forced, NULL), AG_OK);
    assert_string_equal(forced.data, " ");
    assert_false(texts_allows(c, DEMO_EOS));
    assert_int_equal(ag_constraint_reset(c, NULL), AG_OK);
    assert_int_equal(ag_constraint_accept(c, DEMO_EOS, NULL), AG_OK);
    assert_true(ag_constraint_has_ended(c));
    assert_true(texts_allows(c, DEMO_EOS));
    assert_false(texts_allows(c, token(" a")));
    ag_text_free(&forced);
    ag_constraint_destroy(c);
}

/* The best tokens would begin a constrained part with a wrong text. */
static void samplers_skip_tokens_that_begin_wrongly(void **state) {
    static float logits[4096];
    ag_sampler_params params = ag_sampler_defaults();
    ag_constraint *c = lazy_constraint(grammar);
    ag_sampler *s;
    int32_t id, ids[8];
    size_t n_ids, k;
    const uint32_t *mask;
    (void)state;
    params.temperature = 0;
    params.repetition_penalty = 1;
    assert_int_equal(ag_sampler_create(&params, 4096, &s, NULL), AG_OK);
    assert_int_equal(ag_sampler_constrain(s, c, NULL), AG_OK);
    logits[token(" there")] = 5;
    logits[token(" they")] = 4;
    logits[token(" the")] = 3;
    logits[token(" a")] = 2;
    /* Free text has no mask. */
    assert_true(ag_sampler_is_free(s));
    assert_true(ag_sampler_top_k(s, &mask, ids, 8, &n_ids, 8, &k));
    assert_null(mask);
    const int32_t best[] = {token(" there")};
    const float best_logits[] = {5};
    const ag_top_logits top = {.best_ids = best, .best = best_logits, .n_best = 1, .bad = SIZE_MAX};
    assert_int_equal(ag_sampler_sample_top(s, &top, &id, NULL), AG_OK);
    assert_int_equal(id, -1);
    assert_false(ag_sampler_is_free(s));
    assert_true(ag_sampler_top_k(s, &mask, ids, 8, &n_ids, 8, &k));
    assert_int_equal(k, 1);
    for (int32_t i = 0; i < 4096; i++)
        assert_int_equal(mask[i / 32] >> (i % 32) & 1, i != token(" there"));
    assert_int_equal(ag_sampler_sample(s, logits, &id, NULL), AG_OK);
    assert_int_equal(id, token(" the"));
    ag_sampler_accept(s, id);
    assert_false(ag_constraint_is_free(c));
    logits[token(" king")] = 1;
    assert_int_equal(ag_sampler_sample(s, logits, &id, NULL), AG_OK);
    assert_int_equal(id, token(" king"));
    ag_sampler_destroy(s);
    ag_constraint_destroy(c);
}

/* ---- limits ---- */

/* Appends a quoted literal for each of n texts of a letter and a number. */
static size_t add_literals(char *out, size_t size, char letter, size_t n, bool quoted) {
    size_t len = 0;
    for (size_t i = 0; i < n; i++)
        len += (size_t)snprintf(out + len, size - len,
                                quoted ? "%s\"\\\"%c%zu\\\"\"" : "%s[\"%c%zu\"]", i ? "," : "",
                                letter, i);
    return len;
}

/* Rejected tokens cost a choice each, so their number at a position is limited. */
static void limits_the_tokens_rejected_at_a_position(void **state) {
    static char text[4096];
    size_t n = (size_t)snprintf(text, sizeof text, "%%trigger {\"anywhere\": [\"\\\" \\\"\"");
    for (char c = 'a'; c <= 'z'; c++)
        n += (size_t)snprintf(text + n, sizeof text - n, ",\"\\\"%c\\\"\"", c);
    snprintf(text + n, sizeof text - n, "]}\nroot ::= \"\\x01\\x01\"");
    ag_constraint *c = lazy_constraint(text);
    ag_status st = AG_OK;
    ag_error err;
    size_t n_rejected = 0;
    (void)state;
    for (int32_t id = 0; id < 4096 && st != AG_LIMIT; id++) {
        size_t len, k = 0;
        const char *token = ag_tokenizer_token(texts_tokenizer, id, &len);
        while (k < len && (token[k] < 'a' || token[k] > 'z')) k++;
        if (k == len || ag_tokenizer_is_special(texts_tokenizer, id)) continue;
        st = ag_constraint_accept(c, id, &err);
        if (st == AG_OK) fail_msg("token %d: %.*s", (int)id, (int)len, token);
        n_rejected += st == AG_INVALID;
    }
    assert_int_equal(st, AG_LIMIT);
    assert_int_equal(n_rejected, 1024);
    assert_non_null(strstr(err.msg, "rejected more than 1024 tokens"));
    ag_constraint_destroy(c);
}

static double cpu_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Texts before a start are read once. Reading them again for each byte takes a hundred times as
 * long. */
static void reads_texts_before_a_start_once(void **state) {
    static char text[1 << 16];
    size_t n = (size_t)snprintf(text, sizeof text, "%%trigger {\"before\": [\"\\\"a\\\"\",");
    n += add_literals(text + n, sizeof text - n, 'b', 2047, true);
    n += (size_t)snprintf(text + n, sizeof text - n, "], \"starts\": [");
    n += add_literals(text + n, sizeof text - n, 'c', 2048, false);
    snprintf(text + n, sizeof text - n, "]}\nroot ::= \"c\" [0-9]+ \".\"");
    ag_constraint *c = lazy_constraint(text);
    ag_error err;
    (void)state;
    const double begin = cpu_seconds();
    for (size_t i = 0; i < 4000; i++)
        assert_int_equal(ag_constraint_accept(c, texts_byte_id('a'), &err), AG_OK);
    const double seconds = cpu_seconds() - begin;
    assert_true(accept_bytes(c, "aaac7", 5) && !ag_constraint_is_free(c));
    /* With work for each pair of bytes it was a minute, on a processor that needs 0.2 s now. */
    if (seconds > 20) fail_msg("4000 texts before a start: %.1f s", seconds);
    ag_constraint_destroy(c);
}

/* ---- errors ---- */

static void rejects_triggers_that_are_wrong(void **state) {
    static const struct {
        const char *grammar, *message;
    } bad[] = {
        {"%trigger {}\nroot ::= \"a\"", "neither \"anywhere\" nor \"starts\""},
        {"%trigger [1]\nroot ::= \"a\"", "not a JSON object"},
        {"%trigger {\nroot ::= \"a\"", "expected JSON after %trigger"},
        {"%trigger {\"anywhere\": [\"a\"]}\nroot ::= \"a\"", "expected literals and tokens"},
        {"%trigger {\"anywhere\": [\"\\\"\\\"\"]}\nroot ::= \"a\"", "a text is empty"},
        {"%trigger {\"anywhere\": [\"<[7]>\"]}\nroot ::= \"a\"", "token 7"},
        {"%trigger {\"starts\": [[]]}\nroot ::= \"a\"", "a start is empty"},
        {"%trigger {\"starts\": [[1]]}\nroot ::= \"a\"", "a text is empty"},
        {"%trigger {\"anywhere\": [\"\\\"a\\\"\"]}\n%trigger {\"anywhere\": [\"\\\"a\\\"\"]}\nroot "
         "::= "
         "\"a\"",
         "the only %trigger"},
        {"%trigger {\"anywhere\": [\"\\\"a\\\"\"]}", "rule root is not defined"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const ag_constraint_params p = texts_params(AG_CONSTRAINT_GRAMMAR, bad[i].grammar);
        ag_constraint *c;
        ag_error err = {.msg = ""};
        assert_int_not_equal(ag_constraint_create(texts_vocab, &p, &c, &err), AG_OK);
        if (!strstr(err.msg, bad[i].message)) fail_msg("%s: %s", bad[i].grammar, err.msg);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constrains_from_the_mark_to_the_end),
        cmocka_unit_test(tokens_are_judged_by_their_bytes),
        cmocka_unit_test(free_text_has_no_mask),
        cmocka_unit_test(samplers_skip_tokens_that_begin_wrongly),
        cmocka_unit_test(limits_the_tokens_rejected_at_a_position),
        cmocka_unit_test(reads_texts_before_a_start_once),
        cmocka_unit_test(rejects_triggers_that_are_wrong),
    };
    return cmocka_run_group_tests(tests, texts_setup, texts_teardown);
}
