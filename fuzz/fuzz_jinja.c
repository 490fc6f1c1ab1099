/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the template interpreter. The input is a template, optionally followed by a NUL and its
 * variables as JSON. The output must be UTF-8, its spans must be ascending and within it, and the
 * time is limited. */
#include "fuzz.h"

#include "jinja/jinja.h"
#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char conversation[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be "
    "terse.\"},{\"role\":\"user\",\"content\":\" h\\u00e9 "
    "\\ud83e\\udd8a\\n\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"c1\","
    "\"function\":"
    "{\"name\":\"f\",\"arguments\":{\"a\":[1,2.5,\"x\",null,true]}}}]}],\"tools\":[{\"type\":"
    "\"function\"}],"
    "\"add_generation_prompt\":true,\"s\":\"some "
    "text\",\"n\":7,\"f\":1.5,\"l\":[3,1,2],\"d\":{\"b\":1,\"a\":{}}}";

static char *exact_copy(const uint8_t *data, size_t n) {
    char *copy = malloc(n ? n : 1);
    if (!copy) abort();
    copy[0] = '\0';
    if (n) memcpy(copy, data, n);
    return copy;
}

static void check(const ag_jinja_output *out) {
    if (ag_utf8_valid_prefix(out->text, out->len) != out->len) abort();
    for (size_t i = 0; i < out->n_spans; i++) {
        const ag_jinja_span *s = &out->spans[i];
        if (s->begin >= s->end || s->end > out->len || (i && s->begin <= s[-1].end)) abort();
        /* A span must not split a character. */
        if (((unsigned char)out->text[s->begin] & 0xC0) == 0x80) abort();
        if (s->end < out->len && ((unsigned char)out->text[s->end] & 0xC0) == 0x80) abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    const uint8_t *nul = n ? memchr(data, 0, n) : NULL;
    size_t n_text = nul ? (size_t)(nul - data) : n;
    char *text = exact_copy(data, n_text);
    ag_jinja *t;
    ag_error err;
    if (ag_jinja_parse("fuzz", text, n_text, &t, &err) == AG_OK) {
        json_t *variables = nul ? json_loadb((const char *)nul + 1, n - n_text - 1, 0, NULL)
                                : json_loads(conversation, 0, NULL);
        struct tm now = {.tm_year = 126, .tm_mon = 10, .tm_mday = 22};
        ag_jinja_input in = {.variables = variables, .now = &now};
        in.limits =
            (ag_jinja_limits){.steps = 200000, .output_bytes = 1 << 20, .memory_bytes = 32 << 20};
        ag_jinja_output out;
        if (ag_jinja_render(t, &in, &out, &err) == AG_OK) check(&out);
        ag_jinja_output_free(&out);
        json_decref(variables);
        ag_jinja_destroy(t);
    }
    free(text);
    return 0;
}
