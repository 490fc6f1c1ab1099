/* SPDX-License-Identifier: Apache-2.0 */
#include "session/ngram_lookup.h"

#include <antigravity/alloc.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ag_ngram_lookup *make(size_t n_tokens) {
    ag_ngram_lookup *l;
    ag_error err;
    assert_int_equal(ag_ngram_lookup_create(n_tokens, &l, &err), AG_OK);
    return l;
}

/* Pushes a token per letter. */
static void push_text(ag_ngram_lookup *l, const char *text) {
    for (; *text; text++) ag_ngram_lookup_push(l, *text);
}

static void expect(const ag_ngram_lookup *l, size_t match, const char *draft) {
    int32_t ids[64];
    const size_t n = strlen(draft);
    assert_int_equal(ag_ngram_lookup_match(l), match);
    assert_int_equal(ag_ngram_lookup_draft(l, ids, n ? n : 1), n);
    for (size_t i = 0; i < n; i++) assert_int_equal(ids[i], draft[i]);
}

static void finds_an_earlier_occurrence(void **state) {
    (void)state;
    ag_ngram_lookup *l = make(100);
    expect(l, 0, "");
    push_text(l, "int first = one; int");
    expect(l, 3, " fir");
    push_text(l, " second = two; int");
    expect(l, 5, " second");
    push_text(l, " f");
    expect(l, 5, "irst = one; ");
    push_text(l, "X"); /* no earlier occurrence continued like this */
    expect(l, 0, "");
    ag_ngram_lookup_destroy(l);
}

static void does_not_draft_after_a_one_token_match(void **state) {
    (void)state;
    ag_ngram_lookup *l = make(100);
    push_text(l, "abcdefa");
    expect(l, 0, "");
    push_text(l, "b");
    expect(l, 2, "cdef");
    ag_ngram_lookup_destroy(l);
}

/* The longest of several matches is used. */
static void prefers_the_longer_match(void **state) {
    (void)state;
    ag_ngram_lookup *l = make(100);
    push_text(l, "wxyz1 yz2 ");
    push_text(l, "wxyz");
    expect(l, 4, "1 yz2 ");
    ag_ngram_lookup_destroy(l);
}

/* The match resumes after a replaced word, not where its neighbours last occurred. */
static void resumes_an_interrupted_match(void **state) {
    (void)state;
    ag_ngram_lookup *l = make(200);
    push_text(l, "for (i = 0; i < n; i++) total(i); while (i < k) loop(i); ");
    push_text(l, "for (i = 0; i < m");
    expect(l, 0, "");
    push_text(l, "; ");
    expect(l, 2, "i++) total(i); while");
    ag_ngram_lookup_destroy(l);
}

static void draft_of_a_loop_repeats_it(void **state) {
    (void)state;
    ag_ngram_lookup *l = make(100);
    push_text(l, "abcabc");
    expect(l, 3, "abcabcabcabcab");
    push_text(l, "zzz");
    expect(l, 2, "zzzzzzz");
    ag_ngram_lookup_destroy(l);
}

static void pop_removes_tokens_from_matches(void **state) {
    (void)state;
    ag_ngram_lookup *l = make(100);
    push_text(l, "red green blue ");
    ag_ngram_lookup_pop(l, 5);
    push_text(l, "coat ");
    expect(l, 0, "");
    push_text(l, "co");
    expect(l, 3, "at co");
    ag_ngram_lookup_pop(l, 1000);
    expect(l, 0, "");
    push_text(l, "gr");
    expect(l, 0, "");
    ag_ngram_lookup_destroy(l);
}

static void unknown_token_ends_a_match(void **state) {
    (void)state;
    ag_ngram_lookup *l = make(100);
    push_text(l, "abcd");
    ag_ngram_lookup_push(l, -1);
    push_text(l, "xabcd");
    int32_t ids[4];
    assert_int_equal(ag_ngram_lookup_match(l), 4);
    assert_int_equal(ag_ngram_lookup_draft(l, ids, 4), 0); /* the next token is unknown */
    ag_ngram_lookup_push(l, -1);
    assert_int_equal(ag_ngram_lookup_match(l), 0);
    ag_ngram_lookup_push(l, 'x');
    assert_int_equal(ag_ngram_lookup_match(l), 0);
    ag_ngram_lookup_destroy(l);
}

/* Returns the longest match in the stored tokens, by exhaustive search. The tables find matches of
 * at least 2 tokens. */
static size_t longest_before(const int32_t *ids, size_t n, size_t remembered) {
    size_t best = 0;
    for (size_t end = n > remembered ? n - remembered + 1 : 1; end < n; end++) {
        size_t match = 0;
        while (match < end && match < AG_NGRAM_LOOKUP_MATCH_MAX &&
               ids[end - 1 - match] == ids[n - 1 - match])
            match++;
        if (match > best) best = match;
    }
    return best;
}

/* The text is far longer than the stored part: every draft still follows a match. */
static void memory_is_bounded(void **state) {
    (void)state;
    enum { N = 20000, REMEMBERED = 256 };
    static int32_t ids[N];
    ag_ngram_lookup *l = make(REMEMBERED);
    const size_t before = ag_allocation_count();
    size_t n_found = 0, n_missed = 0;
    srand(5);
    for (size_t i = 0; i < N; i++) {
        const size_t back = 1 + (size_t)rand() % 300;
        ids[i] = i > 300 && rand() % 12 ? ids[i - 1 - back % 40] : rand() % 50;
        if (rand() % 3 && i > 200) ids[i] = ids[i - 97];
        ag_ngram_lookup_push(l, ids[i]);
        const size_t match = ag_ngram_lookup_match(l);
        const size_t most = longest_before(ids, i + 1, REMEMBERED);
        assert_true(match <= most);
        n_found += match >= 2;
        n_missed += most >= 4 && !match; /* only by collisions in the tables */
    }
    assert_true(n_found > N / 4);
    assert_true(n_missed < n_found / 4);
    assert_int_equal(ag_allocation_count() - before, 0);
    ag_ngram_lookup_destroy(l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_an_earlier_occurrence),
        cmocka_unit_test(does_not_draft_after_a_one_token_match),
        cmocka_unit_test(prefers_the_longer_match),
        cmocka_unit_test(resumes_an_interrupted_match),
        cmocka_unit_test(draft_of_a_loop_repeats_it),
        cmocka_unit_test(pop_removes_tokens_from_matches),
        cmocka_unit_test(unknown_token_ends_a_match),
        cmocka_unit_test(memory_is_bounded),
    };
    return cmocka_run_group_tests_name("lookup", tests, NULL, NULL);
}
