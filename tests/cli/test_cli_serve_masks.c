/* SPDX-License-Identifier: Apache-2.0 */
/* Test of a grammar that is too expensive: its request gets status 400 and the number of steps,
 * other requests are served. */
#include "serve_client.h"

#include <signal.h>

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(rejects_an_expensive_grammar_with_400)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
