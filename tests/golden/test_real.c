/* SPDX-License-Identifier: Apache-2.0 */
/* usage: test_real NAME [BACKEND]
 * Runs the texts recorded in tests/data/golden/real/NAME.json through the published model NAME.gguf
 * and compares: with the file's weights dequantised exactly, and as they are in the file. */
#include "logits.h"

#include <antigravity/antigravity.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

static const char *backend_name; /* NULL: the default */
static char model_path[4096];
static json_t *cases;

enum { MAX_IDS = 1024 };

typedef struct text_case {
    const char *name;
    int32_t ids[MAX_IDS];
    size_t n;
    const json_t *json;
} text_case;

static text_case get_case(size_t i) {
    const json_t *json = json_array_get(cases, i), *ids = json_object_get(json, "ids");
    text_case c = {.name = json_string_value(json_object_get(json, "name")), .json = json};
    c.n = json_array_size(ids);
    assert_true(c.n > 1 && c.n <= MAX_IDS);
    for (size_t k = 0; k < c.n; k++) c.ids[k] = (int32_t)json_integer_value(json_array_get(ids, k));
    return c;
}

typedef struct engine {
    ag_backend *backend;
    ag_model *model;
    ag_session *session;
    int32_t n_vocab;
} engine;

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static engine start(ag_dtype weights) {
    engine e = {0};
    ag_error err;
    const ag_backend_params bp = {.name = backend_name};
    must(ag_backend_create(&bp, &e.backend, &err), &err);
    ag_model_params mp = ag_model_defaults();
    mp.weights = weights;
    must(ag_model_load(e.backend, model_path, &mp, &e.model, &err), &err);
    e.n_vocab = (int32_t)ag_model_get_info(e.model)->n_vocab;
    ag_session_params sp = ag_session_defaults();
    sp.max_seq_len = MAX_IDS;
    sp.k_type = sp.v_type = AG_F32;
    must(ag_session_create(e.model, &sp, &e.session, &err), &err);
    return e;
}

static void stop(engine *e) {
    ag_session_destroy(e->session);
    ag_model_destroy(e->model);
    ag_backend_destroy(e->backend);
}

/* ---- logits of every position ---- */

typedef struct reading {
    const text_case *c;
    int32_t n_vocab;
    double sum;            /* sum of nll */
    int32_t best[MAX_IDS]; /* best token at each position */
} reading;

static bool read_row(void *user, size_t i, const float *logits) {
    reading *r = user;
    r->best[i] = argmax(logits, r->n_vocab);
    if (i + 1 < r->c->n) r->sum += nll_of(logits, r->n_vocab, r->c->ids[i + 1]);
    return true;
}

static void read_case(engine *e, const text_case *c, reading *r) {
    ag_error err;
    *r = (reading){.c = c, .n_vocab = e->n_vocab};
    ag_session_reset(e->session);
    must(ag_session_score(e->session, c->ids, c->n, read_row, r, &err), &err);
}

static double recorded_sum(const text_case *c) {
    const json_t *nll = json_object_get(c->json, "nll");
    double sum = 0;
    for (size_t i = 0; i + 1 < c->n; i++) sum += json_number_value(json_array_get(nll, i));
    return sum;
}

static void greedy_tokens_are_the_recorded_ones(engine *e, const text_case *c) {
    ag_error err;
    const json_t *greedy = json_object_get(c->json, "greedy");
    const json_t *margin = json_object_get(c->json, "greedy_margin");
    for (size_t k = 0; k < json_array_size(greedy); k++) {
        const int32_t want = (int32_t)json_integer_value(json_array_get(greedy, k));
        const int32_t have = argmax(ag_session_logits(e->session), e->n_vocab);
        if (have != want && json_number_value(json_array_get(margin, k)) > 1e-2) {
            fail_msg("%s, greedy token %zu: %d, recorded %d", c->name, k, have, want);
        }
        must(ag_session_decode(e->session, want, &err), &err);
    }
}

static void weights_in_f32_give_the_recorded_nll(void **state) {
    reading *readings = *state;
    engine e = start(AG_F32);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const text_case c = get_case(i);
        read_case(&e, &c, &readings[i]);
        const double distance = (readings[i].sum - recorded_sum(&c)) / (double)(c.n - 1);
        print_message("%s: mean nll %+.2g from the record\n", c.name, distance);
        if (!(fabs(distance) < 1e-4)) fail_msg("%s: mean nll %+.3g off", c.name, distance);
        greedy_tokens_are_the_recorded_ones(&e, &c);
    }
    stop(&e);
}

