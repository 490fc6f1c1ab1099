/* SPDX-License-Identifier: Apache-2.0 */
/* Variable tracking: "VAR A = 12345", "VAR B = VAR A", ... scattered over noise. The question is
 * which variables have a value. A solved example comes first. */
#include "tasks.h"

#include <string.h>

enum { N_NAMES = 5, EXAMPLE_TOKENS = 500, NOISE_TOKENS = 25 /* approximate, with its newline */ };

typedef struct chain {
    char names[N_NAMES][RULER_WORD_SIZE];
    size_t value;
} chain;

static void choose_chain(chain *c, seeded *r, size_t letters) {
    for (size_t i = 0; i < N_NAMES; i++) {
        bool known = true;
        while (known) {
            ruler_letters(r, 'A', letters, c->names[i]);
            known = false;
            for (size_t j = 0; j < i; j++) known = known || !strcmp(c->names[i], c->names[j]);
        }
    }
    c->value = 10000 + seeded_below(r, 90000);
}

static void write_context(text_buffer *t, const chain *c, seeded *r, size_t n_lines) {
    size_t before[N_NAMES], n_written = 0;
    text_add(t, "Memorize and track the chain(s) of variable assignment hidden in the following "
                "text.\n\n");
    ruler_choose(r, n_lines, N_NAMES, before);
    for (size_t i = 0; i < n_lines; i++) {
        while (n_written < N_NAMES && before[n_written] == i) {
            if (n_written)
                text_addf(t, "VAR %s = VAR %s\n", c->names[n_written], c->names[n_written - 1]);
            else text_addf(t, "VAR %s = %zu\n", c->names[n_written], c->value);
            n_written++;
        }
        text_addf(t, "%s\n", ruler_noise);
    }
}

static void write_question(text_buffer *t, const chain *c) {
    text_addf(t, "Question: Find all variables that are assigned the value %zu in the text above.",
              c->value);
}

static void write_prefix(text_buffer *t, const chain *c) {
    text_addf(t,
              " Answer: According to the chain(s) of variable assignment in the text above, %d "
              "variables are assigned the value %zu, they are:",
              N_NAMES, c->value);
}

/* Returns the noise lines of the example: an eighth of the prompt, at most EXAMPLE_TOKENS. */
static size_t example_lines(const ruler_source *source) {
    const size_t share = source->n_tokens / 8, max = EXAMPLE_TOKENS;
    const size_t n = (share < max ? share : max) / NOISE_TOKENS;
    return n > N_NAMES ? n : N_NAMES;
}

void ruler_write_chain(const ruler_task *task, const ruler_source *source, seeded *random,
                       size_t n_units, ruler_text *out) {
    chain example, target;
    (void)task;
    choose_chain(&example, random, 3);
    choose_chain(&target, random, 5);
    write_context(&out->context, &example, random, example_lines(source));
    write_question(&out->context, &example);
    write_prefix(&out->context, &example);
    for (size_t i = 0; i < N_NAMES; i++) text_addf(&out->context, " %s", example.names[i]);
    text_add(&out->context, "\n\n");
    write_context(&out->context, &target, random, n_units);
    write_question(&out->question, &target);
    write_prefix(&out->answer_prefix, &target);
    out->n_references = N_NAMES;
    memcpy(out->references, target.names, sizeof target.names);
}
