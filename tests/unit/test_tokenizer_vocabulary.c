/* SPDX-License-Identifier: Apache-2.0 */
/* Small handmade tokenizers from the keys of GGUF files. */
#include "support/failing_allocator.h"
#include "text/tokenizer.h"
#include "text/utf8.h"
#include "tokenizer_rows.h"

#include <math.h>

enum { MAX_TOKENS = 400 };

/* A vocabulary that is being built; it owns nothing. */
typedef struct lists {
    ag_source_vocabulary v;
    ag_source_string tokens[MAX_TOKENS], merges[MAX_TOKENS];
    float scores[MAX_TOKENS];
    int32_t types[MAX_TOKENS];
} lists;

static ag_source_string string(const char *s) { return (ag_source_string){s, strlen(s)}; }

static void lists_init(lists *l, const char *model, const char *pre) {
    *l = (lists){.v = {.model = string(model),
                       .pre = string(pre),
                       .bos = -1,
                       .eos = -1,
                       .eot = -1,
                       .eom = -1,
                       .unk = -1,
                       .sep = -1,
                       .pad = -1,
                       .mask = -1,
                       .add_bos = -1,
                       .add_eos = -1,
                       .add_space_prefix = -1}};
    l->v.tokens = l->tokens;
    l->v.merges = l->merges;
    l->v.scores = l->scores;
    l->v.types = l->types;
}

static void add(lists *l, const char *s, int32_t type, float score) {
    l->tokens[l->v.n_tokens] = string(s);
    l->types[l->v.n_tokens] = type;
    l->scores[l->v.n_tokens++] = score;
}

static void add_merge(lists *l, const char *s) { l->merges[l->v.n_merges++] = string(s); }

static ag_tokenizer *make(const lists *l) {
    ag_tokenizer *t;
    ag_error err;
    if (ag_tokenizer_from_vocabulary(&l->v, "x.gguf", &t, &err) != AG_OK) fail_msg("%s", err.msg);
    return t;
}

/* ids: decimal numbers; decoded: their text, including special tokens. */
static void check(const ag_tokenizer *t, unsigned flags, const char *text, const char *ids,
                  const char *decoded) {
    json_t *list = json_array();
    for (char *stop; *ids; ids = stop) {
        json_array_append_new(list, json_integer(strtol(ids, &stop, 10)));
        while (*stop == ' ') stop++;
    }
    rows_check_encode(t, text, strlen(text), flags, list);
    json_t *expected = decoded ? json_string(decoded) : NULL;
    rows_check_decode(t, list, true, expected);
    json_decref(expected);
    json_decref(list);
}

static void expect(const lists *l, ag_status status, const char *message) {
    ag_tokenizer *t = (ag_tokenizer *)&status;
    ag_error err = {0};
    ag_status st = ag_tokenizer_from_vocabulary(&l->v, "x.gguf", &t, &err);
    if (st != status || !strstr(err.msg, message)) fail_msg("\"%s\", not %s", err.msg, message);
    assert_int_equal(strncmp(err.msg, "x.gguf: ", 8), 0);
    assert_null(t);
}

#define G "\xC4\xA0" /* a space in GPT-2's byte alphabet */
#define U "\xE2\x96\x81"

static void byte_level_lists(lists *l, const char *pre) {
    lists_init(l, "gpt2", pre);
    static const char *const tokens[] = {"a", "b", "1", G, "ab", G "a", "11", "aa", "baa"};
    for (size_t i = 0; i < 9; i++) add(l, tokens[i], AG_TOKEN_NORMAL, 0);
    add(l, "<|end|>", AG_TOKEN_CONTROL, 0);     /* 9 */
    add(l, "  ", AG_TOKEN_USER_DEFINED, 0);     /* 10 */
    add(l, "", AG_TOKEN_NORMAL, 0);             /* 11 */
    add(l, "[PAD]", AG_TOKEN_UNUSED, 0);        /* 12 */
    add(l, "", AG_TOKEN_CONTROL, 0);            /* 13 */
    add(l, "<tool>", AG_TOKEN_USER_DEFINED, 0); /* 14 */
    add_merge(l, "a b");
    add_merge(l, G " a");
    add_merge(l, "1 1");
    add_merge(l, "a a");
}

