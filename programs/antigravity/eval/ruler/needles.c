/* SPDX-License-Identifier: Apache-2.0 */
/* Needles in a haystack: "One of the special magic numbers for KEY is: VALUE." */
#include "tasks.h"

#include <string.h>

enum { MAX_NEEDLES = 4, N_DEPTHS = 40 };

typedef struct needle_set {
    char keys[MAX_NEEDLES][RULER_WORD_SIZE];
    char values[MAX_NEEDLES][RULER_WORD_SIZE]; /* [n_keys][n_values] */
    size_t n_keys, n_values;                   /* n_values: of each key */
    size_t order[MAX_NEEDLES];                 /* order in the context */
} needle_set;

static void write_needle(text_buffer *t, const ruler_task *task, const char *key,
                         const char *value) {
    text_addf(t, "One of the special magic %s for %s is: %s.", ruler_kind_name(task->values), key,
              value);
}

static void write_nth_needle(text_buffer *t, const ruler_task *task, const needle_set *s,
                             size_t i) {
    const size_t value = s->order[i];
    write_needle(t, task, s->keys[value / s->n_values], s->values[value]);
}

static bool is_key(const needle_set *s, size_t n, const char *word) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(s->keys[i], word)) return true;
    return false;
}

static void choose_needles(needle_set *s, const ruler_task *task, seeded *r) {
    *s = (needle_set){.n_keys = task->n_keys, .n_values = task->n_values};
    const size_t n = s->n_keys * s->n_values;
    for (size_t i = 0; i < s->n_keys; i++) {
        do { ruler_value(task->keys, r, s->keys[i]); } while (is_key(s, i, s->keys[i]));
    }
    for (size_t i = 0; i < n; i++) ruler_value(task->values, r, s->values[i]);
    for (size_t i = 0; i < n; i++) s->order[i] = i;
    ruler_shuffle(r, n, s->order);
}

/* ---- contexts ---- */

/* Writes sentences of an essay or of tales, with needles at random depths of 40. */
static void write_essay(const ruler_task *task, const ruler_source *source, seeded *r,
                        const needle_set *s, size_t n_sentences, text_buffer *out) {
    const size_t n = s->n_keys * s->n_values;
    size_t depths[MAX_NEEDLES], n_written = 0;
    char sentence[SENTENCE_SIZE];
    sentences from = {.text = source->haystack, .n_text = source->n_haystack, .random = r};
    ruler_choose(r, N_DEPTHS, n, depths);
    sentences_open(&from);
    for (size_t i = 0; i <= n_sentences; i++) {
        while (n_written < n && depths[n_written] * n_sentences / (N_DEPTHS - 1) <= i) {
            if (out->data[out->len - 1] != '\n') text_add(out, " ");
            write_nth_needle(out, task, s, n_written++);
        }
        if (i == n_sentences) break;
        sentences_next(&from, sentence);
        if (out->data[out->len - 1] != '\n') text_add(out, " ");
        text_addf(out, "%s.", sentence);
    }
    text_add(out, "\n");
}

static void write_distractor(const ruler_task *task, seeded *r, const needle_set *s,
                             text_buffer *out) {
    char key[RULER_WORD_SIZE], value[RULER_WORD_SIZE];
    do { ruler_value(task->keys, r, key); } while (is_key(s, s->n_keys, key));
    ruler_value(task->values, r, value);
    write_needle(out, task, key, value);
}

/* Writes lines of noise or of needles with other keys, and the needles between them. */
static void write_lines(const ruler_task *task, seeded *r, const needle_set *s, size_t n_lines,
                        text_buffer *out) {
    const size_t n = s->n_keys * s->n_values;
    size_t before[MAX_NEEDLES], n_written = 0;
    ruler_choose(r, n_lines, n, before);
    for (size_t i = 0; i < n_lines; i++) {
        while (n_written < n && before[n_written] == i) {
            write_nth_needle(out, task, s, n_written++);
            text_add(out, "\n");
        }
        if (task->haystack == RULER_NOISE) text_add(out, ruler_noise);
        else write_distractor(task, r, s, out);
        text_add(out, "\n");
    }
}

/* ---- questions ---- */

/* Writes "a", "a, and b" or "a, b, and c". */
static void name_queries(const needle_set *s, const size_t *queries, size_t n, text_buffer *out) {
    for (size_t i = 0; i < n; i++)
        text_addf(out, "%s%s", i ? i + 1 == n ? ", and " : ", " : "", s->keys[queries[i]]);
}

void ruler_write_needles(const ruler_task *task, const ruler_source *source, seeded *random,
                         size_t n_units, ruler_text *out) {
    needle_set s;
    size_t queries[MAX_NEEDLES];
    text_buffer query = {0};
    choose_needles(&s, task, random);
    ruler_choose(random, s.n_keys, task->n_queries, queries);
    ruler_shuffle(random, task->n_queries, queries);
    name_queries(&s, queries, task->n_queries, &query);
    const bool one = task->n_queries * task->n_values == 1;
    const char *values = ruler_kind_name(task->values);
    const int len = (int)strlen(values) - one; /* "number" or "numbers" */
    text_addf(&out->context,
              "%s special magic %.*s %s hidden within the following text. Make sure to memorize "
              "it. I will quiz you about the %.*s afterwards.\n",
              one ? "A" : "Some", len, values, one ? "is" : "are", len, values);
    if (out->context.failed || query.failed) {
        out->context.failed = true;
    } else {
        if (task->haystack == RULER_ESSAY)
            write_essay(task, source, random, &s, n_units, &out->context);
        else write_lines(task, random, &s, n_units, &out->context);
        text_addf(&out->question,
                  "What %s special magic %.*s for %s mentioned in the provided text?",
                  one ? "is the" : "are all the", len, values, query.data);
        text_addf(&out->answer_prefix,
                  " The special magic %.*s for %s mentioned in the provided text %s", len, values,
                  query.data, one ? "is" : "are");
    }
    out->n_references = 0;
    for (size_t i = 0; i < task->n_queries; i++) {
        for (size_t v = 0; v < s.n_values; v++)
            strcpy(out->references[out->n_references++], s.values[queries[i] * s.n_values + v]);
    }
    text_release(&query);
}
