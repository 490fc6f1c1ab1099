/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the header of GGUF files: the values read, and the errors of invalid ones. */
#include "support/failing_allocator.h"
#include "support/gguf_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* In a block of exactly its size, where a sanitizer sees one byte too many. */
static ag_status parse(const void *bytes, size_t n, ag_gguf *g, void **copy, ag_error *err) {
    *copy = malloc(n ? n : 1);
    assert_non_null(*copy);
    memcpy(*copy, bytes, n);
    return ag_gguf_parse(*copy, n, "f", g, err);
}

static void expect_refusal(gguf_file *f, ag_status want, const char *message) {
    const gguf_bytes *w = gguf_file_finish(f);
    ag_gguf g;
    ag_error err = {0};
    void *copy;
    ag_status st = parse(w->data, w->n, &g, &copy, &err);
    if (st != want || strncmp(err.msg, "f", 1) != 0 || !strstr(err.msg, message)) {
        fail_msg("%s: %s, expected %s", ag_status_name(st), err.msg, message);
    }
    assert_null(g.entries);
    assert_null(g.list.tensors);
    free(copy);
    gguf_file_free(f);
}

static void put_all_types(gguf_file *f) {
    static const char *const words[] = {"a", "", "c d"};
    static const int32_t numbers[] = {1, -2, 3};
    gguf_put_string(f, "general.architecture", "llama");
    gguf_put_u32(f, "llama.block_count", 2);
    gguf_put_f32(f, "llama.eps", 0.5F);
    gguf_put_bool(f, "flag", true);
    gguf_put_value(f, "u8", AG_GGUF_U8, "\xff", 1);
    gguf_put_value(f, "i8", AG_GGUF_I8, "\xff", 1);
    gguf_put_value(f, "i16", AG_GGUF_I16, "\xfe\xff", 2);
    gguf_put_value(f, "i64", AG_GGUF_I64, "\xfd\xff\xff\xff\xff\xff\xff\xff", 8);
    gguf_put_value(f, "u64", AG_GGUF_U64, "\xfd\xff\xff\xff\xff\xff\xff\xff", 8);
    gguf_put_strings(f, "words", words, 3);
    gguf_put_array(f, "numbers", AG_GGUF_I32, numbers, 3);
}

static void put_tensors(gguf_file *f) {
    gguf_put_tensor(f, "b", GGML_F32, ag_shape_2d(3, 8), NULL, 96);
    gguf_put_tensor(f, "a", GGML_Q8_0, ag_shape_2d(2, 32), NULL, 68);
    gguf_put_tensor(f, "c", GGML_F16, ag_shape_1d(16), NULL, 32);
}

static void finds_metadata_by_key(void **state) {
    (void)state;
    gguf_file f = {0};
    ag_gguf g;
    void *copy;
    put_all_types(&f);
    const gguf_bytes *w = gguf_file_finish(&f);
    assert_int_equal(parse(w->data, w->n, &g, &copy, NULL), AG_OK);
    assert_int_equal(g.n_entries, 11);
    static const struct {
        const char *key;
        int64_t value;
    } integers[] = {{"llama.block_count", 2},
                    {"flag", 1},
                    {"u8", 255},
                    {"i8", -1},
                    {"i16", -2},
                    {"i64", -3},
                    {"none", 77}};
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++) {
        int64_t v = 77;
        assert_int_equal(ag_gguf_integer(&g, integers[i].key, &v, NULL), AG_OK);
        assert_int_equal(v, integers[i].value);
    }
    ag_error err = {0};
    int64_t v;
    assert_int_equal(ag_gguf_integer(&g, "u64", &v, &err), AG_FORMAT);
    assert_non_null(strstr(err.msg, "f: key \"u64\" is not an integer below 2^63"));
    assert_int_equal(ag_gguf_integer(&g, "llama.eps", &v, &err), AG_FORMAT);
    assert_int_equal(ag_gguf_integer(&g, "numbers", &v, &err), AG_FORMAT);
    ag_source_string s = {0};
    assert_int_equal(ag_gguf_string(&g, "general.architecture", &s, NULL), AG_OK);
    assert_int_equal(s.n, 5);
    assert_memory_equal(s.text, "llama", 5);
    assert_int_equal(ag_gguf_string(&g, "words", &s, &err), AG_FORMAT);
    const ag_gguf_entry *e;
    assert_int_equal(ag_gguf_array(&g, "words", AG_GGUF_STRING, &e, NULL), AG_OK);
    const unsigned char *p = e->first;
    assert_int_equal(ag_gguf_next_string(&p).n, 1);
    assert_int_equal(ag_gguf_next_string(&p).n, 0);
    assert_memory_equal(ag_gguf_next_string(&p).text, "c d", 3);
    assert_int_equal(ag_gguf_array(&g, "words", AG_GGUF_F32, &e, &err), AG_FORMAT);
    assert_non_null(strstr(err.msg, "not an array of 32-bit reals"));
    assert_int_equal(ag_gguf_array(&g, "flag", AG_GGUF_BOOL, &e, &err), AG_FORMAT);
    assert_null(e);
    ag_gguf_free(&g);
    free(copy);
    gguf_file_free(&f);
}