static void byte_level_merges_within_pieces(void **state) {
    (void)state;
    lists l;
    byte_level_lists(&l, "qwen2");
    ag_tokenizer *t = make(&l);
    assert_int_equal(ag_tokenizer_vocab_size(t), 15);
    check(t, 0, "ab ab11", "4 3 4 2 2", "ab ab11"); /* digits are split */
    check(t, 0, "a<|end|>  b", "0 10 1", NULL);     /* characters without a token are dropped */
    check(t, AG_ENCODE_PARSE_SPECIAL, "a<|end|>  b", "0 9 10 1", "a<|end|>  b");
    check(t, 0, "baa", "1 7", "baa");
    check(t, 0, "", "", "");
    assert_true(ag_tokenizer_is_special(t, 9));
    assert_false(ag_tokenizer_is_special(t, 10));
    assert_int_equal(ag_tokenizer_id(t, "", 0), 11);
    size_t n = 1;
    assert_non_null(ag_tokenizer_token(t, 13, &n));
    assert_int_equal(n, 0);
    ag_text out = {0};
    assert_int_equal(ag_tokenizer_decode(t, (int32_t[]){0, 9, 13, 11, 1}, 5, false, &out, NULL),
                     AG_OK);
    assert_string_equal(out.data, "ab");
    ag_text_free(&out);
    ag_tokenizer_destroy(t);
    /* With this pre-tokenizer, a word that is a token needs no merges. */
    byte_level_lists(&l, "llama-bpe");
    t = make(&l);
    check(t, 0, "baa 11", "8 3 6", "baa 11");
    ag_tokenizer_destroy(t);
}

