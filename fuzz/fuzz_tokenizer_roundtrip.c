/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes encoding and decoding. The first byte of the input chooses a tokenizer. The rest is used
 * as a text to encode and decode, and as ids to decode all at once and one by one. */
#include "fuzz.h"

#include "text/byte_level.h"
#include "text/utf8.h"
#include <antigravity/tokenizer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TOKENIZERS = 3, JSON_BYTES = 1 << 15 };

static const char specials[] =
    "\"added_tokens\":[{\"id\":600,\"content\":\"<s>\",\"special\":true,\"normalized\":false},"
    "{\"id\":601,\"content\":\"<tool>\",\"lstrip\":true,\"rstrip\":true,\"normalized\":false},"
    "{\"id\":602,\"content\":\"<tool_call>\",\"single_word\":true,\"normalized\":false}],";

static const char llama_split[] =
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{"
    "\"Regex\":"
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},"
    "\"behavior\":"
    "\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_"
    "regex\":"
    "false}]},\"decoder\":{\"type\":\"ByteLevel\"},";

static const char pieces[] = "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":"
                             "\"Prepend\",\"prepend\":\"\\u2581\"},"
                             "{\"type\":\"Replace\",\"pattern\":{\"String\":\" "
                             "\"},\"content\":\"\\u2581\"}]},\"decoder\":{\"type\":"
                             "\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
                             "\"String\":\"\\u2581\"},\"content\":\" \"},"
                             "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\","
                             "\"content\":\" \",\"start\":1,"
                             "\"stop\":0}]},";

/* Creates a tokenizer with a token for each byte and some merges of letters and spaces. */
static ag_tokenizer *create_tokenizer(const char *head, const char *space, bool byte_level) {
    static char json[JSON_BYTES];
    int n = snprintf(json, sizeof json, "{%s%s\"model\":{\"byte_fallback\":true,\"vocab\":{", head,
                     specials);
    for (unsigned b = 0; b < 256; b++) {
        n += snprintf(json + n, sizeof json - (size_t)n,
                      byte_level ? "\"\\u%04x\":%u," : "\"<0x%02X>\":%u,",
                      byte_level ? (unsigned)ag_byte_level_char((unsigned char)b) : b, b);
    }
    for (int c = 'a'; !byte_level && c <= 'z'; c++) {
        n += snprintf(json + n, sizeof json - (size_t)n, "\"%c\":%d,", c, 300 + c - 'a');
    }
    if (!byte_level) n += snprintf(json + n, sizeof json - (size_t)n, "\"%s\":326,", space);
    snprintf(json + n, sizeof json - (size_t)n,
             "\"%s%s\":400,\"%st\":401,\"he\":402,\"%sthe\":403,\"in\":404,\"ing\":405,\"aa\":406,"
             "\"aaaa\":407,\"ab\":408,\"abab\":409},\"merges\":[\"h e\",\"%s t\",\"%st he\",\"i "
             "n\",\"in g\","
             "\"%s %s\",\"a a\",\"aa aa\",\"a b\",\"ab ab\"]}}",
             space, space, space, space, space, space, space, space);
    ag_tokenizer *t;
    ag_error err;
    if (ag_tokenizer_parse(json, strlen(json), "built in", &t, &err) == AG_OK) return t;
    fprintf(stderr, "%s\n", err.msg);
    abort();
}

static const ag_tokenizer *get_tokenizer(unsigned choice) {
    static ag_tokenizer *tokenizers[N_TOKENIZERS];
    choice %= N_TOKENIZERS;
    if (tokenizers[choice]) return tokenizers[choice];
    char head[4096];
    snprintf(head, sizeof head, "%s%s", choice == 1 ? "\"normalizer\":{\"type\":\"NFC\"}," : "",
             choice == 2 ? pieces : llama_split);
    tokenizers[choice] =
        create_tokenizer(head, choice == 2 ? "\xE2\x96\x81" : "\xC4\xA0", choice != 2);
    return tokenizers[choice];
}

static void check_decode(const ag_tokenizer *t, const int32_t *ids, size_t n, ag_text *whole) {
    ag_text joined = {0};
    ag_decoder *d;
    ag_status st = ag_tokenizer_decode(t, ids, n, true, whole, NULL), st2 = AG_OK;
    if (ag_decoder_create(t, true, false, &d, NULL) != AG_OK) abort();
    for (size_t i = 0; i < n && st2 == AG_OK; i++) {
        st2 = ag_decoder_push(d, ids[i], &joined, NULL);
        if (joined.len && ag_utf8_valid_prefix(joined.data, joined.len) != joined.len) abort();
    }
    if (st2 == AG_OK) st2 = ag_decoder_flush(d, &joined, NULL);
    if (st != st2) abort();
    if (st == AG_OK && joined.len != whole->len) abort();
    if (st == AG_OK && joined.len && memcmp(joined.data, whole->data, joined.len) != 0) abort();
    ag_decoder_destroy(d);
    ag_text_free(&joined);
}

/* Without a normaliser a text must round-trip: always with the byte-level tokenizer, and with the
 * other one unless it contains that tokenizer's space character. */
static void check_text(unsigned choice, const char *text, size_t n) {
    const ag_tokenizer *t = get_tokenizer(choice);
    ag_ids ids = {0};
    ag_text out = {0};
    bool valid = ag_utf8_valid_prefix(text, n) == n;
    ag_status st =
        ag_tokenizer_encode(t, text, n, choice & 4 ? AG_ENCODE_PARSE_SPECIAL : 0, &ids, NULL);
    if (st != (valid ? AG_OK : AG_FORMAT)) abort();
    check_decode(t, ids.data, ids.n, &out);
    bool added = n && (memmem(text, n, "<tool", 5) || memmem(text, n, "<s>", 3));
    bool same = choice % N_TOKENIZERS == 0 ||
                (choice % N_TOKENIZERS == 2 && !(n && memmem(text, n, "\xE2\x96\x81", 3)));
    if (valid && same && !added && (out.len != n || (n && memcmp(out.data, text, n) != 0))) abort();
    ag_ids_free(&ids);
    ag_text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n == 0) return 0;
    char *text = malloc(n);
    if (!text) return 0;
    memcpy(text, data + 1, n - 1);
    char *exact = realloc(text, n > 1 ? n - 1 : 1);
    if (exact) text = exact;
    check_text(data[0], text, n - 1);
    int32_t *ids = calloc(n, sizeof *ids);
    ag_text out = {0};
    size_t n_ids = 0;
    for (size_t i = 1; ids && i + 1 < n; i += 2) ids[n_ids++] = (data[i] | data[i + 1] << 8) % 620;
    if (ids) check_decode(get_tokenizer(data[0]), ids, n_ids, &out);
    for (size_t i = 1; ids && i < n; i++) ids[i - 1] = data[i];
    out.len = 0;
    if (ids) check_decode(get_tokenizer(data[0]), ids, n - 1, &out);
    ag_text_free(&out);
    free(ids);
    free(text);
    return 0;
}
