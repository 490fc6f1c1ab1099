/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are rejected, each with a one-line message. */
#include "tokenizer_rows.h"

#include <antigravity/alloc.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODEL(vocab, merges) "{\"model\":{\"vocab\":" vocab ",\"merges\":" merges "}"
#define PLAIN MODEL("{\"a\":0,\"b\":1,\"ab\":2}", "[\"a b\"]")

static void expect(const char *json, size_t len, ag_status status, const char *message) {
    ag_tokenizer *t = (ag_tokenizer *)&len;
    ag_error err = {0};
    ag_status st = ag_tokenizer_parse(json, len, "bad.json", &t, &err);
    if (st != status) fail_msg("%.200s: %s, not %s", json, err.msg, ag_status_name(status));
    assert_null(t);
    if (strncmp(err.msg, "bad.json: ", 10) != 0 || !strstr(err.msg, message)) {
        fail_msg("%.200s: \"%s\" does not say \"%s\"", json, err.msg, message);
    }
}

static const struct {
    const char *json;
    ag_status status;
    const char *message;
} bad_files[] = {
    {"", AG_FORMAT, "line 1"},
    {"[]", AG_FORMAT, "the file is an array, it must be an object"},
    {"{}", AG_FORMAT, "model is missing, it must be an object"},
    {"{\"model\":7}", AG_FORMAT, "model is an integer, it must be an object"},
    {"{\"model\":{\"vocab\":{\"a\":0},\"merges\":[]", AG_FORMAT, "line 1"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", AG_UNSUPPORTED,
     "model: \"WordPiece\" is not supported"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":{}}}", AG_FORMAT,
     "model.vocab is an object, it must be an array"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[1,0]]}}", AG_FORMAT,
     "model.vocab[1] must be [\"token\", score]"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", AG_FORMAT,
     "model.vocab[0] has no score"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"a\",1]]}}", AG_FORMAT,
     "model.vocab: token \"a\" has id 0, but also id 1"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],\"unk_id\":1}}", AG_FORMAT,
     "model.unk_id is 1: the vocabulary has 1 tokens"},
    {"{\"model\":{\"type\":3}}", AG_FORMAT, "model.type is an integer, it must be a string"},
    {"{\"model\":{\"vocab\":[],\"merges\":[]}}", AG_FORMAT, "model.vocab is an array"},
    {"{\"model\":{\"vocab\":{\"a\":0}}}", AG_FORMAT, "model.merges is missing"},
    {MODEL("{\"a\":\"0\"}", "[]") "}", AG_FORMAT, "the id of \"a\" must be an integer"},
    {MODEL("{\"a\":-1}", "[]") "}", AG_FORMAT, "id -1 of \"a\" must be in 0.."},
    {MODEL("{\"a\":2147483648}", "[]") "}", AG_FORMAT, "id 2147483648 of \"a\""},
    {MODEL("{\"a\":1099511627776}", "[]") "}", AG_FORMAT, "id 1099511627776 of \"a\""},
    {MODEL("{\"a\":99999999999999999999}", "[]") "}", AG_FORMAT, "too big integer"},
    {MODEL("{\"a\":1.5}", "[]") "}", AG_FORMAT, "the id of \"a\" must be an integer"},
    {MODEL("{\"a\":0,\"b\":0}", "[]") "}", AG_FORMAT, "id 0 belongs to \"b\" and to \"a\""},
    {MODEL("{\"a\":0,\"b\":1}", "[\"a b\"]") "}", AG_FORMAT,
     "model.merges[0]: token \"ab\" is not in the vocabulary"},
    {MODEL("{\"a\":0}", "[\"a x\"]") "}", AG_FORMAT, "token \"x\" is not in the vocabulary"},
    {MODEL("{\"a\":0}", "[\"a\"]") "}", AG_FORMAT, "\"a\" must contain one space"},
    {MODEL("{\"a\":0}", "[\"a b c\"]") "}", AG_FORMAT, "must contain one space"},
    {MODEL("{\"a\":0}", "[[\"a\"]]") "}", AG_FORMAT, "model.merges[0] must be"},
    {MODEL("{\"a\":0}", "[[\"a\",1]]") "}", AG_FORMAT, "model.merges[0] must be"},
    {MODEL("{\"a\":0}", "[null]") "}", AG_FORMAT, "model.merges[0] must be"},
    {"{\"model\":{\"vocab\":{},\"merges\":[],\"continuing_subword_prefix\":\"##\"}}",
     AG_UNSUPPORTED, "model.continuing_subword_prefix: \"##\""},
    {"{\"model\":{\"vocab\":{},\"merges\":[],\"dropout\":0.1}}", AG_UNSUPPORTED, "dropout"},
    {"{\"model\":{\"vocab\":{},\"merges\":[],\"fuse_unk\":1}}", AG_FORMAT,
     "model.fuse_unk is an integer, it must be true or false"},
    {PLAIN ",\"added_tokens\":{}}", AG_FORMAT, "added_tokens must be an array"},
    {PLAIN ",\"added_tokens\":[1]}", AG_FORMAT, "added_tokens[0] is an integer"},
    {PLAIN ",\"added_tokens\":[{\"id\":3}]}", AG_FORMAT, "added_tokens[0].content is missing"},
    {PLAIN ",\"added_tokens\":[{\"content\":\"x\"}]}", AG_FORMAT, "added_tokens[0].id is missing"},
    {PLAIN ",\"added_tokens\":[{\"content\":\"x\",\"id\":1}]}", AG_FORMAT,
     "added_tokens[0]: id 1 belongs to \"x\" and to \"b\""},
    {PLAIN ",\"added_tokens\":[{\"content\":\"b\",\"id\":7}]}", AG_FORMAT,
     "added_tokens[0]: token \"b\" has id 1, but also id 7"},
    {PLAIN ",\"added_tokens\":[{\"content\":\"x\",\"id\":4294967296}]}", AG_FORMAT,
     "id 4294967296"},
    {PLAIN ",\"added_tokens\":[{\"content\":\"x\",\"id\":3,\"special\":\"no\"}]}", AG_FORMAT,
     "added_tokens[0].special is a string"},
    {PLAIN ",\"normalizer\":[]}", AG_FORMAT, "normalizer is an array, it must be an object"},
    {PLAIN ",\"normalizer\":{}}", AG_FORMAT, "normalizer.type is missing"},
    {PLAIN ",\"normalizer\":{\"type\":\"BertNormalizer\"}}", AG_UNSUPPORTED,
     "normalizer: \"BertNormalizer\" is not supported"},
    {PLAIN ",\"normalizer\":{\"type\":\"Precompiled\"}}", AG_FORMAT,
     "normalizer.precompiled_charsmap is missing"},
    {PLAIN ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A*==\"}}",
     AG_FORMAT, "normalizer is not base64"},
    {PLAIN ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"CAAAAAAAAAA=\"}}",
     AG_FORMAT, "normalizer: the table has 8 bytes, the data 8"},
    {PLAIN ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAAAAAD/\"}}",
     AG_FORMAT, "normalizer: the strings are not valid UTF-8"},
    {PLAIN ",\"normalizer\":{\"type\":\"Replace\",\"content\":\"x\"}}", AG_FORMAT,
     "normalizer.pattern must be"},
    {PLAIN ",\"normalizer\":{\"type\":\"Prepend\",\"prepend\":2}}", AG_FORMAT,
     "normalizer.prepend is an integer"},
    {PLAIN ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{}]}}",
     AG_FORMAT, "normalizer.normalizers[1].type is missing"},
    {PLAIN ",\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}}", AG_UNSUPPORTED,
     "pre_tokenizer: \"BertPreTokenizer\""},
    {PLAIN
     ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":"
     "\"a(b\"}}}",
     AG_FORMAT, "pre_tokenizer.pattern at offset 3: missing closing parenthesis"},
    {PLAIN
     ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":"
     "\"[a&&b]\"}}}",
     AG_UNSUPPORTED, "pre_tokenizer.pattern: offset 2: && in a character class"},
    {PLAIN
     ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":"
     "\"\\\\p{Klingon}\"}}}",
     AG_FORMAT, "unknown property"},
    {PLAIN ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Sideways\",\"pattern\":\"a\"}}",
     AG_UNSUPPORTED, "pre_tokenizer.behavior: \"Sideways\""},
    {PLAIN ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}}", AG_FORMAT,
     "pre_tokenizer.replacement must be one character"},
    {PLAIN ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"
           "\"often\"}}",
     AG_UNSUPPORTED, "prepend_scheme: \"often\""},
    {PLAIN ",\"post_processor\":{\"type\":\"BertProcessing\"}}", AG_UNSUPPORTED,
     "post_processor: \"BertProcessing\""},
    {PLAIN ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":"
           "\"A\"}},{\"SpecialToken\":{\"id\":\"x\"}}],\"special_tokens\":{}}}",
     AG_FORMAT, "single[1]: special token \"x\" is missing"},
    {PLAIN ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
           "{\"id\":\"x\"}}],\"special_tokens\":{\"x\":{\"ids\":[9]}}}}",
     AG_FORMAT, "ids[0] is not an id of the vocabulary"},
    {PLAIN ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}}", AG_UNSUPPORTED,
     "contains the text 0 times"},
    {PLAIN ",\"decoder\":{\"type\":\"CTC\"}}", AG_UNSUPPORTED, "decoder: \"CTC\""},
    {PLAIN ",\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}}",
     AG_FORMAT, "decoder.start is -1, it must be in 0..2147483647"},
    {PLAIN ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":"
           "\"ByteFallback\"}]}}",
     AG_UNSUPPORTED, "decoder.decoders[1]: \"ByteFallback\" after a stage that fuses"},
};