static void adds_bos_and_eos_by_file_or_default(void **state) {
    (void)state;
    static const struct {
        const char *model, *pre;
        int bos, eos, add_bos, add_eos;
        const char *ids;
    } cases[] = {
        {"gpt2", "qwen2", 9, 8, -1, -1, "0"},
        {"gpt2", "qwen2", 9, 8, 1, 1, "9 0 8"},
        {"gpt2", "llama-bpe", 9, 8, -1, -1, "9 0"},
        {"gpt2", "llama-bpe", -1, 8, -1, -1, "0"},
        {"gpt2", "llama-bpe", 9, 8, 0, -1, "0"},
        {"gpt2", "tekken", 9, 8, -1, 0, "9 0"},
        {"gpt2", "", 9, 8, -1, -1, "0"},
        {"llama", "", -1, -1, -1, -1, "1 0"},
        {"llama", "default", 9, 8, -1, 1, "9 0 8"},
        {"llama", "", 9, 8, 0, 0, "0"},
        {"llama", "", 9, -1, 0, 1, "0 2"},
        {"gemma4", "", 9, 8, 0, -1, "9 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lists l;
        byte_level_lists(&l, cases[i].pre);
        l.v.model = string(cases[i].model);
        l.v.bos = cases[i].bos;
        l.v.eos = cases[i].eos;
        l.v.add_bos = cases[i].add_bos;
        l.v.add_eos = cases[i].add_eos;
        l.v.add_space_prefix = 0;
        ag_tokenizer *t = make(&l);
        check(t, AG_ENCODE_BOS, "a", cases[i].ids, NULL);
        check(t, 0, "a", "0", "a");
        ag_tokenizer_destroy(t);
    }
}

static void treats_end_of_text_as_special(void **state) {
    (void)state;
    lists l;
    byte_level_lists(&l, "gpt-2");
    l.v.eot = 14;
    l.v.bos = 12;
    l.v.eos = 0; /* but a word is one token */
    ag_tokenizer *t = make(&l);
    assert_true(ag_tokenizer_is_special(t, 14));
    assert_true(ag_tokenizer_is_special(t, 12));
    assert_false(ag_tokenizer_is_special(t, 0));
    check(t, AG_ENCODE_PARSE_SPECIAL, "a[PAD]<tool>", "0 12 14", "a[PAD]<tool>");
    check(t, 0, "a<tool>", "0", NULL);
    ag_tokenizer_destroy(t);
}

static char byte_names[256][8];

/* <unk> <s> </s> and the byte tokens, then tokens from 259 on. */
static void scored_lists(lists *l) {
    lists_init(l, "llama", "");
    add(l, "<unk>", AG_TOKEN_UNKNOWN, 0);
    add(l, "<s>", AG_TOKEN_CONTROL, 0);
    add(l, "</s>", AG_TOKEN_CONTROL, 0);
    for (int i = 0; i < 256; i++) {
        snprintf(byte_names[i], sizeof byte_names[i], "<0x%02X>", (unsigned)i);
        add(l, byte_names[i], AG_TOKEN_BYTE, 0);
    }
}

static void merges_by_score(void **state) {
    (void)state;
    lists l;
    scored_lists(&l);
    static const struct {
        const char *s;
        float score;
    } tokens[] = {{U, -1},    {"a", -1},  {"b", -1},   {"c", -1},   {"ab", -3},
                  {"bc", -3}, {"ca", -2}, {U "a", -5}, {"abc", -9}, {"aa", -4}};
    for (size_t i = 0; i < 10; i++) add(&l, tokens[i].s, AG_TOKEN_NORMAL, tokens[i].score);
    add(&l, "<t>", AG_TOKEN_USER_DEFINED, 0); /* 269 */
    add(&l, "s>", AG_TOKEN_NORMAL, 0);        /* 270 */
    add(&l, "s", AG_TOKEN_NORMAL, 0);
    add(&l, ">", AG_TOKEN_NORMAL, 0);
    add(&l, "<", AG_TOKEN_NORMAL, 0); /* 273 */
    l.v.add_space_prefix = 0;
    ag_tokenizer *t = make(&l);
    check(t, 0, "abc", "267", "abc");
    check(t, 0, "abca", "263 265", "abca"); /* "ca" first, then "ab" */
    check(t, 0, "aaa", "268 260", "aaa");   /* the left pair wins a tie */
    check(t, 0, "a a", "260 266", "a a");
    check(t, 0, "\xC3\xA9<t>b", "198 172 269 261", "\xC3\xA9<t>b");
    check(t, 0, "<s>", "273 270", "<s>"); /* never a control token */
    check(t, AG_ENCODE_PARSE_SPECIAL | AG_ENCODE_BOS, "<s>a", "1 1 260", NULL);
    ag_tokenizer_destroy(t);
    l.v.add_space_prefix = -1;
    t = make(&l);
    check(t, 0, "a<t> a", "266 269 259 266", "a<t>  a"); /* a space is inserted before each part */
    check(t, 0, "", "", "");
    ag_tokenizer_destroy(t);
}

/* SentencePiece's BPE in its simplest form. */
static size_t merge_slowly(const lists *l, const char *text, int32_t *ids) {
    size_t start[64], n = 0;
    for (size_t i = 0; i < strlen(text); i += ag_utf8_len(text[i])) start[n++] = i;
    start[n] = strlen(text);
    for (;;) {
        size_t best = n;
        float score = -INFINITY;
        for (size_t i = 0; i + 1 < n; i++) {
            size_t len = start[i + 2] - start[i];
            for (size_t k = 259; k < l->v.n_tokens; k++) {
                if (l->tokens[k].n != len || memcmp(l->tokens[k].text, text + start[i], len) != 0)
                    continue;
                if (l->scores[k] > score) {
                    score = l->scores[k];
                    best = i;
                }
            }
        }
        if (best == n) break;
        memmove(start + best + 1, start + best + 2, (n - best - 1) * sizeof *start);
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 259; k < l->v.n_tokens; k++) {
            size_t len = start[i + 1] - start[i];
            if (l->tokens[k].n == len && memcmp(l->tokens[k].text, text + start[i], len) == 0)
                ids[i] = (int32_t)k;
        }
    }
    return n;
}

static uint32_t next_random(uint32_t *seed, uint32_t n) {
    *seed = *seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)*seed * n) >> 32);
}

static void random_vocabularies_match_a_simple_merge(void **state) {
    (void)state;
    static const char *const letters[] = {"a", "b", "c", "\xC3\xA9"};
    static char names[120][20];
    uint32_t seed = 7;
    for (int round = 0; round < 40; round++) {
        lists l;
        scored_lists(&l);
        l.v.add_space_prefix = 0;
        for (int i = 0; i < 4; i++) add(&l, letters[i], AG_TOKEN_NORMAL, -1);
        for (int i = 0; i < 120; i++) {
            names[i][0] = '\0';
            for (uint32_t n = 2 + next_random(&seed, 4); n; n--) {
                strcat(names[i], letters[next_random(&seed, 4)]);
            }
            bool known = false;
            for (int k = 0; k < i; k++) known |= strcmp(names[k], names[i]) == 0;
            if (!known) add(&l, names[i], AG_TOKEN_NORMAL, -(float)next_random(&seed, 20));
        }
        ag_tokenizer *t = make(&l);
        for (int k = 0; k < 50; k++) {
            char text[160] = "";
            int32_t expected[64];
            for (uint32_t n = 1 + next_random(&seed, 60); n; n--) {
                strcat(text, letters[next_random(&seed, 4)]);
            }
            size_t n = merge_slowly(&l, text, expected);
            ag_ids ids = {0};
            assert_int_equal(ag_tokenizer_encode(t, text, strlen(text), 0, &ids, NULL), AG_OK);
            assert_int_equal(ids.n, n);
            assert_memory_equal(ids.data, expected, n * sizeof *expected);
            ag_ids_free(&ids);
        }
        ag_tokenizer_destroy(t);
    }
}

