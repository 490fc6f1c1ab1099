/* SPDX-License-Identifier: Apache-2.0 */
#include "core/alloc.h"
#include "formats/safetensors.h"
#include "formats/weight_files.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define DATA AG_SOURCE_DIR "/tests/data/safetensors/"

static ag_status open_file(const char *path, size_t *n, ag_error *err) {
    ag_weight_files *w = NULL;
    ag_status st = ag_st_open(path, &w, err);
    assert_int_equal(st == AG_OK, w != NULL);
    if (w) *n = ag_weight_files_count(w);
    ag_weight_files_destroy(w);
    return st;
}

static void accepts_and_rejects_files_as_the_manifest(void **state) {
    (void)state;
    json_t *cases = json_load_file(DATA "conformance/manifest.json", 0, NULL);
    assert_int_equal(json_array_size(cases), 16);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        const char *expect = json_string_value(json_object_get(c, "expect"));
        char path[512];
        snprintf(path, sizeof path, "%sconformance/%s", DATA,
                 json_string_value(json_object_get(c, "file")));
        ag_error err = {0};
        size_t n = 0;
        ag_status st = open_file(path, &n, &err);
        if (strcmp(expect, "ok") == 0) {
            if (st != AG_OK) fail_msg("%s", err.msg);
            continue;
        }
        if (st != AG_FORMAT) fail_msg("%s: %s, not FORMAT", path, ag_status_name(st));
        assert_non_null(strstr(err.msg, path));
    }
    json_decref(cases);
}

static void recognises_files_of_other_formats(void **state) {
    (void)state;
    ag_error err = {0};
    size_t n = 0;
    assert_int_equal(open_file(DATA "inkling-tiny.safetensors", &n, &err), AG_OK);
    assert_int_equal(n, 1);
    assert_int_equal(open_file(DATA "jfk-codes.safetensors", &n, &err), AG_OK);
    assert_int_equal(open_file(DATA "nutllm-tiny.safetensors", &n, &err), AG_OK);
    assert_int_equal(n, 21);
    assert_int_equal(open_file(DATA "samples/overall.safetensors", &n, &err), AG_OK);
    assert_int_equal(n, 9);
    assert_int_equal(open_file(DATA "tiny.safetensors", &n, &err), AG_FORMAT);
    assert_non_null(strstr(err.msg, "32768 bytes, the file has 32773"));
    assert_int_equal(open_file(DATA "inkling-shard-09-header.safetensors", &n, &err), AG_FORMAT);
    assert_non_null(strstr(err.msg, "[0,1024], but the file has 0 bytes of data"));
}

static ag_status parse(const char *json, uint64_t n_data, ag_tensor_list *h, ag_error *err) {
    size_t n = strlen(json);
    return ag_st_parse(json, n, AG_ST_PREFIX + n + n_data, "f", h, err);
}

static void lists_tensors_in_the_order_of_data(void **state) {
    (void)state;
    ag_tensor_list h;
    const char *json = "{\"__metadata__\":{\"format\":\"pt\"},"
                       "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                       "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                       "\"e\":{\"dtype\":\"I64\",\"shape\":[0,7],\"data_offsets\":[4,4]},"
                       "\"x\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,3],\"data_offsets\":[16,19]}}";
    assert_int_equal(parse(json, 19, &h, NULL), AG_OK);
    assert_int_equal(h.n, 4);
    const ag_source_tensor *a = &h.tensors[0], *e = &h.tensors[1], *b = &h.tensors[2];
    assert_string_equal(a->name, "a");
    assert_int_equal(a->n_dims, 0);
    assert_int_equal(a->offset, 8 + strlen(json));
    assert_string_equal(e->name, "e");
    assert_int_equal(e->n_bytes, 0);
    assert_int_equal(e->dtype, AG_DTYPE_COUNT);
    assert_string_equal(b->dtype_name, "BF16");
    assert_int_equal(b->dtype, AG_BF16);
    assert_int_equal(b->shape.n_dims, 2);
    assert_int_equal(b->shape.dim[1], 3);
    assert_int_equal(b->n_bytes, 12);
    assert_int_equal(h.tensors[3].n_dims, 5);
    assert_int_equal(h.tensors[3].shape.n_dims, 0);
    ag_tensor_list_free(&h);
}