static void rejects_bad_files_with_a_reason(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++) {
        expect(bad_files[i].json, strlen(bad_files[i].json), bad_files[i].status,
               bad_files[i].message);
    }
}

static char *repeat(const char *head, const char *unit, size_t n, const char *tail) {
    size_t step = strlen(unit), at = strlen(head);
    char *s = malloc(at + n * step + strlen(tail) + 1);
    memcpy(s, head, at);
    for (size_t i = 0; i < n; i++, at += step) memcpy(s + at, unit, step);
    strcpy(s + at, tail);
    return s;
}

static void rejects_deep_nesting(void **state) {
    (void)state;
    char *s = repeat("", "[", 1000000, "");
    expect(s, strlen(s), AG_FORMAT, "maximum parsing depth");
    free(s);
    static const struct {
        const char *head, *unit, *tail, *message;
    } nests[] = {
        {PLAIN ",\"normalizer\":", "{\"type\":\"Sequence\",\"normalizers\":[", "]}", "normalizer"},
        {PLAIN ",\"pre_tokenizer\":", "{\"type\":\"Sequence\",\"pretokenizers\":[", "]}",
         "pre_tokenizer"},
        {PLAIN ",\"post_processor\":", "{\"type\":\"Sequence\",\"processors\":[", "]}",
         "post_processor"},
        {PLAIN ",\"decoder\":", "{\"type\":\"Sequence\",\"decoders\":[", "]}", "decoder"},
    };
    for (size_t i = 0; i < sizeof nests / sizeof *nests; i++) {
        char *head = repeat(nests[i].head, nests[i].unit, 500, "");
        char *json = repeat(head, nests[i].tail, 500, "}");
        expect(json, strlen(json), AG_FORMAT, "nested too deeply");
        free(head);
        free(json);
    }
}