static void check_tensors(uint32_t version, uint32_t alignment) {
    gguf_file f = {.version = version, .alignment = alignment};
    ag_gguf g;
    ag_error err = {0};
    void *copy;
    if (alignment) gguf_put_u32(&f, "general.alignment", alignment);
    put_tensors(&f);
    const gguf_bytes *w = gguf_file_finish(&f);
    if (parse(w->data, w->n, &g, &copy, &err) != AG_OK) fail_msg("%s", err.msg);
    assert_int_equal(g.list.n, 3);
    const ag_source_tensor *b = &g.list.tensors[0], *a = &g.list.tensors[1];
    assert_string_equal(b->name, "b");
    assert_int_equal(b->offset, w->n - f.data.n);
    assert_int_equal(b->offset % (alignment ? alignment : 32), 0);
    assert_int_equal(b->shape.dim[0], 3);
    assert_int_equal(b->shape.dim[1], 8);
    assert_int_equal(b->dtype, AG_F32);
    assert_string_equal(a->dtype_name, "Q8_0");
    assert_int_equal(a->dtype, AG_Q8_0);
    assert_int_equal(a->n_bytes, 68);
    ag_gguf_free(&g);
    free(copy);
    gguf_file_free(&f);
}

static void tensors_are_aligned_with_rows_outermost(void **state) {
    (void)state;
    check_tensors(2, 0);
    check_tensors(3, 0);
    check_tensors(3, 1);
    check_tensors(3, 512);
}

/* The sizes equal those of the reference library of the format. */
static void knows_the_size_of_every_type(void **state) {
    (void)state;
    static const struct {
        const char *name;
        unsigned number, block, bytes;
    } types[] = {
        {"F32", 0, 1, 4},         {"F16", 1, 1, 2},         {"Q4_0", 2, 32, 18},
        {"Q4_1", 3, 32, 20},      {"Q5_0", 6, 32, 22},      {"Q5_1", 7, 32, 24},
        {"Q8_0", 8, 32, 34},      {"Q8_1", 9, 32, 40},      {"Q2_K", 10, 256, 84},
        {"Q3_K", 11, 256, 110},   {"Q4_K", 12, 256, 144},   {"Q5_K", 13, 256, 176},
        {"Q6_K", 14, 256, 210},   {"Q8_K", 15, 256, 292},   {"IQ2_XXS", 16, 256, 66},
        {"IQ2_XS", 17, 256, 74},  {"IQ3_XXS", 18, 256, 98}, {"IQ1_S", 19, 256, 50},
        {"IQ4_NL", 20, 32, 18},   {"IQ3_S", 21, 256, 110},  {"IQ2_S", 22, 256, 82},
        {"IQ4_XS", 23, 256, 136}, {"I8", 24, 1, 1},         {"I16", 25, 1, 2},
        {"I32", 26, 1, 4},        {"I64", 27, 1, 8},        {"F64", 28, 1, 8},
        {"IQ1_M", 29, 256, 56},   {"BF16", 30, 1, 2},       {"TQ1_0", 34, 256, 54},
        {"TQ2_0", 35, 256, 66},   {"MXFP4", 39, 32, 17},    {"NVFP4", 40, 64, 36},
        {"Q1_0", 41, 128, 18},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        gguf_file f = {0};
        ag_gguf g;
        ag_error err = {0};
        void *copy;
        gguf_put_tensor(&f, "t", types[i].number, ag_shape_2d(3, 2 * types[i].block), NULL,
                        6 * types[i].bytes);
        const gguf_bytes *w = gguf_file_finish(&f);
        if (parse(w->data, w->n, &g, &copy, &err) != AG_OK) fail_msg("%s", err.msg);
        const ag_source_tensor *t = &g.list.tensors[0];
        assert_string_equal(t->dtype_name, types[i].name);
        assert_int_equal(t->n_bytes, 6 * types[i].bytes);
        if (t->dtype != AG_DTYPE_COUNT) {
            assert_int_equal(ag_dtype_block(t->dtype), types[i].block);
            assert_int_equal(ag_dtype_block_bytes(t->dtype), types[i].bytes);
        }
        ag_gguf_free(&g);
        free(copy);
        gguf_file_free(&f);
    }
}

