/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets of a constraint: steps for one token, steps for all tokens of all texts, and the mask
 * cache, which saves texts from paying again for a mask or a failure. */
#include "constrain_texts.h"

#include "constrain/constraint.h"

enum { WORDS = 4096 / 32 };

/* Each character multiplies the readings of the text. */
static const char ambiguous[] = "root ::= s+\ns ::= [a-z ]+ | [a-z ]+ s | [a-z ]* [a-z ]*";
static const char nested[] =
    "root ::= (expr \"=\" ws term \"\\n\")+\nexpr ::= term ([-+*/] term)*\n"
    "term ::= ident | num | \"(\" ws expr \")\" ws\nident ::= [a-z] [a-z0-9_]* ws\n"
    "num ::= [0-9]+ ws\nws ::= [ \\t\\n]*";
static const char listed[] =
    "{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":"
    "\"string\",\"maxLength\":9},\"kind\":{\"enum\":[\"alpha\",\"beta\"]}}}}";

static ag_constraint *create(ag_constraint_kind kind, const char *text, size_t max_work) {
    ag_constraint_params p = texts_params(kind, text);
    if (max_work) p.max_work = max_work;
    return texts_create(&p);
}

static ag_constraint *fork_of(const ag_constraint *c) {
    ag_constraint *copy;
    ag_error err;
    assert_int_equal(ag_constraint_clone(c, &copy, &err), AG_OK);
    return copy;
}

static ag_status accept_byte(ag_constraint *c, char byte, ag_error *err) {
    return ag_constraint_accept(c, texts_byte_id((unsigned char)byte), err);
}

/* Accepts the text byte by byte until a mask fails. Returns the number of bytes accepted. */
static size_t accept_until_failure(ag_constraint *c, const char *text, ag_error *err) {
    const uint32_t *mask;
    for (size_t i = 0; text[i]; i++) {
        if (ag_constraint_mask(c, &mask, err) != AG_OK) return i;
        assert_int_equal(accept_byte(c, text[i], err), AG_OK);
    }
    fail_msg("no mask failed");
    return 0;
}

static void expect_message(const ag_error *err, const char *message) {
    assert_int_equal(err->status, AG_LIMIT);
    if (!strstr(err->msg, message)) fail_msg("%s", err->msg);
}

/* ---- one token ---- */

static void limits_steps_per_token(void **state) {
    ag_constraint *c = create(AG_CONSTRAINT_GRAMMAR, ambiguous, 0);
    ag_error err;
    (void)state;
    const size_t n = accept_until_failure(c, "some words of a text", &err);
    assert_in_range(n, 1, 19);
    expect_message(&err, "one token needs more than 16777216 steps");
    ag_constraint_destroy(c);
}

/* Accepting a token and making the next mask count together. */
static void counts_accept_and_mask_as_one_token(void **state) {
    const uint32_t *mask;
    ag_error err;
    (void)state;
    ag_constraint *c = create(AG_CONSTRAINT_GRAMMAR, ambiguous, 0);
    assert_int_equal(ag_constraint_mask(c, &mask, &err), AG_OK);
    const size_t before = ag_constraint_steps(c);
    assert_int_equal(accept_byte(c, 'a', &err), AG_OK);
    const size_t accepted = ag_constraint_steps(c) - before;
    assert_int_equal(ag_constraint_mask(c, &mask, &err), AG_OK);
    const size_t both = ag_constraint_steps(c) - before;
    ag_constraint_destroy(c);
    assert_true(accepted > 0);
    assert_true(both > accepted);
    for (int fits = 0; fits < 2; fits++) {
        c = create(AG_CONSTRAINT_GRAMMAR, ambiguous, both - 1 + (size_t)fits);
        assert_int_equal(ag_constraint_mask(c, &mask, &err), AG_OK);
        assert_int_equal(accept_byte(c, 'a', &err), AG_OK);
        assert_int_equal(ag_constraint_mask(c, &mask, &err), fits ? AG_OK : AG_LIMIT);
        ag_constraint_destroy(c);
    }
}