static void rejects_files_truncated_at_any_length(void **state) {
    (void)state;
    static const char json[] =
        PLAIN ",\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}],\"normalizer\":"
              "{\"type\":\"NFC\"},\"decoder\":{\"type\":\"ByteLevel\"}}";
    for (size_t n = 0; n + 1 < sizeof json - 1; n++) {
        char *exact = malloc(n ? n : 1);
        memcpy(exact, json, n);
        expect(exact, n, AG_FORMAT, "");
        free(exact);
    }
    ag_tokenizer *t;
    assert_int_equal(ag_tokenizer_parse(json, sizeof json - 1, "x", &t, NULL), AG_OK);
    ag_tokenizer_destroy(t);
}

static size_t live, peak;
static void *counted_alloc(void *user, size_t n) {
    (void)user;
    size_t *p = malloc(n + 16);
    if (!p) return NULL;
    *p = n;
    live += n;
    if (live > peak) peak = live;
    return p + 2;
}
static void counted_release(void *user, void *p) {
    (void)user;
    live -= ((size_t *)p)[-2];
    free((size_t *)p - 2);
}
static void *counted_resize(void *user, void *p, size_t n) {
    if (!p) return counted_alloc(user, n);
    size_t was = ((size_t *)p)[-2];
    void *q = counted_alloc(user, n);
    if (!q) return NULL;
    memcpy(q, p, was < n ? was : n);
    counted_release(user, p);
    return q;
}

