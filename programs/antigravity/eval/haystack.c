/* SPDX-License-Identifier: Apache-2.0 */
#include "haystack.h"

#include "seeded.h"
#include "sentences.h"

#include <stdio.h>

enum { N_FACTS = 3, FACT_TOKENS = 28 };

typedef struct fact {
    const char *name, *colour, *thing, *shade;
    unsigned number;
    double depth;
    bool is_written;
} fact;

typedef struct writer {
    const haystack *h;
    needle *out;
    seeded random;
    sentences filler;
    bool begun;
    fact facts[N_FACTS]; /* the first is the one in question */
} writer;

static const char *const names[] = {"Tom",  "Mia", "Ben",  "Lily", "Max",  "Anna", "Sam",  "Rose",
                                    "Jack", "Leo", "Ruby", "Hugo", "Otto", "Paul", "Emma", "Lucy"};
static const char *const things[] = {"box",  "key",  "door",  "chest", "bag",  "garden",
                                     "boat", "lamp", "tower", "cave",  "drum", "ring",
                                     "kite", "cup",  "book",  "hat"};
static const char *const colours[] = {"red",   "blue",  "green", "gold", "silver",
                                      "white", "black", "brown", "pink", "grey"};
#define COUNT(list) (sizeof(list) / sizeof *(list))

#define PICK(w, list) ((list)[seeded_below(&(w)->random, COUNT(list))])

static void choose_facts(writer *w, double depth) {
    for (size_t i = 0; i < N_FACTS; i++) {
        fact *f = &w->facts[i];
        bool unique = false;
        while (!unique) {
            f->name = PICK(w, names);
            unique = true;
            for (size_t j = 0; j < i; j++) unique = unique && f->name != w->facts[j].name;
        }
        f->colour = PICK(w, colours);
        f->thing = PICK(w, things);
        f->shade = PICK(w, colours);
        f->number = 100 + (unsigned)seeded_below(&w->random, 900);
        f->depth = i ? (double)seeded_below(&w->random, 1000) / 1000 : depth;
    }
}

/* Appends a sentence after ". ". The tokenizer never merges ". " with adjacent text, so the ids
 * equal those of the entire text. */
static ag_status append(writer *w, const char *sentence, ag_error *err) {
    char text[SENTENCE_SIZE + 4];
    int n = snprintf(text, sizeof text, "%s%s", w->begun ? ". " : "", sentence);
    w->begun = true;
    text_add(&w->out->document, text);
    return ag_tokenizer_encode(w->h->tokenizer, text, (size_t)n, 0, &w->out->ids, err);
}

static ag_status write_fact(writer *w, fact *f, ag_error *err) {
    char text[160];
    snprintf(text, sizeof text, "The secret of %s's %s %s is %u %s", f->name, f->colour, f->thing,
             f->number, f->shade);
    size_t begin = w->out->ids.n;
    f->is_written = true;
    ag_status st = append(w, text, err);
    if (f != w->facts) return st;
    w->out->fact_begin = begin;
    w->out->fact_end = w->out->ids.n;
    return st;
}

/* Writes the facts with a depth of at most `share` of the document. *n_left: facts not written
 * yet. */
static ag_status write_due_facts(writer *w, double share, size_t *n_left, ag_error *err) {
    ag_status st = AG_OK;
    *n_left = 0;
    for (size_t i = N_FACTS; i-- > 0 && st == AG_OK;) {
        fact *f = &w->facts[i];
        if (!f->is_written && f->depth <= share) st = write_fact(w, f, err);
        *n_left += !f->is_written;
    }
    return st;
}

static ag_status write_document(writer *w, size_t n_tokens, ag_error *err) {
    ag_ids *ids = &w->out->ids;
    size_t space = n_tokens - N_FACTS * FACT_TOKENS, n_left = 0;
    char text[SENTENCE_SIZE];
    ag_status st = write_due_facts(w, 0, &n_left, err);
    while (st == AG_OK) {
        size_t before = ids->n, length = w->out->document.len;
        sentences_next(&w->filler, text);
        st = append(w, text, err);
        if (ids->n + n_left * FACT_TOKENS > n_tokens) {
            ids->n = before;
            text_cut(&w->out->document, length);
            break;
        }
        size_t facts = (N_FACTS - n_left) * FACT_TOKENS;
        size_t written = ids->n > facts ? ids->n - facts : 0;
        if (st == AG_OK) st = write_due_facts(w, (double)written / (double)space, &n_left, err);
    }
    return st == AG_OK ? write_due_facts(w, 2, &n_left, err) : st;
}

ag_status needle_make(const haystack *h, uint64_t number, double depth, needle *out,
                      ag_error *err) {
    writer w = {.h = h, .out = out, .random = {h->seed ^ number * 0xd1342543de82ef95u}};
    ag_ids question = {0};
    char text[160];
    *out = (needle){.n_document = 0};
    choose_facts(&w, depth);
    w.filler = (sentences){.text = h->filler, .n_text = h->n_filler, .random = &w.random};
    sentences_open(&w.filler);
    const fact *f = w.facts;
    snprintf(out->answer, sizeof out->answer, "%u %s", f->number, f->shade);
    snprintf(out->question, sizeof out->question, "What is the secret of %s's %s %s?", f->name,
             f->colour, f->thing);
    int n = snprintf(text, sizeof text, ".\nQuestion: %s\nAnswer:", out->question);
    ag_status st = ag_tokenizer_encode(h->tokenizer, text, (size_t)n, 0, &question, err);
    if (st == AG_OK) st = ag_tokenizer_encode(h->tokenizer, "", 0, AG_ENCODE_BOS, &out->ids, err);
    if (st == AG_OK) st = write_document(&w, h->n_tokens - question.n, err);
    out->n_document = out->ids.n;
    text_add(&out->document, ".\n");
    if (st == AG_OK && out->document.failed) {
        *err = (ag_error){.status = st = AG_NOMEM, .msg = "out of memory: document"};
    }
    if (st == AG_OK) { st = ag_tokenizer_encode(h->tokenizer, text, (size_t)n, 0, &out->ids, err); }
    ag_ids_free(&question);
    return st;
}

void needle_free(needle *n) {
    ag_ids_free(&n->ids);
    text_release(&n->document);
    *n = (needle){.n_document = 0};
}