/* Pieces of SentencePiece with a list of merges. */
static void gemma_4_merges_by_rank_and_escapes_spaces(void **state) {
    (void)state;
    lists l;
    scored_lists(&l);
    l.v.model = string("gemma4");
    l.v.bos = 1;
    static const char *const tokens[] = {U, "a", "b", "\n", U "a", "\n\n", U U};
    for (size_t i = 0; i < 7; i++) add(&l, tokens[i], AG_TOKEN_NORMAL, 0);
    add_merge(&l, U " " U);
    add_merge(&l, U " a");
    add_merge(&l, "\n \n");
    ag_tokenizer *t = make(&l);
    check(t, 0, " a  a\n\nb", "263 265 260 264 261", " a  a\n\nb");
    check(t, AG_ENCODE_BOS, "\xF0\x9F\x98\x80", "1 243 162 155 131", NULL);
    ag_tokenizer_destroy(t);
}

/* The tokens of Phi-3 strip the white space that follows them, as in its tokenizer.json. */
static void phi_3_tokens_strip_following_spaces(void **state) {
    (void)state;
    enum { N = 32003 };
    lists l;
    scored_lists(&l);
    add(&l, U, AG_TOKEN_NORMAL, 0);
    add(&l, "a", AG_TOKEN_NORMAL, 0);
    ag_source_string *tokens = calloc(N, sizeof *tokens);
    int32_t *types = calloc(N, sizeof *types);
    float *scores = calloc(N, sizeof *scores);
    memcpy(tokens, l.tokens, l.v.n_tokens * sizeof *tokens);
    memcpy(types, l.types, l.v.n_tokens * sizeof *types);
    tokens[32001] = string("<|assistant|>");
    tokens[32002] = string("<|placeholder1|>");
    types[32001] = types[32002] = AG_TOKEN_CONTROL;
    l.v.n_tokens = N;
    l.v.tokens = tokens;
    l.v.types = types;
    l.v.scores = scores;
    ag_tokenizer *t = make(&l);
    check(t, AG_ENCODE_PARSE_SPECIAL, "<|assistant|>\n a<s> a", "32001 259 260 1 259 259 260",
          NULL);
    ag_tokenizer_destroy(t);
    free(tokens);
    free(types);
    free(scores);
}

/* The generator of tools/make_pre_vectors.py. */
static uint64_t next_below(uint64_t *state, uint64_t n) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (*state >> 33) % n;
}

static void make_text(const json_t *snippets, uint64_t state, ag_text *text) {
    static const uint64_t planes[] = {0x180, 0x3100, 0x10000, 0x110000};
    text->len = 0;
    for (uint64_t n = 1 + next_below(&state, 24); n; n--) {
        if (next_below(&state, 8) < 6) {
            uint64_t n_used = 1 + next_below(&state, json_array_size(snippets));
            const json_t *s = json_array_get(snippets, next_below(&state, n_used));
            ag_text_append(text, json_string_value(s), json_string_length(s), NULL);
            continue;
        }
        uint64_t cp = next_below(&state, planes[next_below(&state, 4)]);
        ag_text_append_char(text, (uint32_t)(cp >= 0xD800 && cp < 0xE000 ? 0xFFFD : cp), NULL);
    }
}

static uint64_t hash_ids(uint64_t h, const ag_ids *ids) {
    for (size_t i = 0; i <= ids->n; i++) {
        h = (h ^ (i < ids->n ? (uint32_t)ids->data[i] : UINT32_MAX)) * UINT64_C(0x100000001B3);
    }
    return h;
}

