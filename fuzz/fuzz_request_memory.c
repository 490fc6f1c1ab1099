/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of chat requests: a template's number, then JSON with "messages" and "tools". The score of
 * an input is the memory that its account takes for each of its bytes: libFuzzer keeps inputs that
 * raise it. No body may take more than MAX_COST bytes for a byte. */
#include "fuzz.h"

#include "../programs/antigravity/serve/account.h"

#include <antigravity/chat.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_TEMPLATES = 4,
    FIXED_COST = 512 << 10, /* bytes that the smallest request takes, and steps of the account */
    MAX_COST = 1024,        /* bytes for a byte of the body */
    STEPS = 16,             /* of the score, for each doubling of the cost */
};

/* libFuzzer takes each of these for an edge of the program that was reached. */
#ifdef __clang__
__attribute__((section("__libfuzzer_extra_counters")))
#endif
static uint8_t scores[256];

static ag_tokenizer *tokenizer;
static ag_chat_format *formats[N_TEMPLATES];

static ag_chat_format *load_format(const char *name) {
    char path[512];
    static char text[1 << 16];
    ag_chat_format *f;
    snprintf(path, sizeof path, AG_SOURCE_DIR "/tests/data/chat/%s.jinja", name);
    FILE *file = fopen(path, "rb");
    if (!file) abort();
    const size_t n = fread(text, 1, sizeof text, file);
    fclose(file);
    if (ag_chat_format_create(text, n, "<BOS>", "<EOS>", tokenizer, &f, NULL) != AG_OK) abort();
    return f;
}

static void set_up(void) {
    static const char *const names[N_TEMPLATES] = {"objects", "parts", "tags", "text_arguments"};
    account_install();
    if (ag_tokenizer_load(AG_SOURCE_DIR "/models/demo", &tokenizer, NULL) != AG_OK) abort();
    for (size_t i = 0; i < N_TEMPLATES; i++) formats[i] = load_format(names[i]);
}

typedef ag_status set_fn(ag_chat *c, const char *json, size_t n, ag_error *err);

static ag_status set_member(ag_chat *c, const json_t *body, const char *key, set_fn *set) {
    const json_t *value = json_object_get(body, key);
    if (!value) return AG_OK;
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    const ag_status st = text ? set(c, text, strlen(text), NULL) : AG_NOMEM;
    account_free(text);
    return st;
}

static void prepare(const ag_chat_format *f, const char *text, size_t n) {
    ag_chat *c = NULL;
    ag_ids ids = {0};
    json_t *body = json_loadb(text, n, 0, NULL);
    if (body && ag_chat_create(f, &c, NULL) == AG_OK &&
        set_member(c, body, "messages", ag_chat_set_messages) == AG_OK &&
        set_member(c, body, "tools", ag_chat_set_tools) == AG_OK)
        ag_chat_render(c, 0, &ids, NULL, NULL);
    ag_ids_free(&ids);
    ag_chat_destroy(c);
    json_decref(body);
}

static void keep_score(size_t cost) {
    size_t score = 0;
    for (; cost >= 2 * STEPS; cost /= 2) score += STEPS;
    score += cost;
    scores[score < sizeof scores ? score : sizeof scores - 1] = 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 2) return 0;
    if (!tokenizer) set_up();
    account_pool pool = {.limit = (size_t)1 << 30};
    account *a = account_create(&pool);
    char *body = malloc(n - 1);
    if (!a || !body) abort();
    memcpy(body, data + 1, n - 1);
    account_begin_work(a, 60, 0);
    prepare(formats[data[0] % N_TEMPLATES], body, n - 1);
    account_end_work(a);
    const size_t taken = atomic_load(&pool.taken);
    if (taken > FIXED_COST) keep_score((taken - FIXED_COST) / n);
    if (taken > FIXED_COST + n * MAX_COST) {
        fprintf(stderr, "%zu bytes for a body of %zu\n", taken, n);
        abort();
    }
    account_release(a);
    if (atomic_load(&pool.taken)) abort(); /* something of it was not freed */
    free(body);
    return 0;
}
