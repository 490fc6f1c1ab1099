/* SPDX-License-Identifier: Apache-2.0 */
/* Measures and checks token masks of JSON schemas. Standard input holds one case per line: {"id":
 * ..., "schema": TEXT, "tests": [{"text": TEXT, "valid": BOOL}, ...]}. Prints one result line per
 * case, then one with the times. Used by tools/mask_bench.py. */
#include <antigravity/antigravity.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct bench {
    ag_tokenizer *tokenizer;
    ag_constraint_vocab *vocab;
    size_t n_vocab;
    int32_t eos;
    ag_json_order order;
    bool closed;
    float *mask_us, *compile_us;
    size_t n_masks, masks_cap, n_compiled, compiled_cap;
} bench;

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* excludes other processes */
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void add_time(float **list, size_t *n, size_t *cap, double us) {
    if (*n == *cap) {
        *cap = *cap ? 2 * *cap : 1024;
        *list = realloc(*list, *cap * sizeof **list);
        if (!*list) abort();
    }
    (*list)[(*n)++] = (float)us;
}

/* Feeds the text token by token and checks each in the mask. Returns -1 if all are allowed and the
 * text may end; else the index of the rejected token. */
static long accepts(bench *b, ag_constraint *c, const char *text, double *longest) {
    ag_ids ids = {0};
    ag_error err;
    long rejected_at = -1;
    if (ag_tokenizer_encode(b->tokenizer, text, strlen(text), 0, &ids, &err) != AG_OK) {
        fprintf(stderr, "%s\n", err.msg);
        exit(1);
    }
    if (ag_constraint_reset(c, &err) != AG_OK) abort();
    for (size_t i = 0; i < ids.n && rejected_at < 0; i++) {
        const uint32_t *mask;
        const double start = now_us();
        const ag_status st = ag_constraint_mask(c, &mask, &err);
        const bool allowed = st == AG_OK && mask[ids.data[i] / 32] >> (ids.data[i] % 32) & 1;
        if (!allowed || ag_constraint_accept(c, ids.data[i], &err) != AG_OK) rejected_at = (long)i;
        const double us = now_us() - start;
        add_time(&b->mask_us, &b->n_masks, &b->masks_cap, us);
        if (us > *longest) *longest = us;
    }
    if (rejected_at < 0 && !ag_constraint_may_end(c)) rejected_at = (long)ids.n;
    ag_ids_free(&ids);
    return rejected_at;
}

static json_t *run_case(bench *b, const json_t *c) {
    const char *schema = json_string_value(json_object_get(c, "schema"));
    ag_constraint_params params = ag_constraint_defaults(AG_CONSTRAINT_JSON_SCHEMA);
    params.text = schema;
    params.len = strlen(schema);
    params.order = b->order;
    params.closed_objects = b->closed;
    ag_constraint *constraint;
    ag_error err;
    json_t *out = json_object();
    json_object_set(out, "id", json_object_get(c, "id"));
    const double start = now_us();
    const ag_status st = ag_constraint_create(b->vocab, &params, &constraint, &err);
    const double us = now_us() - start;
    json_object_set_new(out, "compile_us", json_integer((long long)us));
    if (st != AG_OK) {
        json_object_set_new(out, "status", json_string(ag_status_name(st)));
        json_object_set_new(out, "error", json_string(err.msg));
        return out;
    }
    add_time(&b->compile_us, &b->n_compiled, &b->compiled_cap, us);
    json_t *wrong = json_array(), *test;
    size_t i;
    double longest = 0;
    json_array_foreach(json_object_get(c, "tests"), i, test) {
        const bool valid = json_is_true(json_object_get(test, "valid"));
        const char *text = json_string_value(json_object_get(test, "text"));
        const long rejected_at = accepts(b, constraint, text, &longest);
        if ((rejected_at < 0) == valid) continue;
        json_array_append_new(wrong, json_pack("{s:i, s:b, s:i}", "test", (int)i, "valid", valid,
                                               "token", (int)rejected_at));
    }
    json_object_set_new(out, "wrong", wrong);
    json_object_set_new(out, "longest_us", json_integer((long long)longest));
    ag_constraint_destroy(constraint);
    return out;
}

static int compare_times(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static json_t *summary(float *list, size_t n) {
    static const double quantiles[] = {0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1};
    json_t *out = json_object();
    double sum = 0;
    if (!n) return out;
    qsort(list, n, sizeof *list, compare_times);
    for (size_t i = 0; i < n; i++) sum += list[i];
    json_object_set_new(out, "n", json_integer((json_int_t)n));
    json_object_set_new(out, "mean", json_real(sum / (double)n));
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%g", quantiles[i] * 100);
        size_t at = (size_t)(quantiles[i] * (double)n);
        json_object_set_new(out, name, json_real((double)list[at < n ? at : n - 1]));
    }
    return out;
}

static void print_line(json_t *v) {
    json_dumpf(v, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(v);
}

static bool open_bench(bench *b, const char *model, ag_error *err) {
    if (ag_tokenizer_load(model, &b->tokenizer, err) != AG_OK) return false;
    b->n_vocab = (size_t)ag_tokenizer_vocab_size(b->tokenizer);
    static const char *const ends[] = {"<|eot_id|>", "<|end_of_text|>", "<|endoftext|>", "</s>"};
    b->eos = -1;
    for (size_t i = 0; i < 4 && b->eos < 0; i++) {
        b->eos = ag_tokenizer_id(b->tokenizer, ends[i], strlen(ends[i]));
    }
    const double start = now_us();
    if (ag_constraint_vocab_create(b->tokenizer, b->n_vocab, &b->eos, 1, &b->vocab, err) != AG_OK)
        return false;
    fprintf(stderr, "%zu tokens, prepared in %.1f ms\n", b->n_vocab, (now_us() - start) / 1000);
    return true;
}

int main(int argc, char **argv) {
    bool is_valid = argc > 1;
    bench b = {.order = AG_JSON_DECLARED_ORDER};
    ag_error err;
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "--any-order")) b.order = AG_JSON_ANY_ORDER;
        else if (!strcmp(argv[i], "--closed")) b.closed = true;
        else is_valid = false;
    }
    if (!is_valid || !open_bench(&b, argv[1], &err)) {
        fprintf(stderr, "%s\n",
                is_valid ? err.msg : "mask_bench TOKENIZER [--any-order] [--closed] < CASES");
        return is_valid ? 1 : 2;
    }
    char *line = NULL;
    size_t cap = 0;
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;) {
        json_error_t e;
        json_t *c = json_loadb(line, (size_t)n, 0, &e);
        if (!c) {
            fprintf(stderr, "a case is not JSON: %s\n", e.text);
            return 1;
        }
        print_line(run_case(&b, c));
        json_decref(c);
    }
    json_t *all = json_object();
    json_object_set_new(all, "mask_us", summary(b.mask_us, b.n_masks));
    json_object_set_new(all, "compile_us", summary(b.compile_us, b.n_compiled));
    print_line(all);
    free(line);
    free(b.mask_us);
    free(b.compile_us);
    ag_constraint_vocab_destroy(b.vocab);
    ag_tokenizer_destroy(b.tokenizer);
    return 0;
}