/* ---- failures ---- */

static void caches_failed_masks(void **state) {
    ag_constraint *first = create(AG_CONSTRAINT_GRAMMAR, ambiguous, 1 << 19);
    const uint32_t *mask;
    ag_error err, again;
    (void)state;
    ag_constraint *second = fork_of(first); /* gets another text that leads to the same state */
    const size_t n = accept_until_failure(first, "ababababababababab", &err);
    expect_message(&err, "one token needs more than 524288 steps");
    const size_t steps = ag_constraint_steps(first);

    assert_int_equal(ag_constraint_mask(first, &mask, &again), AG_LIMIT);
    assert_string_equal(again.msg, err.msg);
    ag_constraint *third = fork_of(first);
    assert_int_equal(ag_constraint_mask(third, &mask, &again), AG_LIMIT);
    assert_string_equal(again.msg, err.msg);
    assert_int_equal(ag_constraint_steps(first), steps);

    for (size_t i = 0; i < n; i++)
        assert_int_equal(accept_byte(second, "xy zxy zxy zxy zxy z"[i], &again), AG_OK);
    const size_t accepted = ag_constraint_steps(second);
    assert_int_equal(ag_constraint_mask(second, &mask, &again), AG_LIMIT);
    assert_string_equal(again.msg, err.msg);
    assert_int_equal(ag_constraint_steps(second), accepted);
    ag_constraint_destroy(first);
    ag_constraint_destroy(second);
    ag_constraint_destroy(third);
}

/* The mask of this state is too expensive after any text. */
static void caches_failed_states_across_texts(void **state) {
    const uint32_t *mask;
    ag_error err;
    (void)state;
    /* "x" and "yy" lead to one state of the rule, with stacks that differ. */
    ag_constraint *c = create(AG_CONSTRAINT_GRAMMAR,
                              "root ::= a | b\na ::= \"x\" s \"1\"\nb ::= \"yy\" s \"2\"\n"
                              "s ::= \"-\" [a-z0-9 ]*",
                              1000);
    ag_constraint *other = fork_of(c);
    assert_int_equal(accept_byte(c, 'x', &err), AG_OK);
    assert_int_equal(accept_byte(c, '-', &err), AG_OK);
    assert_int_equal(ag_constraint_mask(c, &mask, &err), AG_LIMIT);
    assert_int_equal(accept_byte(other, 'y', &err), AG_OK);
    assert_int_equal(accept_byte(other, 'y', &err), AG_OK);
    assert_int_equal(accept_byte(other, '-', &err), AG_OK);
    const size_t steps = ag_constraint_steps(c);
    assert_int_equal(ag_constraint_mask(other, &mask, &err), AG_LIMIT);
    assert_in_range(ag_constraint_steps(c) - steps, 0, 10);
    ag_constraint_destroy(c);
    ag_constraint_destroy(other);
}

/* ---- all tokens ---- */

static void limits_steps_of_all_texts(void **state) {
    enum { WORK = 1 << 15 };
    ag_constraint *c = create(AG_CONSTRAINT_REGEX, "([A-Z][a-z]+ ){1,60}", WORK);
    size_t n_texts = 0, n_tokens = 0;
    const uint32_t *mask;
    ag_error err;
    ag_status st = AG_OK;
    (void)state;
    for (; st == AG_OK && n_texts < 1000; n_texts++) {
        ag_constraint *text = fork_of(c);
        uint64_t seed = n_texts;
        for (size_t i = 0; i < 60 && st == AG_OK; i++) {
            st = ag_constraint_mask(text, &mask, &err);
            int32_t allowed[4096], n = 0;
            for (int32_t id = 0; st == AG_OK && id < 4096; id++)
                if (id != DEMO_EOS && mask[id / 32] >> (id % 32) & 1) allowed[n++] = id;
            if (!n) break;
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            st = ag_constraint_accept(text, allowed[(seed >> 33) % (uint64_t)n], &err);
            n_tokens += st == AG_OK;
        }
        ag_constraint_destroy(text);
    }
    assert_int_equal(st, AG_LIMIT);
    expect_message(&err, "all tokens together need more than 262144 steps");
    assert_true(n_texts > 2 && n_tokens > 100);
    assert_in_range(ag_constraint_steps(c), 8 * WORK + 1, 9 * WORK);
    assert_int_equal(ag_constraint_reset(c, &err), AG_OK); /* resets the count */
    assert_int_equal(ag_constraint_mask(c, &mask, &err), AG_OK);
    ag_constraint_destroy(c);
}