/* After the test above, whose best tokens are compared. */
static void weights_as_they_are_stay_close(void **state) {
    const reading *readings = *state;
    engine e = start(AG_WEIGHTS_AUTO);
    assert_true(ag_model_get_info(e.model)->as_is);
    double sum = 0, recorded = 0;
    size_t n = 0, same = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const text_case c = get_case(i);
        reading r;
        read_case(&e, &c, &r);
        for (size_t k = 0; k < c.n; k++) same += r.best[k] == readings[i].best[k];
        sum += r.sum;
        recorded += recorded_sum(&c);
        n += c.n;
    }
    const double agree = (double)same / (double)n;
    print_message("mean nll %+.3f %%, the same best token at %.1f %%\n", 100 * (sum / recorded - 1),
                  100 * agree);
    assert_true(fabs(sum / recorded - 1) < 0.003);
    assert_true(agree >= 0.97);
    stop(&e);
}

/* ---- the tokenizer ---- */

static void must_encode_to(const ag_tokenizer *t, const char *text, size_t len, const text_case *c,
                           unsigned flags) {
    ag_error err;
    ag_ids ids = {0};
    must(ag_tokenizer_encode(t, text, len, flags, &ids, &err), &err);
    size_t k = 0;
    while (k < ids.n && k < c->n && ids.data[k] == c->ids[k]) k++;
    if (k != ids.n || k != c->n) {
        fail_msg("%s: token %zu of %zu (recorded %zu) differs", c->name, k, ids.n, c->n);
    }
    ag_ids_free(&ids);
}

/* A record without a text has the text of its ids. */
static void tokenizer_gives_the_recorded_ids(void **state) {
    (void)state;
    ag_error err;
    ag_tokenizer *t;
    must(ag_tokenizer_load(model_path, &t, &err), &err);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const text_case c = get_case(i);
        const json_t *text = json_object_get(c.json, "text");
        const unsigned flags = ag_tokenizer_is_special(t, c.ids[0]) ? AG_ENCODE_BOS : 0;
        if (json_is_string(text)) {
            must_encode_to(t, json_string_value(text), json_string_length(text), &c, flags);
            continue;
        }
        ag_text decoded = {0};
        must(ag_tokenizer_decode(t, c.ids, c.n, false, &decoded, &err), &err);
        must_encode_to(t, decoded.data, decoded.len, &c, flags);
        ag_text_free(&decoded);
    }
    ag_tokenizer_destroy(t);
}

/* ---- where things are ---- */

/* In the store of models, where scripts/models.sh puts them. */
static bool find_model(const char *name) {
    const char *store = getenv("ANTIGRAVITY_MODELS"), *data = getenv("XDG_DATA_HOME");
    const char *home = getenv("HOME");
    if (store && *store) {
        snprintf(model_path, sizeof model_path, "%s/%s.gguf", store, name);
    } else if (data && *data) {
        snprintf(model_path, sizeof model_path, "%s/antigravity/models/%s.gguf", data, name);
    } else {
        snprintf(model_path, sizeof model_path, "%s/.local/share/antigravity/models/%s.gguf",
                 home ? home : "", name);
    }
    return access(model_path, R_OK) == 0;
}

static bool read_cases(const char *name) {
    char path[4096];
    json_error_t why;
    snprintf(path, sizeof path, AG_SOURCE_DIR "/tests/data/golden/real/%s.json", name);
    json_t *root = json_load_file(path, 0, &why);
    if (!root) fprintf(stderr, "%s: %s\n", path, why.text);
    cases = json_incref(json_object_get(root, "cases"));
    json_decref(root);
    return json_array_size(cases) > 0;
}

int main(int argc, char **argv) {
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: test_real NAME [BACKEND]\n");
        return 2;
    }
    backend_name = argv[2];
    if (!read_cases(argv[1])) return 1;
    if (!find_model(argv[1])) {
        printf("skipped: %s is not there; scripts/models.sh fetches it\n", model_path);
        return 77;
    }
    reading *readings = calloc(json_array_size(cases), sizeof *readings);
    if (!readings) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(tokenizer_gives_the_recorded_ids, readings),
        cmocka_unit_test_prestate(weights_in_f32_give_the_recorded_nll, readings),
        cmocka_unit_test_prestate(weights_as_they_are_stay_close, readings),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(readings);
    json_decref(cases);
    return failed;
}
