/* SPDX-License-Identifier: Apache-2.0 */
#include "tasks.h"

#include <string.h>

const char ruler_noise[] = "The grass is green. The sky is blue. The sun is yellow. Here we go. "
                           "There and back again.";

#define NEEDLES(id, where, k, v, ks, vs, qs)                                                     \
    {                                                                                            \
        .name = id, .n_answer = 128, .min_units = 4, .write = ruler_write_needles,               \
        .haystack = where, .keys = k, .values = v, .n_keys = ks, .n_values = vs, .n_queries = qs \
    }

static const ruler_task tasks[] = {
    NEEDLES("niah_single_1", RULER_NOISE, RULER_WORDS, RULER_NUMBERS, 1, 1, 1),
    NEEDLES("niah_single_2", RULER_ESSAY, RULER_WORDS, RULER_NUMBERS, 1, 1, 1),
    NEEDLES("niah_single_3", RULER_ESSAY, RULER_WORDS, RULER_UUIDS, 1, 1, 1),
    NEEDLES("niah_multikey_1", RULER_ESSAY, RULER_WORDS, RULER_NUMBERS, 4, 1, 1),
    NEEDLES("niah_multikey_2", RULER_NEEDLES, RULER_WORDS, RULER_NUMBERS, 1, 1, 1),
    NEEDLES("niah_multikey_3", RULER_NEEDLES, RULER_UUIDS, RULER_UUIDS, 1, 1, 1),
    NEEDLES("niah_multivalue", RULER_ESSAY, RULER_WORDS, RULER_NUMBERS, 1, 4, 1),
    NEEDLES("niah_multiquery", RULER_ESSAY, RULER_WORDS, RULER_NUMBERS, 4, 1, 4),
    {.name = "vt", .n_answer = 30, .min_units = 5, .write = ruler_write_chain},
    {.name = "cwe", .n_answer = 120, .min_units = 20, .write = ruler_write_common_words},
    {.name = "fwe", .n_answer = 50, .min_units = 64, .write = ruler_write_coded_words},
};

const ruler_task *ruler_task_at(size_t i) {
    return i < sizeof tasks / sizeof tasks[0] ? &tasks[i] : NULL;
}

const ruler_task *ruler_task_find(const char *name) {
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0]; i++)
        if (!strcmp(tasks[i].name, name)) return &tasks[i];
    return NULL;
}

void ruler_text_release(ruler_text *t) {
    text_release(&t->context);
    text_release(&t->question);
    text_release(&t->answer_prefix);
}
