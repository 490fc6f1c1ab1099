/* SPDX-License-Identifier: Apache-2.0 */
/* Test of antigravity serve in a build without OpenSSL. */
#include "cli.h"

static void reports_that_tls_is_not_supported(void **state) {
    (void)state;
    cli_result r = CLI("serve", "-q", "--port", "0", "--tls-cert", "cert", "--tls-key", "key");
    assert_refused(&r, 2, "--tls-cert cert: this program was built without OpenSSL");
    cli_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(reports_that_tls_is_not_supported)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
