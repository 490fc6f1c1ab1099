/* SPDX-License-Identifier: Apache-2.0 */
/* Draft lengths on simulated machines with defined step costs: recorded texts are decoded without a
 * model. */
#include "session/speculate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#define REPLAY AG_SOURCE_DIR "/tests/data/replay/"
enum { DRAFT = 7 };

/* Costs of steps of 1 to 8 rows, relative to one row; measured with the shape of Llama 3.2 1B on 2
 * cores. The rows of a mixture read further experts: 4 of 32 each, 80 % of the bytes of a row. */
typedef struct machine {
    const char *name;
    double cost[DRAFT + 1];
    double noise; /* a step takes up to this share longer, and some much longer */
} machine;

static const machine machines[] = {
    {"AMX", {1, 1.06, 1.18, 1.28, 1.33, 1.40, 1.45, 1.50}, 0},
    {"AVX2", {1, 1.48, 1.85, 1.51, 1.98, 2.38, 2.5, 2.6}, 0},
    {"mixture", {1, 1.86, 2.63, 3.32, 3.94, 4.5, 5.0, 5.45}, 0},
    {"mixture, and others at work", {1, 1.86, 2.63, 3.32, 3.94, 4.5, 5.0, 5.45}, 0.5},
    {"bound by arithmetic", {1, 2, 3, 4, 5, 6, 7, 8}, 0},
    {"AMX, and others at work", {1, 1.06, 1.18, 1.28, 1.33, 1.40, 1.45, 1.50}, 0.5},
    {"AVX2, and others at work", {1, 1.48, 1.85, 1.51, 1.98, 2.38, 2.5, 2.6}, 0.5},
};

enum { N_MACHINES = sizeof machines / sizeof *machines };

typedef struct text {
    int32_t prompt[2048], ids[2048];
    size_t n_prompt, n;
} text;

static size_t read_ids(const json_t *root, const char *name, int32_t *ids) {
    const json_t *list = json_object_get(root, name);
    const size_t n = json_array_size(list);
    assert_true(n && n <= 2048);
    for (size_t i = 0; i < n; i++) ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return n;
}

static void read_text(const char *name, text *out) {
    char path[512];
    json_error_t why;
    snprintf(path, sizeof path, REPLAY "%s.json", name);
    json_t *root = json_load_file(path, 0, &why);
    if (!root) fail_msg("%s: %s", path, why.text);
    out->n_prompt = read_ids(root, "prompt_ids", out->prompt);
    out->n = read_ids(root, "ids", out->ids);
    json_decref(root);
}

static double seconds_of(const machine *m, size_t rows) {
    double s = 0.05 * m->cost[rows - 1];
    if (m->noise > 0) {
        s *= 1 + m->noise * rand() / RAND_MAX;
        if (rand() % 20 == 0) s *= 3;
    }
    return s;
}

/* Returns the speedup of decoding the text with drafts, by costs without noise. */
static double gain_of(const machine *m, const text *t) {
    ag_speculation *s;
    ag_error err;
    double time = 0;
    size_t n_drafted = 0, n_accepted = 0;
    assert_int_equal(ag_speculation_create(t->n_prompt + t->n, false, &s, &err), AG_OK);
    for (size_t i = 0; i < t->n_prompt; i++) ag_speculation_push(s, t->prompt[i]);
    ag_speculation_push_chosen(s, t->ids[0]);
    for (size_t at = 1; at < t->n;) {
        int32_t draft[AG_SPECULATE_ROWS];
        size_t most = t->n - at - 1, right = 0;
        if (most > DRAFT) most = DRAFT;
        const size_t n = ag_speculation_draft(s, draft, &(ag_draft_offer){.max = most});
        assert_true(n <= most);
        while (right < n && draft[right] == t->ids[at + right]) right++;
        for (size_t i = 0; i <= right; i++) ag_speculation_push_chosen(s, t->ids[at + i]);
        ag_speculation_update(s, n + 1, right + 1, seconds_of(m, n + 1));
        time += m->cost[n];
        at += right + 1;
        n_drafted += n;
        n_accepted += right;
    }
    ag_speculation_destroy(s);
    const double gain = (double)(t->n - 1) / time;
    printf("  %-26s %5.2f, %zu of %zu\n", m->name, gain, n_accepted, n_drafted);
    return gain;
}

static const double least_gain = 0.97; /* for texts without repetitions */

static void edited_texts_are_faster(void **state) {
    (void)state;
    static const char *const names[] = {"edit-copy", "edit-many", "edit-some"};
    static text t;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        read_text(names[i], &t);
        printf("%s:\n", names[i]);
        for (size_t m = 0; m < N_MACHINES; m++) {
            srand(3);
            const double gain = gain_of(&machines[m], &t);
            const bool cheap = machines[m].cost[DRAFT] < 4, quiet = machines[m].noise == 0;
            if (machines[m].cost[DRAFT] == 5.45) assert_true(gain > 1.1);
            if (cheap) assert_true(gain > (i == 2 ? 1.6 : quiet ? 2.2 : 1.8));
            assert_true(gain > least_gain);
        }
    }
}

static void other_texts_are_not_slower(void **state) {
    (void)state;
    static const char *const names[] = {"code", "explain", "prose"};
    static text t;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        read_text(names[i], &t);
        printf("%s:\n", names[i]);
        for (size_t m = 0; m < N_MACHINES; m++) {
            srand(4);
            assert_true(gain_of(&machines[m], &t) > least_gain);
        }
    }
}

/* Writes phrases of 12 tokens that recur, each time with another continuation. */
static void write_lure(text *out, size_t n) {
    out->n_prompt = 0;
    for (out->n = 0; out->n < n; out->n++) {
        const size_t phrase = out->n / 14 % 3, at = out->n % 14;
        out->ids[out->n] = at < 12 ? (int32_t)(100 * phrase + at) : 1000 + (int32_t)out->n;
    }
    /* After the first round keeps only the ends of phrases: the rest can be drafted. */
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (i < 42 || i % 14 >= 9) out->ids[kept++] = out->ids[i];
    }
    out->n = kept;
}

static void misleading_text_costs_little(void **state) {
    (void)state;
    static text t;
    for (size_t n = 60; n <= 1800; n *= 3) {
        write_lure(&t, n);
        printf("%zu tokens:\n", t.n);
        for (size_t m = 0; m < N_MACHINES; m++) {
            srand(5);
            assert_true(gain_of(&machines[m], &t) >
                        least_gain - 0.01); /* the cost of a step is not measured yet */
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edited_texts_are_faster),
        cmocka_unit_test(other_texts_are_not_slower),
        cmocka_unit_test(misleading_text_costs_little),
    };
    return cmocka_run_group_tests_name("speculate_policy", tests, NULL, NULL);
}
