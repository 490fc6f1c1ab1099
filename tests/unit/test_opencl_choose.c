/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens that the device chooses from are those that the sampler chooses from the whole row. */
#include "unit/opencl_device.h"

#include <antigravity/antigravity.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL AG_SOURCE_DIR "/tests/data/golden/models/gqa-llama3rope-sharded"

enum { N_TOKENS = 24, N_PROMPT = 3 };

static ag_backend *backend;
static ag_model *model;
static const int32_t prompt[N_PROMPT] = {3, 40, 77};

static void must(ag_status st, const ag_error *err) {
    if (st != AG_OK) fail_msg("%s: %s", ag_status_name(st), err->msg);
}

static ag_session *open_session(void) {
    ag_session_params p = ag_session_defaults();
    p.max_seq_len = 64;
    ag_session *s;
    ag_error err;
    must(ag_session_create(model, &p, &s, &err), &err);
    return s;
}

static ag_sampler *open_sampler(const ag_sampler_params *p) {
    ag_sampler *s;
    ag_error err;
    must(ag_sampler_create(p, (int32_t)ag_model_get_info(model)->n_vocab, &s, &err), &err);
    return s;
}

typedef struct heard {
    int32_t ids[N_TOKENS];
    size_t n;
} heard;

static bool hear(void *user, int32_t id, const char *text, size_t len) {
    heard *h = user;
    (void)text;
    (void)len;
    if (h->n < N_TOKENS) h->ids[h->n++] = id;
    return true;
}

static void generate(const ag_sampler_params *p, heard *h) {
    ag_generate_params g = ag_generate_defaults();
    ag_error err;
    ag_session *s = open_session();
    g.sampler = open_sampler(p);
    g.max_tokens = N_TOKENS;
    g.ignore_eos = true;
    g.on_token = hear;
    g.on_token_user = h;
    must(ag_generate(s, prompt, N_PROMPT, &g, NULL, &err), &err);
    assert_non_null(ag_session_logits(s)); /* the last row has come */
    ag_sampler_destroy(g.sampler);
    ag_session_destroy(s);
}

static void check_whole_rows(const ag_sampler_params *p, const heard *h) {
    ag_error err;
    ag_session *s = open_session();
    ag_sampler *sampler = open_sampler(p);
    must(ag_session_prefill(s, prompt, N_PROMPT, NULL, NULL, &err), &err);
    for (size_t i = 0; i < N_PROMPT; i++) ag_sampler_accept(sampler, prompt[i]);
    for (size_t i = 0; i < N_TOKENS; i++) {
        int32_t id;
        must(ag_sampler_sample(sampler, ag_session_logits(s), &id, &err), &err);
        assert_int_equal(h->ids[i], id);
        ag_sampler_accept(sampler, id);
        must(ag_session_decode(s, id, &err), &err);
    }
    ag_sampler_destroy(sampler);
    ag_session_destroy(s);
}

static void generated_tokens_are_those_of_whole_rows(void **state) {
    (void)state;
    ag_sampler_params p = ag_sampler_defaults();
    for (p.seed = 1; p.seed <= 3; p.seed++) {
        heard h = {.n = 0};
        p.temperature = p.seed == 3 ? 0 : 1.5f;
        p.top_k = p.seed == 2 ? 0 : 40; /* off: the row is needed as a whole */
        generate(&p, &h);
        assert_int_equal(h.n, N_TOKENS);
        check_whole_rows(&p, &h);
    }
}

int main(void) {
    ag_error err;
    backend = open_opencl();
    if (!backend) return EXIT_SKIPPED;
    if (ag_model_load(backend, MODEL, NULL, &model, &err) != AG_OK) {
        fprintf(stderr, "%s\n", err.msg);
        return EXIT_FAILURE;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(generated_tokens_are_those_of_whole_rows),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ag_model_destroy(model);
    ag_backend_destroy(backend);
    return failed;
}