static void excludes_drafts_from_steps(void **state) {
    ag_constraint *c = create(AG_CONSTRAINT_JSON_SCHEMA, listed, 0);
    ag_ids ids = {0};
    ag_error err;
    (void)state;
    assert_int_equal(accept_byte(c, '[', &err), AG_OK);
    assert_int_equal(accept_byte(c, '{', &err), AG_OK);
    const size_t steps = ag_constraint_steps(c);
    assert_int_equal(ag_constraint_forced(c, 8, &ids, &err), AG_OK);
    assert_int_equal(ag_constraint_steps(c), steps);
    ag_ids_free(&ids);
    ag_constraint_destroy(c);
}

/* ---- the cache ---- */

static void clones_share_expensive_masks(void **state) {
    ag_constraint *c = create(AG_CONSTRAINT_GRAMMAR, ambiguous, 0), *texts[3];
    const uint32_t *mask;
    uint32_t bits[WORDS];
    ag_error err;
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        texts[i] = fork_of(c);
        assert_int_equal(accept_byte(texts[i], "abz"[i], &err), AG_OK);
    }
    const size_t before = ag_constraint_steps(c);
    assert_int_equal(ag_constraint_mask(texts[0], &mask, &err), AG_OK);
    memcpy(bits, mask, sizeof bits);
    const size_t after = ag_constraint_steps(c);
    assert_true(after - before > AG_MASK_CACHE_FROM);
    for (size_t i = 1; i < 3; i++) {
        assert_int_equal(ag_constraint_mask(texts[i], &mask, &err), AG_OK);
        assert_memory_equal(mask, bits, sizeof bits);
    }
    assert_int_equal(ag_constraint_steps(c), after);
    for (size_t i = 0; i < 3; i++) ag_constraint_destroy(texts[i]);
    ag_constraint_destroy(c);
}

/* Computes the mask of a constraint that has made no other mask. */
static void fresh_mask(ag_constraint_kind kind, const char *text, const int32_t *ids, size_t n,
                       uint32_t bits[WORDS]) {
    ag_constraint *c = create(kind, text, 0);
    const uint32_t *mask;
    ag_error err;
    for (size_t i = 0; i < n; i++) assert_int_equal(ag_constraint_accept(c, ids[i], &err), AG_OK);
    assert_int_equal(ag_constraint_mask(c, &mask, &err), AG_OK);
    memcpy(bits, mask, WORDS * sizeof *bits);
    ag_constraint_destroy(c);
}

