/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity serve, built without OpenSSL. */
#include "cli.h"

static void says_that_there_is_no_tls(void **state) {
    (void)state;
    cli_result r = CLI("serve", "-q", "--port", "0", "--tls-cert", "cert", "--tls-key", "key");
    assert_refused(&r, 2, "--tls-cert cert: this program was built without OpenSSL");
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(says_that_there_is_no_tls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
