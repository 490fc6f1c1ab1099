/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes tokenizer.json. A tokenizer that loads must encode a text safely, and must decode its ids
 * to the same text all at once and one by one. */
#include "tokenizer_check.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    char *json = malloc(n ? n : 1);
    if (!json) return 0;
    if (n) memcpy(json, data, n);
    ag_tokenizer *t;
    ag_error err;
    ag_status st = ag_tokenizer_parse(json, n, "input", &t, &err);
    free(json);
    if ((st == AG_OK) != (t != NULL)) abort();
    if (t) check_tokenizer(t);
    ag_tokenizer_destroy(t);
    return 0;
}
