/* SPDX-License-Identifier: Apache-2.0 */
#include "haystack.h"

#include <stdio.h>
#include <string.h>

enum { N_FACTS = 3, FACT_TOKENS = 28, TEXT_SIZE = 1024 };

typedef struct fact {
    const char *name, *colour, *thing, *shade;
    unsigned number;
    double depth;
    bool told;
} fact;

typedef struct writer {
    const haystack *h;
    needle *out;
    uint64_t random; /* state of splitmix64 */
    size_t at;       /* in the filler */
    bool begun;
    fact facts[N_FACTS]; /* the first is asked for */
} writer;

static const char *const names[] = {"Tom",  "Mia", "Ben",  "Lily", "Max",  "Anna", "Sam",  "Rose",
                                    "Jack", "Leo", "Ruby", "Hugo", "Otto", "Paul", "Emma", "Lucy"};
static const char *const things[] = {"box",  "key",  "door",  "chest", "bag",  "garden",
                                     "boat", "lamp", "tower", "cave",  "drum", "ring",
                                     "kite", "cup",  "book",  "hat"};
static const char *const colours[] = {"red",   "blue",  "green", "gold", "silver",
                                      "white", "black", "brown", "pink", "grey"};
/* Words of the tales: what a small letter in a template stands for. */
static const char *const people[] = {"king",     "queen",     "miller", "shepherd",
                                     "princess", "soldier",   "farmer", "tailor",
                                     "witch",    "fisherman", "giant",  "baker"};
static const char *const beasts[] = {"fox",   "wolf",  "bear",  "hare",
                                     "raven", "horse", "goose", "cat"};
static const char *const places[] = {"forest", "village", "castle", "mountain", "river", "mill",
                                     "meadow", "well",    "bridge", "market",   "sea",   "hill"};
static const char *const kinds[] = {"old", "little", "poor",   "clever", "kind",  "proud",
                                    "sad", "brave",  "hungry", "young",  "tired", "strange"};
static const char *const goods[] = {"bread", "apples", "wood", "water",
                                    "wool",  "honey",  "corn", "salt"};
#define COUNT(list) (sizeof(list) / sizeof *(list))

/* %p person, %b beast, %l place, %k kind, %g goods. */
static const char *const templates[] = {
    "The %k %p went to the %l to look for %g",
    "One day a %k %b came out of the %l and sat down by the road",
    "The %p had a %k daughter who loved the %l more than anything",
    "In the evening the %p and the %b walked home together past the %l",
    "Nobody in the %l knew where the %k %b had come from",
    "The %b asked the %k %p for some %g, but there was none left",
    "Then the %p carried the %g all the way to the %l",
    "It rained for three days, and the %k %p could not cross the %l",
    "The %p laughed and said that a %k %b was better than much %g",
    "At last the %b found the way back from the %l",
    "Every morning the %k %p gave the %b a little %g",
    "When the %p woke up, the %b was gone and the %l was quiet",
    "Far away behind the %l there lived a %k %p with a %b",
    "The %k %b was afraid of the %p and hid in the %l until night",
};

static uint64_t next_random(writer *w) {
    uint64_t z = w->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static size_t below(writer *w, size_t n) { return (size_t)(next_random(w) % n); }

#define PICK(w, list) ((list)[below(w, COUNT(list))])

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
        f->number = 100 + (unsigned)below(w, 900);
        f->depth = i ? (double)below(w, 1000) / 1000 : depth;
    }
}

static const char *word_for(writer *w, char letter) {
    switch (letter) {
    case 'p':
        return PICK(w, people);
    case 'b':
        return PICK(w, beasts);
    case 'l':
        return PICK(w, places);
    case 'k':
        return PICK(w, kinds);
    default:
        return PICK(w, goods);
    }
}

static void tell_tale(writer *w, char *out) {
    size_t n = 0;
    for (const char *t = PICK(w, templates); *t; t++) {
        if (*t == '%') n += (size_t)sprintf(out + n, "%s", word_for(w, *++t));
        else out[n++] = *t;
    }
    out[n] = '\0';
}

/* Where a sentence ends: before ". "; one that goes on for long is cut before a space. */
static size_t sentence_length(const char *text, size_t n) {
    size_t space = 0;
    for (size_t i = 0; i + 1 < n && i < TEXT_SIZE - 4; i++) {
        if (text[i] == '.' && (text[i + 1] == ' ' || text[i + 1] == '\n')) return i;
        if (text[i] == ' ') space = i;
    }
    if (space || n < TEXT_SIZE - 4) return space ? space : n;
    size_t end = TEXT_SIZE - 4;
    while (end > 1 && ((unsigned char)text[end] & 0xc0) == 0x80) end--; /* whole characters */
    return end;
}

