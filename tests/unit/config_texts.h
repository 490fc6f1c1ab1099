/* SPDX-License-Identifier: Apache-2.0 */
/* Configurations written in the tests that read them. */
#ifndef AG_TESTS_CONFIG_TEXTS_H
#define AG_TESTS_CONFIG_TEXTS_H

#include "models/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Single quotes stand for double ones, so that JSON can be read here. */
static inline ag_status parse2(const char *config, const char *generation, ag_model_spec *out,
                               ag_error *err) {
    char a[2048], b[512];
    snprintf(a, sizeof a, "%s", config);
    snprintf(b, sizeof b, "%s", generation ? generation : "");
    for (char *p = a; *p; p++) *p = *p == '\'' ? '"' : *p;
    for (char *p = b; *p; p++) *p = *p == '\'' ? '"' : *p;
    ag_config_text c = {a, strlen(a), "config.json"}, g = {b, strlen(b), "generation_config.json"};
    return ag_spec_parse(&c, generation ? &g : NULL, out, err);
}

static inline ag_model_spec good(const char *config, const char *generation) {
    ag_model_spec c;
    ag_error err = {0};
    if (parse2(config, generation, &c, &err) != AG_OK) fail_msg("%s: %s", config, err.msg);
    return c;
}

#endif