static void rejects_huge_ids_without_large_allocations(void **state) {
    (void)state;
    ag_set_allocator(&(ag_allocator){counted_alloc, counted_resize, counted_release, NULL});
    static const char *const ids[] = {"1048570", "16777216", "2147483647", "2147483648",
                                      "1099511627776"};
    for (int i = 0; i < 5; i++) {
        char json[200];
        snprintf(json, sizeof json, MODEL("{\"a\":%s}", "[]") "}", ids[i]);
        ag_tokenizer *t;
        ag_status st = ag_tokenizer_parse(json, strlen(json), "x", &t, NULL);
        assert_int_equal(st, i == 0 ? AG_OK : AG_FORMAT);
        ag_tokenizer_destroy(t);
        assert_int_equal(live, 0);
    }
    assert_true(peak < 32 << 20);
    ag_set_allocator(NULL);
}

static int fail_at;
static void *failing_alloc(void *user, size_t n) {
    return fail_at-- == 0 ? NULL : counted_alloc(user, n);
}
static void *failing_resize(void *user, void *p, size_t n) {
    return fail_at-- == 0 ? NULL : counted_resize(user, p, n);
}

/* Fails each allocation in turn. PCRE2 also uses our allocator. */
static void fail_every_allocation(const char *json) {
    static const char text[] =
        "ab abc <s> e\xCC\x81 abababababababababababababababababababababababab";
    ag_set_allocator(&(ag_allocator){failing_alloc, failing_resize, counted_release, NULL});
    bool all = false;
    for (int n = 0; !all; n++) {
        ag_tokenizer *t;
        ag_ids ids = {0};
        ag_text out = {0};
        ag_decoder *d = NULL;
        ag_error err = {0};
        fail_at = n;
        ag_status st = ag_tokenizer_parse(json, strlen(json), "x", &t, &err);
        if (st == AG_OK) st = ag_tokenizer_encode(t, text, sizeof text - 1, 3, &ids, &err);
        if (st == AG_OK) st = ag_tokenizer_decode(t, ids.data, ids.n, true, &out, &err);
        if (st == AG_OK) st = ag_decoder_create(t, true, false, &d, &err);
        all = fail_at >= 0;
        if (st != (all ? AG_OK : AG_NOMEM) && !(st == AG_OK && n > 0)) {
            fail_msg("allocation %d: %s", n, err.msg);
        }
        ag_decoder_destroy(d);
        ag_text_free(&out);
        ag_ids_free(&ids);
        ag_tokenizer_destroy(t);
        assert_int_equal(live, 0);
        assert_true(n < 10000);
    }
    ag_set_allocator(NULL);
}

static void fails_without_leaks_when_an_allocation_fails(void **state) {
    (void)state;
    static const char json[] = PLAIN
        ",\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true,\"single_word\":true}],"
        "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":"
        "\"Replace\","
        "\"pattern\":{\"Regex\":\"c+\"},\"content\":\"b\"}]},\"pre_tokenizer\":{\"type\":"
        "\"ByteLevel\"},"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
        "\"s\"}},"
        "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"s\":{\"ids\":[3]}}},\"decoder\":{"
        "\"type\":"
        "\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x\"},"
        "\"content\":\"y\"},"
        "{\"type\":\"ByteLevel\"}]}}";
    static const char unigram[] =
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"u\",0],[\"a\",-1],[\"ab\",-1]]"
        "},"
        "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAAAAAAAABh\"}}";
    fail_every_allocation(json);
    fail_every_allocation(unigram);
}

static void rejects_strings_of_ten_megabytes(void **state) {
    (void)state;
    static const char *const tails[] = {"\":0},\"merges\":[]}}",
                                        "\":0},\"merges\":[]},\"added_tokens\":[]}"};
    for (int i = 0; i < 2; i++) {
        char *json = repeat("{\"model\":{\"vocab\":{\"", "0123456789", 1000000, tails[i]);
        ag_tokenizer *t;
        ag_text out = {0};
        assert_int_equal(ag_tokenizer_parse(json, strlen(json), "x", &t, NULL), AG_OK);
        assert_int_equal(ag_tokenizer_decode(t, (int32_t[]){0}, 1, true, &out, NULL), AG_OK);
        assert_int_equal(out.len, 10000000);
        ag_text_free(&out);
        ag_tokenizer_destroy(t);
        free(json);
    }
    char *json =
        repeat(PLAIN ",\"added_tokens\":[{\"id\":3,\"content\":\"", "0123456789", 1000000, "\"}]}");
    expect(json, strlen(json), AG_FORMAT, "added_tokens[0]: content has 10000000 bytes");
    free(json);
    json =
        repeat(PLAIN ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":"
                     "{\"Regex\":\"",
               "0123456789", 1000000, "\"}}}");
    expect(json, strlen(json), AG_FORMAT, "pattern has 10000000 bytes");
    free(json);
}

