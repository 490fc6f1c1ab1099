/* SPDX-License-Identifier: Apache-2.0 */
#include "models/config.h"
#include "models/rope.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Published configurations agree to the last bit. With a base that float32 cannot hold exactly the
 * reference's power may be one step off the true one, and llama3's fade doubles that. */
enum { MAX_ULPS = 2 };

/* Steps between two positive floats. */
static unsigned ulps(float a, float b) {
    uint32_t x, y;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x > y ? x - y : y - x;
}

static ag_model_spec config_of(const json_t *object) {
    char *text = json_dumps(object, 0);
    ag_config_text c = {text, strlen(text), "config"};
    ag_model_spec config;
    ag_error err = {0};
    if (ag_spec_parse(&c, NULL, &config, &err) != AG_OK) fail_msg("%s", err.msg);
    free(text);
    return config;
}

static void frequencies_equal_those_of_transformers(void **state) {
    (void)state;
    json_t *rows = json_load_file(AG_SOURCE_DIR "/tests/data/golden/inv_freq.json", 0, NULL);
    assert_true(json_array_size(rows) >= 10);
    for (size_t r = 0; r < json_array_size(rows); r++) {
        const json_t *row = json_array_get(rows, r), *want = json_object_get(row, "inv_freq");
        ag_model_spec c = config_of(json_object_get(row, "config"));
        float have[512];
        assert_int_equal(json_array_size(want), c.ropes[0].n_rotated / 2);
        ag_rope_inv_freq(&c.ropes[0], false, have);
        for (size_t i = 0; i < c.ropes[0].n_rotated / 2; i++) {
            float w = (float)json_number_value(json_array_get(want, i));
            if (ulps(have[i], w) > MAX_ULPS) {
                fail_msg("row %zu, pair %zu: %.9g, not %.9g", r, i, (double)have[i], (double)w);
            }
        }
    }
    json_decref(rows);
}

static void frequencies_start_at_1_and_decrease(void **state) {
    (void)state;
    const ag_rope_spec rope = {.theta = 500000, .n_rotated = 64};
    float f[32];
    ag_rope_inv_freq(&rope, false, f);
    assert_true(f[0] == 1);
    for (int i = 1; i < 32; i++) assert_true(f[i] < f[i - 1] && f[i] > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_equal_those_of_transformers),
        cmocka_unit_test(frequencies_start_at_1_and_decrease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
