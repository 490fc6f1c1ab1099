/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of expensive constraints: one that exceeds the limit of steps gets status 400 and the
 * number of steps, and the time that compilation takes is part of the request's. */
#include "../support/sanitized.h"
#include "serve_client.h"

#include <signal.h>
#include <time.h>

static void rejects_an_expensive_grammar_with_400(void **state) {
    serve_process p;
    (void)state;
    SERVE_START(&p, "-q", "-m", DEMO);
    json_t *reply = serve_json(&p, "POST /v1/completions",
                               "{\"model\":\"demo\",\"prompt\":\"a\",\"max_tokens\":50,\"n\":64,"
                               "\"ignore_eos\":true,\"grammar\":"
                               "\"root ::= s+\\ns ::= [a-z ]+ | [a-z ]+ s | [a-z ]* [a-z ]*\"}",
                               400);
    assert_string_equal(
        json_string_at(reply, "error.message"),
        "the constraint is too expensive: one token needs more than 16777216 steps");
    json_decref(reply);
    reply = serve_json(&p, "POST /v1/completions",
                       "{\"model\":\"demo\",\"prompt\":\"a\",\"max_tokens\":3}", 200);
    json_decref(reply);
    assert_int_equal(serve_stop(&p, SIGTERM), 0);
}

/* Sends prompts whose constraints are compiled one after the other, each for 20 to 200 ms. Returns
 * the seconds until the reply. */
static double ask(const serve_process *p, const char *more, int *status) {
    char body[512];
    struct timespec begin, end;
    snprintf(body, sizeof body,
             "{\"model\":\"demo\",\"prompt\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\"],"
             "\"regex\":\"(a|b)*a(a|b){%d}\",\"ignore_eos\":true,%s}",
             SANITIZED ? 9 : 13, more);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    serve_reply r = serve_fetch(p, "POST /v1/completions", "", body);
    clock_gettime(CLOCK_MONOTONIC, &end);
    *status = r.status;
    serve_reply_free(&r);
    return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}

/* The request is stopped at its limit, and not only when this time has passed since the
 * compilation. Other processes may delay either request: one try must hold. */
static void counts_compilation_in_the_time_of_the_request(void **state) {
    serve_process p;
    double limit = 0, taken = 0;
    bool holds = false;
    int status;
    (void)state;
    SERVE_START(&p, "-q", "-m", DEMO, "--prepare-limit", "600");
    for (int i = 0; i < 8 && !holds; i++) {
        char more[64];
        const double compilation = ask(&p, "\"max_tokens\":1", &status);
        assert_int_equal(status, 200);
        limit = 2 * compilation;
        snprintf(more, sizeof more, "\"max_tokens\":2000,\"timeout\":%.6f", limit);
        taken = ask(&p, more, &status);
        holds = status == 200 && taken >= 0.99 * limit && taken < limit + 0.5 * compilation;
    }
    if (!holds) fail_msg("a limit of %.2f s: status %d after %.2f s", limit, status, taken);
    assert_int_equal(serve_stop(&p, SIGTERM), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejects_an_expensive_grammar_with_400),
        cmocka_unit_test(counts_compilation_in_the_time_of_the_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