static void handles_nul_as_a_character(void **state) {
    (void)state;
    static const char json[] = PLAIN ",\"added_tokens\":[{\"id\":3,\"content\":\"x\\u0000y\"}]}";
    ag_tokenizer *t;
    ag_ids ids = {0};
    assert_int_equal(ag_tokenizer_parse(json, sizeof json - 1, "x", &t, NULL), AG_OK);
    assert_int_equal(ag_tokenizer_id(t, "x\0y", 3), 3);
    assert_int_equal(ag_tokenizer_encode(t, "abx\0ya", 6, 0, &ids, NULL), AG_OK);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.data[1], 3);
    ag_ids_free(&ids);
    ag_tokenizer_destroy(t);
    expect("{\"model\":{\"vocab\":{\"\\u0000\":0},\"merges\":[]}}", 43, AG_FORMAT, "NUL byte");
}

static void stops_exponential_patterns(void **state) {
    (void)state;
    static const char *const patterns[] = {"(a|a)*[bc]", "(a*)*[bc]", "(?:a+)+[bc]",
                                           "a*a*a*a*a*[bc]"};
    char text[3000];
    memset(text, 'a', sizeof text);
    for (int i = 0; i < 4; i++) {
        char json[400];
        snprintf(json, sizeof json,
                 PLAIN
                 ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":"
                 "{\"Regex\":\"%s\"}}}",
                 patterns[i]);
        ag_tokenizer *t;
        ag_ids ids = {0};
        ag_error err;
        assert_int_equal(ag_tokenizer_parse(json, strlen(json), "x", &t, &err), AG_OK);
        assert_int_equal(ag_tokenizer_encode(t, text, sizeof text, 0, &ids, &err), AG_LIMIT);
        assert_non_null(strstr(err.msg, "matching a pattern failed at offset 0 of 3000 bytes"));
        ag_ids_free(&ids);
        ag_tokenizer_destroy(t);
    }
}

static void stops_quadratic_patterns(void **state) {
    (void)state;
    static const char *const patterns[] = {"(?:ab|a)*[cd]", "(?:ab|a)*[cd]|a"};
    enum { SIZE = 200000 };
    char *text = malloc(SIZE);
    memset(text, 'a', SIZE);
    for (int i = 0; i < 2; i++) {
        char json[400];
        snprintf(json, sizeof json,
                 PLAIN
                 ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":"
                 "{\"Regex\":\"%s\"}}}",
                 patterns[i]);
        ag_tokenizer *t;
        ag_ids ids = {0};
        ag_error err;
        assert_int_equal(ag_tokenizer_parse(json, strlen(json), "x", &t, &err), AG_OK);
        assert_int_equal(ag_tokenizer_encode(t, text, SIZE, 0, &ids, &err), AG_LIMIT);
        assert_non_null(strstr(err.msg, "matching a pattern failed at offset "));
        ag_ids_free(&ids);
        ag_tokenizer_destroy(t);
    }
    free(text);
}

/* Neither one byte of text nor one token may become gigabytes. */
static void limits_the_growth_of_texts(void **state) {
    (void)state;
    static const struct {
        const char *head, *unit, *tail, *message;
    } bombs[] = {
        {PLAIN ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}",
         ",{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}", "]}}",
         "the tokenizer's normalizer expands a text beyond 320 bytes"},
        {PLAIN ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
               "\"Digits\"}",
         ",{\"type\":\"ByteLevel\",\"use_regex\":false}", "]}}",
         "the tokenizer's pre_tokenizer expands a text beyond 320 bytes"},
        {PLAIN ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"}",
         ",{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}", "]}}",
         "the tokenizer's decoder expands a text beyond 320 bytes"},
    };
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        char *json = repeat(bombs[i].head, bombs[i].unit, 20, bombs[i].tail);
        ag_tokenizer *t;
        ag_ids ids = {0};
        ag_text out = {0};
        ag_error err = {0};
        assert_int_equal(ag_tokenizer_parse(json, strlen(json), "x", &t, &err), AG_OK);
        ag_status st = ag_tokenizer_encode(t, "a", 1, 0, &ids, &err);
        if (st == AG_OK) st = ag_tokenizer_decode(t, (int32_t[]){0}, 1, true, &out, &err);
        assert_int_equal(st, AG_LIMIT);
        if (!strstr(err.msg, bombs[i].message)) fail_msg("%s", err.msg);
        ag_ids_free(&ids);
        ag_text_free(&out);
        ag_tokenizer_destroy(t);
        free(json);
    }
}