/* One field of a good file replaced. */
static void rejects_malformed_headers_with_a_reason(void **state) {
    (void)state;
    static const struct {
        size_t at;
        const char *bytes;
        size_t n;
        ag_status status;
        const char *message;
    } cases[] = {
        {0, "GGML", 4, AG_FORMAT, "f, byte 0: does not begin with \"GGUF\""},
        {4, "\0\0\0\0", 4, AG_UNSUPPORTED, "f, byte 4: is GGUF version 0"},
        {4, "\1\0\0\0", 4, AG_UNSUPPORTED, "is GGUF version 1, supported are 2 and 3"},
        {4, "\4\0\0\0", 4, AG_UNSUPPORTED, "is GGUF version 4"},
        {4, "\0\0\0\3", 4, AG_UNSUPPORTED, "big-endian"},
        {8, "\1\0\1\0\0\0\0\0", 8, AG_LIMIT, "byte 8: the number of tensors is 65537, the limit"},
        {8, "\0\0\0\0\0\0\0\x80", 8, AG_LIMIT, "the number of tensors is 9223372036854775808"},
        {8, "\0\xff\0\0\0\0\0\0", 8, AG_FORMAT, "65280 tensors cannot be in the"},
        {16, "\1\0\1\0\0\0\0\0", 8, AG_LIMIT, "the number of keys is 65537"},
        {16, "\0\xff\0\0\0\0\0\0", 8, AG_FORMAT, "65280 keys cannot be in the"},
        {24, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, AG_FORMAT,
         "name of a key, byte 32: it takes 18446744073709551615 bytes, but"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_file f = {0};
        ag_gguf g;
        ag_error err = {0};
        void *copy;
        put_all_types(&f);
        put_tensors(&f);
        const gguf_bytes *w = gguf_file_finish(&f);
        memcpy(w->data + cases[i].at, cases[i].bytes, cases[i].n);
        ag_status st = parse(w->data, w->n, &g, &copy, &err);
        if (st != cases[i].status || !strstr(err.msg, cases[i].message)) {
            fail_msg("%zu: %s: %s", i, ag_status_name(st), err.msg);
        }
        free(copy);
        gguf_file_free(&f);
    }
}

#define ONES "\xff\xff\xff\xff\xff\xff\xff\xff"

static void rejects_malformed_keys_and_values_with_a_reason(void **state) {
    (void)state;
    static const struct {
        const char *key;
        uint32_t type;
        const char *bytes;
        size_t n;
        ag_status status;
        const char *message;
    } cases[] = {
        {"", AG_GGUF_U8, "1", 1, AG_FORMAT,
         "f: name of a key, byte 45: has 0 bytes, not 1 to 65535"},
        {"a b", AG_GGUF_U8, "1", 1, AG_FORMAT, "byte 54: is not printable ASCII (0x20)"},
        {"\xc3\xa4", AG_GGUF_U8, "1", 1, AG_FORMAT, "not printable ASCII (0xc3)"},
        {"k", 13, "1", 1, AG_FORMAT, "f: key \"k\", byte 54: unknown type 13 of a value"},
        {"k", AG_GGUF_U64, "1", 1, AG_FORMAT, "1 value cannot be in the 1 bytes left"},
        {"k", AG_GGUF_STRING, ONES, 8, AG_FORMAT, "a string takes 18446744073709551615 bytes"},
        {"k", AG_GGUF_BOOL, "\2", 1, AG_FORMAT, "byte 58: a bool is 2, not 0 or 1"},
        {"k", AG_GGUF_ARRAY, "\x07\0\0\0\3\0\0\0\0\0\0\0\1\0\2", 15, AG_FORMAT,
         "byte 72: a bool is 2"},
        {"k", AG_GGUF_ARRAY, "\x09\0\0\0\1\0\0\0\0\0\0\0", 12, AG_UNSUPPORTED, "array of arrays"},
        {"k", AG_GGUF_ARRAY, "\x0d\0\0\0\1\0\0\0\0\0\0\0", 12, AG_FORMAT, "unknown type 13"},
        {"k", AG_GGUF_ARRAY, "\4\0\0\0" ONES, 12, AG_FORMAT,
         "18446744073709551615 elements cannot be"},
        {"k", AG_GGUF_ARRAY, "\x08\0\0\0" ONES, 12, AG_FORMAT, "elements cannot be"},
        {"k", AG_GGUF_ARRAY, "\x08\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0x\1\0\0\0\0\0\0\0", 29,
         AG_FORMAT, "a string takes 1 bytes, but 0 are left"},
        {"first", AG_GGUF_U8, "1", 1, AG_FORMAT,
         "f: key \"first\" occurs twice, with values at byte"},
        {"general.alignment", AG_GGUF_U32, "\0\0\0\0", 4, AG_FORMAT, "0 is not a power of two"},
        {"general.alignment", AG_GGUF_U32, "\x30\0\0\0", 4, AG_FORMAT, "48 is not a power of two"},
        {"general.alignment", AG_GGUF_U64, "\0\0\0\0\1\0\0\0", 8, AG_FORMAT, "not a power of two"},
        {"general.alignment", AG_GGUF_F32, "\0\0\0\0", 4, AG_FORMAT, "is not an integer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_file f = {.alignment = 1};
        gguf_put_u32(&f, "first", 1);
        gguf_put_value(&f, cases[i].key, cases[i].type, cases[i].bytes, cases[i].n);
        expect_refusal(&f, cases[i].status, cases[i].message);
    }
    gguf_file f = {0};
    gguf_put_u32(&f, "abc", 1);
    f.keys.data[8 + 1] = '\0';
    expect_refusal(&f, AG_FORMAT, "byte 33: is not printable ASCII (0x00)");
    char *key = calloc(1, 65537);
    memset(key, 'k', 65535);
    gguf_put_u32(&f, key, 1);
    ag_gguf g;
    void *copy;
    const gguf_bytes *w = gguf_file_finish(&f);
    assert_int_equal(parse(w->data, w->n, &g, &copy, NULL), AG_OK);
    ag_gguf_free(&g);
    free(copy);
    gguf_file_free(&f);
    key[65535] = 'k';
    gguf_put_u32(&f, key, 1);
    expect_refusal(&f, AG_FORMAT, "has 65536 bytes, not 1 to 65535");
    free(key);
}

static void rejects_malformed_tensors_with_a_reason(void **state) {
    (void)state;
    enum { KEEP = 1 }; /* the offset that the writer gives */
    static const struct {
        const char *name;
        uint32_t type;
        ag_shape shape;
        uint64_t offset;
        ag_status status;
        const char *message;
    } cases[] = {
        {"",
         0,
         {{8}, 1},
         KEEP,
         AG_FORMAT,
         "f: name of a tensor, byte 61: has 0 bytes, not 1 to 63"},
        {"t\n", 0, {{8}, 1}, KEEP, AG_FORMAT, "not printable ASCII (0x0a)"},
        {"a234567890123456789012345678901234567890123456789012345678901234",
         0,
         {{8}, 1},
         KEEP,
         AG_FORMAT,
         "has 64 bytes"},
        {"t", 4, {{8}, 1}, KEEP, AG_UNSUPPORTED, "f: tensor \"t\", byte 82: unknown type number 4"},
        {"t", 42, {{8}, 1}, KEEP, AG_UNSUPPORTED, "unknown type number 42"},
        {"t", UINT32_MAX, {{8}, 1}, KEEP, AG_UNSUPPORTED, "unknown type number 4294967295"},
        {"t",
         GGML_Q4_K,
         {{3, 128}, 2},
         KEEP,
         AG_FORMAT,
         "rows of 128 are not a multiple of 256, the block of Q4_K"},
        {"t", GGML_Q4_0, {{32, 8}, 2}, KEEP, AG_FORMAT, "rows of 8"},
        {"t", 0, {{1ull << 32, 1ull << 32}, 2}, KEEP, AG_FORMAT, "product of its dims overflows"},
        {"t", 0, {{1ull << 62}, 1}, KEEP, AG_FORMAT, "its size in F32 overflows"},
        {"t",
         0,
         {{9}, 1},
         KEEP,
         AG_FORMAT,
         "f: tensor \"t\": 36 bytes at offset 32 of the data, which begin at byte 96"},
        {"t", 0, {{8}, 1}, 64, AG_FORMAT, "they end after the file of 160 bytes"},
        {"t", 0, {{8}, 1}, UINT64_MAX - 31, AG_FORMAT, "they end after the file"},
        {"t", 0, {{8}, 1}, 33, AG_FORMAT, "its offset 33 is not a multiple of the alignment 32"},
        {"t", 0, {{8}, 1}, 0, AG_FORMAT, "inside those of \""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_file f = {0};
        gguf_put_tensor(&f, "first", GGML_F32, ag_shape_1d(8), NULL, 32);
        gguf_put_tensor(&f, cases[i].name, cases[i].type, cases[i].shape, NULL, 32);
        if (cases[i].offset != KEEP) { memcpy(f.table.data + f.table.n - 8, &cases[i].offset, 8); }
        expect_refusal(&f, cases[i].status, cases[i].message);
    }
    gguf_file f = {0};
    gguf_put_tensor(&f, "t", GGML_F32, ag_shape_1d(8), NULL, 32);
    f.table.data[8 + 1] = 5;
    expect_refusal(&f, AG_FORMAT, "f: tensor \"t\", byte 33: has 5 dims, the limit is 4");
}

static void rejects_a_file_truncated_at_any_byte(void **state) {
    (void)state;
    gguf_file f = {0};
    put_all_types(&f);
    put_tensors(&f);
    const gguf_bytes *w = gguf_file_finish(&f);
    for (size_t n = 0; n < w->n; n++) {
        ag_gguf g;
        ag_error err = {0};
        void *copy;
        ag_status st = parse(w->data, n, &g, &copy, &err);
        if (st != AG_FORMAT || strncmp(err.msg, "f", 1) != 0) {
            fail_msg("%zu bytes: %s: %s", n, ag_status_name(st), err.msg);
        }
        free(copy);
    }
    gguf_file_free(&f);
}

static void failed_allocation_leaks_nothing(void **state) {
    (void)state;
    gguf_file f = {0};
    put_all_types(&f);
    put_tensors(&f);
    const gguf_bytes *w = gguf_file_finish(&f);
    failing_allocator a;
    for (size_t n = 0;; n++) {
        ag_gguf g;
        ag_error err = {0};
        failing_install(&a, n);
        ag_status st = ag_gguf_parse(w->data, w->n, "f", &g, &err);
        if (st != AG_OK) assert_int_equal(st, AG_NOMEM);
        ag_gguf_free(&g);
        ag_set_allocator(NULL);
        assert_int_equal(atomic_load(&a.in_use), 0);
        if (st == AG_OK) break;
        assert_true(n < 10);
    }
    gguf_file_free(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_metadata_by_key),
        cmocka_unit_test(tensors_are_aligned_with_rows_outermost),
        cmocka_unit_test(knows_the_size_of_every_type),
        cmocka_unit_test(rejects_malformed_headers_with_a_reason),
        cmocka_unit_test(rejects_malformed_keys_and_values_with_a_reason),
        cmocka_unit_test(rejects_malformed_tensors_with_a_reason),
        cmocka_unit_test(rejects_a_file_truncated_at_any_byte),
        cmocka_unit_test(failed_allocation_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
