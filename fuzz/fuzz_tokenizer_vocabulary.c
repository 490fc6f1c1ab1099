/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the vocabulary of a GGUF file. The input consists of records that end with the byte 0xFE:
 * 'T', type, score and a token; 'M' and a merge; 'K' and the kind of model; 'P' and the
 * pre-tokenizer; 'I', an index into the numbers, and a value. */
#include "tokenizer_check.h"

#include "text/tokenizer.h"

enum { MAX_RECORDS = 4096, END = 0xFE };

typedef struct lists {
    ag_source_vocabulary v;
    ag_source_string tokens[MAX_RECORDS], merges[MAX_RECORDS];
    float scores[MAX_RECORDS];
    int32_t types[MAX_RECORDS];
} lists;

static void set_number(ag_source_vocabulary *v, unsigned char index, unsigned char value) {
    int64_t *const numbers[] = {&v->bos,
                                &v->eos,
                                &v->eot,
                                &v->eom,
                                &v->unk,
                                &v->sep,
                                &v->pad,
                                &v->mask,
                                &v->add_bos,
                                &v->add_eos,
                                &v->add_space_prefix};
    int64_t *number = numbers[index % (sizeof numbers / sizeof *numbers)];
    *number = value;
    if (index % (sizeof numbers / sizeof *numbers) >= 8) *number = value & 1;
}

/* s: the record without its first byte. */
static void add_record(lists *l, unsigned char kind, const char *s, size_t n) {
    ag_source_vocabulary *v = &l->v;
    if (kind == 'T' && n >= 2 && v->n_tokens < MAX_RECORDS) {
        l->types[v->n_tokens] = s[0];
        l->scores[v->n_tokens] = -(float)(unsigned char)s[1];
        l->tokens[v->n_tokens++] = (ag_source_string){s + 2, n - 2};
    } else if (kind == 'M' && v->n_merges < MAX_RECORDS) {
        l->merges[v->n_merges++] = (ag_source_string){s, n};
    } else if (kind == 'K') {
        v->model = (ag_source_string){s, n};
    } else if (kind == 'P') {
        v->pre = (ag_source_string){s, n};
    } else if (kind == 'I' && n >= 2) {
        set_number(v, (unsigned char)s[0], (unsigned char)s[1]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static lists l;
    char *copy = malloc(n ? n : 1);
    if (!copy) return 0;
    if (n) memcpy(copy, data, n);
    l.v = (ag_source_vocabulary){.bos = -1,
                                 .eos = -1,
                                 .eot = -1,
                                 .eom = -1,
                                 .unk = -1,
                                 .sep = -1,
                                 .pad = -1,
                                 .mask = -1,
                                 .add_bos = -1,
                                 .add_eos = -1,
                                 .add_space_prefix = -1,
                                 .tokens = l.tokens,
                                 .merges = l.merges,
                                 .scores = l.scores,
                                 .types = l.types};
    for (size_t i = 0, end; i < n; i = end + 1) {
        for (end = i; end < n && (unsigned char)copy[end] != END;) end++;
        if (end > i) add_record(&l, (unsigned char)copy[i], copy + i + 1, end - i - 1);
    }
    ag_tokenizer *t;
    ag_error err;
    ag_status st = ag_tokenizer_from_vocabulary(&l.v, "input", &t, &err);
    free(copy); /* the tokenizer borrows nothing from it */
    if ((st == AG_OK) != (t != NULL)) abort();
    if (t) check_tokenizer(t);
    ag_tokenizer_destroy(t);
    return 0;
}