static void skip_between(writer *w) {
    const haystack *h = w->h;
    while (w->at < h->n_filler && strchr(". \n\r", h->filler[w->at])) w->at++;
}

/* Begins at some sentence. */
static void open_filler(writer *w) {
    const haystack *h = w->h;
    w->at = below(w, h->n_filler);
    while (w->at < h->n_filler && h->filler[w->at] != '.') w->at++;
    skip_between(w);
}

/* The next sentence, from the beginning again after the last. */
static void quote_filler(writer *w, char *out) {
    const haystack *h = w->h;
    size_t n = 0;
    while (!n) {
        if (w->at >= h->n_filler) w->at = 0;
        n = sentence_length(h->filler + w->at, h->n_filler - w->at);
        memcpy(out, h->filler + w->at, n);
        w->at += n;
        skip_between(w);
    }
    out[n] = '\0';
}

/* Sentences are joined by ". ", which the tokenizer never joins with what stands around it: the ids
 * are those of the whole text. */
static ag_status append(writer *w, const char *sentence, ag_error *err) {
    char text[TEXT_SIZE + 4];
    int n = snprintf(text, sizeof text, "%s%s", w->begun ? ". " : "", sentence);
    w->begun = true;
    return ag_tokenizer_encode(w->h->tokenizer, text, (size_t)n, 0, &w->out->ids, err);
}

static ag_status tell_fact(writer *w, fact *f, ag_error *err) {
    char text[160];
    snprintf(text, sizeof text, "The secret of %s's %s %s is %u %s", f->name, f->colour, f->thing,
             f->number, f->shade);
    size_t begin = w->out->ids.n;
    f->told = true;
    ag_status st = append(w, text, err);
    if (f != w->facts) return st;
    w->out->fact_begin = begin;
    w->out->fact_end = w->out->ids.n;
    return st;
}

/* The facts that are due after `share` of the document; *left: those still to come. */
static ag_status tell_due(writer *w, double share, size_t *left, ag_error *err) {
    ag_status st = AG_OK;
    *left = 0;
    for (size_t i = N_FACTS; i-- > 0 && st == AG_OK;) {
        fact *f = &w->facts[i];
        if (!f->told && f->depth <= share) st = tell_fact(w, f, err);
        *left += !f->told;
    }
    return st;
}

static ag_status write_document(writer *w, size_t n_tokens, ag_error *err) {
    ag_ids *ids = &w->out->ids;
    size_t space = n_tokens - N_FACTS * FACT_TOKENS, left = 0;
    char text[TEXT_SIZE];
    ag_status st = tell_due(w, 0, &left, err);
    while (st == AG_OK) {
        size_t before = ids->n;
        if (w->h->filler) quote_filler(w, text);
        else tell_tale(w, text);
        st = append(w, text, err);
        if (ids->n + left * FACT_TOKENS > n_tokens) {
            ids->n = before;
            break;
        }
        size_t facts = (N_FACTS - left) * FACT_TOKENS;
        size_t told = ids->n > facts ? ids->n - facts : 0;
        if (st == AG_OK) st = tell_due(w, (double)told / (double)space, &left, err);
    }
    return st == AG_OK ? tell_due(w, 2, &left, err) : st;
}

ag_status needle_make(const haystack *h, uint64_t number, double depth, needle *out,
                      ag_error *err) {
    writer w = {.h = h, .out = out, .random = h->seed ^ number * 0xd1342543de82ef95u};
    ag_ids question = {0};
    char text[160];
    *out = (needle){.n_document = 0};
    choose_facts(&w, depth);
    if (h->filler) open_filler(&w);
    const fact *f = w.facts;
    snprintf(out->answer, sizeof out->answer, "%u %s", f->number, f->shade);
    int n = snprintf(text, sizeof text,
                     ".\nQuestion: What is the secret of %s's %s %s?\nAnswer:", f->name, f->colour,
                     f->thing);
    ag_status st = ag_tokenizer_encode(h->tokenizer, text, (size_t)n, 0, &question, err);
    if (st == AG_OK) st = ag_tokenizer_encode(h->tokenizer, "", 0, AG_ENCODE_BOS, &out->ids, err);
    if (st == AG_OK) st = write_document(&w, h->n_tokens - question.n, err);
    out->n_document = out->ids.n;
    if (st == AG_OK) { st = ag_tokenizer_encode(h->tokenizer, text, (size_t)n, 0, &out->ids, err); }
    ag_ids_free(&question);
    return st;
}

void needle_free(needle *n) {
    ag_ids_free(&n->ids);
    *n = (needle){.n_document = 0};
}