static void compare_with_fresh(ag_constraint_kind kind, const char *text) {
    enum { TEXTS = 12, LONGEST = 20 };
    ag_constraint *c = create(kind, text, 0);
    uint64_t seed = 7;
    ag_error err;
    for (int k = 0; k < TEXTS; k++) {
        int32_t ids[LONGEST];
        assert_int_equal(ag_constraint_reset(c, &err), AG_OK);
        for (size_t i = 0; i < LONGEST; i++) {
            const uint32_t *mask;
            uint32_t bits[WORDS];
            int32_t allowed[4096], n = 0;
            assert_int_equal(ag_constraint_mask(c, &mask, &err), AG_OK);
            fresh_mask(kind, text, ids, i, bits);
            assert_memory_equal(mask, bits, sizeof bits);
            for (int32_t id = 0; id < 4096; id++)
                if (id != DEMO_EOS && mask[id / 32] >> (id % 32) & 1) allowed[n++] = id;
            if (!n) break;
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            ids[i] = allowed[(seed >> 33) % (uint64_t)n];
            assert_int_equal(ag_constraint_accept(c, ids[i], &err), AG_OK);
        }
    }
    assert_true(c->program->cache.n > 0);
    ag_constraint_destroy(c);
}

static void cached_masks_equal_fresh_masks(void **state) {
    (void)state;
    compare_with_fresh(AG_CONSTRAINT_GRAMMAR, nested);
    compare_with_fresh(AG_CONSTRAINT_GRAMMAR,
                       "root ::= list\nlist ::= list \",\" item | item\nitem ::= [a-z ]+ | "
                       "\"(\" list \")\" | \"[\" list \"]\"");
}

/* The same rules are open in both texts, but their callers continue differently. */
static void mask_cache_key_includes_callers(void **state) {
    ag_constraint *c = create(AG_CONSTRAINT_GRAMMAR,
                              "root ::= \"1\" s \"=\" | \"2\" s \";\"\ns ::= \"(\" t \")\"\n"
                              "t ::= [a-z ]+ | [a-z ]+ t | [a-z ]* [a-z ]*",
                              0);
    const uint32_t *mask;
    ag_error err;
    (void)state;
    for (int i = 0; i < 4; i++) {
        ag_constraint *text = fork_of(c);
        assert_int_equal(accept_byte(text, i % 2 ? '2' : '1', &err), AG_OK);
        assert_int_equal(accept_byte(text, '(', &err), AG_OK);
        assert_int_equal(accept_byte(text, 'a', &err), AG_OK);
        const size_t steps = ag_constraint_steps(c);
        assert_int_equal(ag_constraint_mask(text, &mask, &err), AG_OK);
        assert_int_equal(ag_constraint_steps(c) == steps, i >= 2);
        if (i < 2) texts_check_mask(text);
        ag_constraint_destroy(text);
    }
    assert_int_equal(c->program->cache.n, 2);
    ag_constraint_destroy(c);
}

/* ---- interrupts ---- */

static int n_checks;
static bool end_at_third(void *user) {
    (void)user;
    return ++n_checks >= 3;
}

static void computes_mask_after_an_interrupt(void **state) {
    ag_constraint *c = create(AG_CONSTRAINT_GRAMMAR, ambiguous, 0);
    const uint32_t *mask;
    ag_error err;
    (void)state;
    assert_int_equal(accept_byte(c, 'a', &err), AG_OK);
    n_checks = 0;
    ag_set_thread_interrupt(end_at_third, NULL);
    assert_int_equal(ag_constraint_mask(c, &mask, &err), AG_CANCELLED);
    ag_set_thread_interrupt(NULL, NULL);
    assert_int_equal(ag_constraint_mask(c, &mask, &err), AG_OK);
    texts_check_mask(c);
    ag_constraint_destroy(c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_steps_per_token),
        cmocka_unit_test(counts_accept_and_mask_as_one_token),
        cmocka_unit_test(caches_failed_masks),
        cmocka_unit_test(caches_failed_states_across_texts),
        cmocka_unit_test(limits_steps_of_all_texts),
        cmocka_unit_test(excludes_drafts_from_steps),
        cmocka_unit_test(clones_share_expensive_masks),
        cmocka_unit_test(cached_masks_equal_fresh_masks),
        cmocka_unit_test(mask_cache_key_includes_callers),
        cmocka_unit_test(computes_mask_after_an_interrupt),
    };
    return cmocka_run_group_tests(tests, texts_setup, texts_teardown);
}