static void knows_the_size_of_every_dtype(void **state) {
    (void)state;
    static const struct {
        const char *name;
        unsigned bits;
    } types[] = {
        {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
        {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
        {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
        {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
        {"I64", 64},        {"U64", 64},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char json[200];
        unsigned n = types[i].bits; /* 8 elements */
        snprintf(json, sizeof json,
                 "{\"t\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%u]}}", types[i].name,
                 n);
        ag_tensor_list h;
        ag_error err = {0};
        if (parse(json, n, &h, &err) != AG_OK) fail_msg("%s", err.msg);
        assert_string_equal(h.tensors[0].dtype_name, types[i].name);
        ag_tensor_list_free(&h);
    }
}

#define T(dtype, shape, offsets) \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

static void rejects_malformed_headers_with_a_reason(void **state) {
    (void)state;
    static const struct {
        const char *json;
        unsigned n_data;
        const char *reason;
    } cases[] = {
        {"", 0, "byte 0: "},
        {"[]", 0, "must be a JSON object"},
        {"{\"t\":1}", 0, "tensor \"t\": is not an object"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "\"a\" is not a string"},
        {"{} x", 0, "byte 4"},
        {"{\"a\\u0000b\":{}}", 0, "NUL"},
        {"{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype is not a string"},
        {T("\"F31\"", "[1]", "[0,4]"), 4, "unknown dtype \"F31\""},
        {T("\"F32\\u0000\"", "[1]", "[0,4]"), 4, "unknown dtype"},
        {T("\"F32\"", "1", "[0,4]"), 4, "shape is not a list"},
        {T("\"F32\"", "[1.0]", "[0,4]"), 4, "shape[0] is not a size"},
        {T("\"F32\"", "[1,-1]", "[0,4]"), 4, "shape[1] is not a size"},
        {T("\"F4\"", "[3]", "[0,1]"), 1, "12 bits of F4 are not a multiple of 8"},
        {T("\"F32\"", "[4294967296,4294967296]", "[0,4]"), 4, "product of its shape overflows"},
        {T("\"F32\"", "[4611686018427387904]", "[0,4]"), 4, "in F32 overflows"},
        {T("\"F32\"", "[1]", "[0]"), 4, "not two offsets"},
        {T("\"F32\"", "[1]", "[0,4,4]"), 4, "not two offsets"},
        {T("\"F32\"", "[1]", "[-4,0]"), 4, "not two offsets"},
        {T("\"F32\"", "[1]", "{}"), 4, "not two offsets"},
        {T("\"F32\"", "[1]", "[4,0]"), 4, "[4,0], but the file has 4"},
        {T("\"F32\"", "[2]", "[0,8]"), 4, "[0,8], but the file has 4"},
        {T("\"F32\"", "[2]", "[0,4]"), 4, "span 4 bytes, shape and dtype need 8"},
        {T("\"F32\"", "[1]", "[4,8]"), 8, "with a gap"},
        {T("\"F32\"", "[1]", "[0,4]"), 8, "take 4 bytes, the file has 8"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"u\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3, "inside those of another tensor"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},"
         "\"t\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
         0, "duplicate object key"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ag_tensor_list h;
        ag_error err = {0};
        ag_status st = parse(cases[i].json, cases[i].n_data, &h, &err);
        if (st != AG_FORMAT || !strstr(err.msg, cases[i].reason)) {
            fail_msg("%s: %s: %s", cases[i].json, ag_status_name(st), err.msg);
        }
        assert_null(h.tensors);
        assert_int_equal(parse(cases[i].json, cases[i].n_data, &h, NULL), AG_FORMAT);
    }
}

static void rejects_impossible_header_lengths_before_reading(void **state) {
    (void)state;
    static const unsigned char huge[8] = {0, 0, 0, 0, 0, 0, 0, 0x80}; /* 2^63 */
    static const unsigned char limit[8] = {0x01, 0xe1, 0xf5, 0x05};   /* 100000001 */
    static const unsigned char ten[8] = {10};
    size_t n = 77;
    ag_error err = {0};
    assert_int_equal(ag_st_header_bytes(huge, UINT64_MAX, "f", &n, &err), AG_FORMAT);
    assert_non_null(strstr(err.msg, "9223372036854775808"));
    assert_int_equal(ag_st_header_bytes(limit, UINT64_MAX, "f", &n, &err), AG_FORMAT);
    assert_int_equal(ag_st_header_bytes(ten, 17, "f", &n, &err), AG_FORMAT);
    assert_int_equal(ag_st_header_bytes("", 0, "f", &n, &err), AG_FORMAT);
    assert_int_equal(n, 77);
    assert_int_equal(ag_st_header_bytes(ten, 18, "f", &n, &err), AG_OK);
    assert_int_equal(n, 10);
}

/* Deep nesting would exhaust the stack, many small values the memory: both stay cheap. */
static void rejects_json_bombs_before_parsing(void **state) {
    (void)state;
    size_t n = 16 << 20;
    char *json = ag_malloc(n + 1);
    json[n] = '\0';
    ag_tensor_list h;
    ag_error err = {0};
    memset(json, '[', n);
    assert_int_equal(parse(json, 0, &h, &err), AG_FORMAT);
    assert_non_null(strstr(err.msg, "byte 64: JSON nested deeper than 64"));
    for (size_t i = 0; i + 3 <= n; i += 3) memcpy(json + i, "[],", 3);
    json[0] = '[';
    assert_int_equal(parse(json, 0, &h, &err), AG_LIMIT);
    /* In a string the same characters are only characters. */
    memset(json, '[', n);
    memcpy(json, "{\"__metadata__\":{\"\\\"\":\"", 23);
    memcpy(json + n - 3, "\"}}", 3);
    assert_int_equal(parse(json, 0, &h, &err), AG_OK);
    ag_tensor_list_free(&h);
    ag_free(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_and_rejects_files_as_the_manifest),
        cmocka_unit_test(recognises_files_of_other_formats),
        cmocka_unit_test(lists_tensors_in_the_order_of_data),
        cmocka_unit_test(knows_the_size_of_every_dtype),
        cmocka_unit_test(rejects_malformed_headers_with_a_reason),
        cmocka_unit_test(rejects_impossible_header_lengths_before_reading),
        cmocka_unit_test(rejects_json_bombs_before_parsing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