static ag_source_string *string_list(const json_t *list) {
    ag_source_string *out = calloc(json_array_size(list) + 1, sizeof *out);
    const json_t *v;
    size_t i;
    json_array_foreach(list, i, v) {
        out[i] = (ag_source_string){json_string_value(v), json_string_length(v)};
    }
    return out;
}

/* Compares the ids of all texts with recorded hashes, one for every few texts. */
static void check_hashes(const ag_tokenizer *t, const json_t *file, const char *name,
                         const json_t *expected) {
    json_int_t n_texts = json_integer_value(json_object_get(file, "n_texts"));
    json_int_t block = json_integer_value(json_object_get(file, "block"));
    ag_text text = {0};
    ag_ids ids = {0};
    ag_error err;
    assert_int_equal(json_array_size(expected), n_texts / block);
    for (json_int_t i = 0; i < n_texts; i += block) {
        uint64_t h = UINT64_C(0xCBF29CE484222325);
        for (json_int_t k = i; k < i + block; k++) {
            make_text(json_object_get(file, "snippets"), (uint64_t)k, &text);
            ids.n = 0;
            if (ag_tokenizer_encode(t, text.data, text.len, 0, &ids, &err) != AG_OK) {
                fail_msg("%s", err.msg);
            }
            h = hash_ids(h, &ids);
        }
        char hex[32];
        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)h);
        const char *expected_hash =
            json_string_value(json_array_get(expected, (size_t)(i / block)));
        if (strcmp(hex, expected_hash) != 0) {
            fail_msg("\"%s\": texts from %d: %s, not %s", name, (int)i, hex, expected_hash);
        }
    }
    ag_ids_free(&ids);
    ag_text_free(&text);
}

static void pre_tokenizers_match_recorded_pieces(void **state) {
    (void)state;
    json_t *file = rows_load("pre.json"), *hashes = json_object_get(file, "hashes"), *expected;
    const char *name;
    lists l;
    lists_init(&l, "gpt2", "");
    l.v.tokens = string_list(json_object_get(file, "tokens"));
    l.v.n_tokens = json_array_size(json_object_get(file, "tokens"));
    l.v.merges = string_list(json_object_get(file, "merges"));
    l.v.n_merges = json_array_size(json_object_get(file, "merges"));
    l.v.types = NULL;
    assert_true(json_object_size(hashes) > 20);
    json_object_foreach(hashes, name, expected) {
        l.v.pre = string(name);
        ag_tokenizer *t = make(&l);
        check_hashes(t, file, name, expected);
        ag_tokenizer_destroy(t);
    }
    free(l.v.tokens);
    free(l.v.merges);
    json_decref(file);
}

static void rejects_bad_vocabularies_with_a_reason(void **state) {
    (void)state;
    static const char *const models[] = {"t5", "bert", "rwkv", "plamo2", ""};
    lists l;
    char message[80];
    for (size_t i = 0; i < 5; i++) {
        byte_level_lists(&l, "qwen2");
        l.v.model = string(models[i]);
        snprintf(message, sizeof message, "tokenizer model \"%s\" is not supported", models[i]);
        expect(&l, AG_UNSUPPORTED, message);
    }
    byte_level_lists(&l, "kimi-k2");
    expect(&l, AG_UNSUPPORTED, "pre-tokenizer \"kimi-k2\" is not supported");
    byte_level_lists(&l, "qwen");
    expect(&l, AG_UNSUPPORTED, "pre-tokenizer \"qwen\" is not supported");
    byte_level_lists(&l, "qwen2");
    l.v.n_merges = 0;
    expect(&l, AG_FORMAT, "tokenizer.ggml.merges is missing");
    byte_level_lists(&l, "qwen2");
    add_merge(&l, "a x");
    expect(&l, AG_FORMAT, "merge 4: token \"x\" is not in the vocabulary");
    byte_level_lists(&l, "qwen2");
    add_merge(&l, "b b");
    expect(&l, AG_FORMAT, "merge 4: token \"bb\" is not in the vocabulary");
    byte_level_lists(&l, "qwen2");
    add_merge(&l, " ab");
    expect(&l, AG_FORMAT, "merge 4 has no space");
    byte_level_lists(&l, "qwen2");
    add_merge(&l, "");
    expect(&l, AG_FORMAT, "merge 4 has no space");
    byte_level_lists(&l, "qwen2");
    add(&l, "ab", AG_TOKEN_NORMAL, 0);
    expect(&l, AG_FORMAT, "token 15: token \"ab\" has id 4, but also id 15");
    byte_level_lists(&l, "qwen2");
    add(&l, "a\xC3", AG_TOKEN_NORMAL, 0);
    expect(&l, AG_FORMAT, "token 15 is not UTF-8 at byte 1 of 2");
    byte_level_lists(&l, "qwen2");
    l.v.add_bos = 1;
    expect(&l, AG_FORMAT,
           "add_bos_token is set, but bos_token_id is -1: the vocabulary has 15 tokens");
    l.v.bos = 0;
    l.v.add_eos = 1;
    l.v.eos = 15;
    expect(&l, AG_FORMAT,
           "add_eos_token is set, but eos_token_id is 15: the vocabulary has 15 tokens");
    scored_lists(&l);
    add(&l, "a", AG_TOKEN_NORMAL, NAN);
    expect(&l, AG_FORMAT, "the score of token 259 is not a number");
    l.v.scores = NULL;
    expect(&l, AG_FORMAT, "tokenizer.ggml.scores is missing");
    scored_lists(&l);
    char *lengthy = calloc(1, 5000);
    memset(lengthy, 'a', 4999);
    add(&l, lengthy, AG_TOKEN_NORMAL, 0);
    expect(&l, AG_FORMAT, "token 259 has 4999 bytes, at most 1024 are supported");
    l.types[259] = AG_TOKEN_CONTROL;
    expect(&l, AG_FORMAT, "token 259: content has 4999 bytes, at most 4096 are allowed");
    free(lengthy);
}

