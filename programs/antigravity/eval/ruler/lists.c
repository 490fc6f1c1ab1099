/* SPDX-License-Identifier: Apache-2.0 */
/* Word counts: the ten most common words of a numbered list, the three most frequent of a coded
 * text. */
#include "tasks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_COMMON = 10, N_FREQUENT = 3, CODED_LETTERS = 6, LONG_PROMPT = 4096 };

/* ---- common words ---- */

/* Number of occurrences of a common and of another word in a list. */
typedef struct repeats {
    size_t common, other;
} repeats;

/* Writes a list of n words. The first N_COMMON of `words` are the common ones. */
static void write_list(text_buffer *t, seeded *r, const size_t *words, size_t n, repeats each) {
    const size_t total = N_COMMON * each.common + (n - N_COMMON) * each.other;
    size_t *list = malloc(total * sizeof *list), at = 0;
    char word[RULER_WORD_SIZE];
    t->failed = t->failed || !list;
    if (!list) return;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < (i < N_COMMON ? each.common : each.other); k++)
            list[at++] = words[i];
    ruler_shuffle(r, total, list);
    text_add(t, "Below is a numbered list of words. In these words, some appear more often than "
                "others. Memorize the ones that appear most often.\n");
    for (size_t i = 0; i < total; i++) {
        ruler_word(list[i], word);
        text_addf(t, "%s%zu. %s", i ? " " : "", i + 1, word);
    }
    text_add(t, "\n");
    free(list);
}

static const char common_question[] =
    "Question: What are the 10 most common words in the above list?";
static const char common_prefix[] =
    " Answer: The top 10 words that appear most often in the list are:";

static void write_example(text_buffer *t, seeded *r, size_t n, repeats each) {
    size_t words[40];
    char word[RULER_WORD_SIZE];
    ruler_choose_words(r, n, words);
    write_list(t, r, words, n, each);
    text_addf(t, "%s%s", common_question, common_prefix);
    for (size_t i = 0; i < N_COMMON; i++) {
        ruler_word(words[i], word);
        text_addf(t, " %zu. %s", i + 1, word);
    }
    text_add(t, "\n");
}

void ruler_write_common_words(const ruler_task *task, const ruler_source *source, seeded *random,
                              size_t n_units, ruler_text *out) {
    const bool is_long = source->n_tokens >= LONG_PROMPT;
    const size_t max_words = ruler_n_words(), n = n_units < max_words ? n_units : max_words;
    size_t *words = malloc(n * sizeof *words);
    (void)task;
    out->context.failed = out->context.failed || !words;
    if (!words) return;
    if (is_long) write_example(&out->context, random, 40, (repeats){10, 3});
    else write_example(&out->context, random, 20, (repeats){3, 1});
    ruler_choose_words(random, n, words);
    write_list(&out->context, random, words, n, is_long ? (repeats){30, 3} : (repeats){6, 1});
    text_add(&out->question, common_question);
    text_add(&out->answer_prefix, common_prefix);
    out->n_references = N_COMMON;
    for (size_t i = 0; i < N_COMMON; i++) ruler_word(words[i], out->references[i]);
    free(words);
}

/* ---- frequent words ---- */

/* Returns how often the k-th word occurs in a text of n words: n / (zeta(2) k^2), Zipf's law with
 * exponent 2. */
static size_t word_count(size_t n, size_t k) {
    const double zeta = 3.14159265358979323846 * 3.14159265358979323846 / 6;
    return (size_t)((double)n / (zeta * (double)k * (double)k));
}

static bool is_known(char (*words)[RULER_WORD_SIZE], size_t n, const char *word) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(words[i], word)) return true;
    return false;
}

static void invent_words(seeded *r, size_t n, char (*words)[RULER_WORD_SIZE]) {
    for (size_t i = 0; i < n; i++) {
        do { ruler_letters(r, 'a', CODED_LETTERS, words[i]); } while (is_known(words, i, words[i]));
    }
    strcpy(words[0], "..."); /* the most frequent word is noise */
}

static void write_coded(text_buffer *t, seeded *r, char (*words)[RULER_WORD_SIZE], size_t n_words,
                        size_t n) {
    size_t *list = malloc(n * sizeof *list), at = 0;
    t->failed = t->failed || !list;
    if (!list) return;
    for (size_t w = 0; w < n_words; w++)
        for (size_t k = word_count(n, w + 1); k && at < n; k--) list[at++] = w;
    ruler_shuffle(r, at, list);
    text_add(t, "Read the following coded text and track the frequency of each coded word. Find "
                "the three most frequently appeared coded words. ");
    for (size_t i = 0; i < at; i++) text_addf(t, "%s%s", i ? " " : "", words[list[i]]);
    text_add(t, "\n");
    free(list);
}

void ruler_write_coded_words(const ruler_task *task, const ruler_source *source, seeded *random,
                             size_t n_units, ruler_text *out) {
    size_t n_words = (source->n_tokens - task->n_answer) / 50;
    if (n_words < 2 * N_FREQUENT) n_words = 2 * N_FREQUENT;
    char(*words)[RULER_WORD_SIZE] = malloc(n_words * sizeof *words);
    out->context.failed = out->context.failed || !words;
    if (!words) return;
    invent_words(random, n_words, words);
    write_coded(&out->context, random, words, n_words, n_units);
    text_add(&out->question,
             "Question: Do not provide any explanation. Please ignore the dots '....'. What are "
             "the three most frequently appeared words in the above coded text?");
    text_add(&out->answer_prefix, " Answer: According to the coded text above, the three most "
                                  "frequently appeared words are:");
    out->n_references = N_FREQUENT;
    memcpy(out->references, words + 1, N_FREQUENT * sizeof *words);
    free(words);
}