/* Stages of a decoder call one another: 20000 of them would overflow the stack. */
static void rejects_long_chains_and_lists(void **state) {
    (void)state;
    static const struct {
        const char *head, *unit, *tail, *message;
    } chains[] = {
        {PLAIN ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"}",
         ",{\"type\":\"Fuse\"}", "]}}",
         "decoder.decoders[32]: the decoder has more than 32 stages"},
        {PLAIN ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}",
         ",{\"type\":\"NFC\"}", "]}}",
         "normalizer.normalizers[64]: the normalizer has more than 64 steps"},
        {PLAIN ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":"
               "\"Digits\"}",
         ",{\"type\":\"Digits\"}", "]}}", "pre_tokenizer has more than 64 steps"},
        {PLAIN ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"special_tokens\":{\"x\":{"
               "\"ids\":[0,1]}},\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}",
         ",{\"SpecialToken\":{\"id\":\"x\"}}", ",{\"Sequence\":{\"id\":\"A\"}}]}}",
         "adds more than 1024 ids to a text"},
    };
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) {
        char *json = repeat(chains[i].head, chains[i].unit, 20000, chains[i].tail);
        expect(json, strlen(json), AG_FORMAT, chains[i].message);
        free(json);
    }
}

static void rejects_paths_without_a_tokenizer(void **state) {
    (void)state;
    ag_tokenizer *t;
    ag_error err;
    assert_int_equal(ag_tokenizer_load("/no/such/file", &t, &err), AG_NOT_FOUND);
    assert_string_equal(err.msg, "/no/such/file: No such file or directory");
    assert_null(t);
    assert_int_equal(ag_tokenizer_load(AG_SOURCE_DIR "/src", &t, &err), AG_NOT_FOUND);
    assert_non_null(strstr(err.msg, "/src: holds no tokenizer.json"));
    assert_int_equal(ag_tokenizer_load(AG_SOURCE_DIR "/LICENSE", &t, &err), AG_FORMAT);
    assert_non_null(strstr(err.msg, "/LICENSE: line "));
    assert_int_equal(ag_tokenizer_load(AG_SOURCE_DIR "/models/demo/config.json", &t, &err),
                     AG_FORMAT);
    assert_non_null(strstr(err.msg, "config.json: model is missing"));
    assert_int_equal(ag_tokenizer_load("/dev/zero", &t, &err), AG_IO);
    assert_string_equal(err.msg, "/dev/zero: is not a regular file");
}

/* A pipe may never get a writer. */
static void does_not_wait_for_a_pipe(void **state) {
    (void)state;
    char dir[] = "/tmp/ag-tokenizer-XXXXXX", path[64];
    ag_tokenizer *t;
    ag_error err;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(ag_tokenizer_load(dir, &t, &err), AG_IO);
    assert_non_null(strstr(err.msg, "/tokenizer.json: is not a regular file"));
    unlink(path);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rejects_bad_files_with_a_reason),
        cmocka_unit_test(rejects_deep_nesting),
        cmocka_unit_test(rejects_files_truncated_at_any_length),
        cmocka_unit_test(rejects_huge_ids_without_large_allocations),
        cmocka_unit_test(fails_without_leaks_when_an_allocation_fails),
        cmocka_unit_test(rejects_strings_of_ten_megabytes),
        cmocka_unit_test(handles_nul_as_a_character),
        cmocka_unit_test(stops_exponential_patterns),
        cmocka_unit_test(stops_quadratic_patterns),
        cmocka_unit_test(limits_the_growth_of_texts),
        cmocka_unit_test(rejects_long_chains_and_lists),
        cmocka_unit_test(rejects_paths_without_a_tokenizer),
        cmocka_unit_test(does_not_wait_for_a_pipe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