static void reads_files_without_token_types(void **state) {
    (void)state;
    lists l;
    byte_level_lists(&l, "gpt-2");
    l.v.types = NULL;
    l.v.scores = NULL;
    ag_tokenizer *t = make(&l);
    assert_false(ag_tokenizer_is_special(t, 9));
    check(t, 0, "aa", "7", "aa");
    ag_tokenizer_destroy(t);
}

static ag_status use(const lists *l, ag_error *err) {
    static const char text[] =
        "ab <|end|> aa11 <tool> abababababababababababababababababababababab";
    ag_tokenizer *t;
    ag_ids ids = {0};
    ag_text out = {0};
    ag_status st = ag_tokenizer_from_vocabulary(&l->v, "x.gguf", &t, err);
    if (st == AG_OK) st = ag_tokenizer_encode(t, text, sizeof text - 1, 3, &ids, err);
    if (st == AG_OK) st = ag_tokenizer_decode(t, ids.data, ids.n, true, &out, err);
    ag_ids_free(&ids);
    ag_text_free(&out);
    ag_tokenizer_destroy(t);
    return st;
}

static void fails_without_leaks_when_an_allocation_fails(void **state) {
    (void)state;
    static const char *const kinds[] = {"gpt2", "llama", "gemma4"};
    for (size_t k = 0; k < 3; k++) {
        lists l;
        byte_level_lists(&l, "qwen2");
        l.v.model = string(kinds[k]);
        l.v.bos = 9;
        for (size_t n = 0;; n++) {
            failing_allocator f;
            ag_error err = {0};
            assert_true(n < 10000);
            failing_install(&f, n);
            ag_status st = use(&l, &err);
            ag_set_allocator(NULL);
            assert_int_equal(f.in_use, 0);
            /* If PCRE2 cannot compile a pattern to machine code, it interprets it. */
            if (st != AG_NOMEM && (st != AG_OK || (f.failed && k != 0))) {
                fail_msg("allocation %zu: %s", n, err.msg);
            }
            if (!f.failed) break;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_merges_within_pieces),
        cmocka_unit_test(adds_bos_and_eos_by_file_or_default),
        cmocka_unit_test(treats_end_of_text_as_special),
        cmocka_unit_test(merges_by_score),
        cmocka_unit_test(random_vocabularies_match_a_simple_merge),
        cmocka_unit_test(gemma_4_merges_by_rank_and_escapes_spaces),
        cmocka_unit_test(phi_3_tokens_strip_following_spaces),
        cmocka_unit_test(pre_tokenizers_match_recorded_pieces),
        cmocka_unit_test(rejects_bad_vocabularies_with_a_reason),
        cmocka_unit_test(reads_files_without_token_types),
        cmocka_unit_test(fails_without_leaks_when_an_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
