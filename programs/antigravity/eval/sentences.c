/* SPDX-License-Identifier: Apache-2.0 */
#include "sentences.h"

#include <stdio.h>
#include <string.h>

/* Vocabulary of the tales; a letter after '%' in a template selects the list. */
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
#define PICK(r, list) ((list)[seeded_below(r, COUNT(list))])

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

static const char *word_for(seeded *r, char letter) {
    switch (letter) {
    case 'p':
        return PICK(r, people);
    case 'b':
        return PICK(r, beasts);
    case 'l':
        return PICK(r, places);
    case 'k':
        return PICK(r, kinds);
    default:
        return PICK(r, goods);
    }
}

static void write_tale(seeded *r, char *out) {
    size_t n = 0;
    for (const char *t = PICK(r, templates); *t; t++) {
        if (*t == '%') n += (size_t)sprintf(out + n, "%s", word_for(r, *++t));
        else out[n++] = *t;
    }
    out[n] = '\0';
}

/* Returns the length up to ". ". Splits a long sentence at a space. */
static size_t sentence_length(const char *text, size_t n) {
    size_t space = 0;
    for (size_t i = 0; i + 1 < n && i < SENTENCE_SIZE - 4; i++) {
        if (text[i] == '.' && (text[i + 1] == ' ' || text[i + 1] == '\n')) return i;
        if (text[i] == ' ') space = i;
    }
    if (space || n < SENTENCE_SIZE - 4) return space ? space : n;
    size_t end = SENTENCE_SIZE - 4;
    while (end > 1 && ((unsigned char)text[end] & 0xc0) == 0x80)
        end--; /* do not split UTF-8 characters */
    return end;
}

/* Returns true also for NUL. */
static bool is_separator(char c) { return strchr(". \n\r", c) != NULL; }

static void skip_separators(sentences *s) {
    while (s->at < s->n_text && is_separator(s->text[s->at])) s->at++;
}

bool sentences_in(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!is_separator(text[i])) return true;
    return false;
}

void sentences_open(sentences *s) {
    if (!s->text) return;
    s->at = seeded_below(s->random, s->n_text);
    while (s->at < s->n_text && s->text[s->at] != '.') s->at++;
    skip_separators(s);
}

static void write_quote(sentences *s, char *out) {
    size_t n = 0;
    while (!n) {
        if (s->at >= s->n_text) s->at = 0;
        n = sentence_length(s->text + s->at, s->n_text - s->at);
        memcpy(out, s->text + s->at, n);
        s->at += n;
        skip_separators(s);
    }
    out[n] = '\0';
}

void sentences_next(sentences *s, char *out) {
    if (s->text) write_quote(s, out);
    else write_tale(s->random, out);
}
