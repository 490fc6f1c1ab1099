/* SPDX-License-Identifier: Apache-2.0 */
#include "support/seeded_weights.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

static const char *text_of(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static uint64_t integer_of(const json_t *object, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static double number_of(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static const char *dtype_of(const json_t *manifest, const json_t *tensor) {
    return text_of(json_object_get(tensor, "dtype") ? tensor : manifest, "dtype");
}

/* Returns 0 for a type that is not supported. */
static size_t element_bytes(const char *dtype) {
    return !strcmp(dtype, "F32") ? 4 : !strcmp(dtype, "BF16") ? 2 : !strcmp(dtype, "U8") ? 1 : 0;
}

static uint64_t n_elements(const json_t *tensor) {
    uint64_t n = 1;
    const json_t *shape = json_object_get(tensor, "shape");
    for (size_t i = 0; i < json_array_size(shape); i++) {
        n *= (uint64_t)json_integer_value(json_array_get(shape, i));
    }
    return n;
}

/* ---- header ---- */

static void put_little_endian(FILE *f, uint64_t value, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) fputc((int)(value >> 8 * i & 255), f);
}

static bool put_header(FILE *f, json_t *manifest) {
    char *text = NULL;
    size_t n = 0;
    uint64_t offset = 0;
    const char *name;
    json_t *tensor;
    FILE *header = open_memstream(&text, &n);
    if (!header) return false;
    fputs("{\"__metadata__\":{\"format\":\"pt\"}", header);
    json_object_foreach(json_object_get(manifest, "tensors"), name, tensor) {
        const char *dtype = dtype_of(manifest, tensor);
        char *shape = json_dumps(json_object_get(tensor, "shape"), JSON_COMPACT);
        const uint64_t end = offset + n_elements(tensor) * element_bytes(dtype);
        fprintf(header,
                ",\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%" PRIu64 ",%" PRIu64
                "]}",
                name, dtype, shape ? shape : "", offset, end);
        free(shape);
        offset = end;
    }
    fputc('}', header);
    const bool is_complete = !ferror(header) && !fclose(header);
    const size_t padded = (n + 7) / 8 * 8;
    put_little_endian(f, padded, 8);
    fprintf(f, "%-*s", (int)padded, text);
    free(text);
    return is_complete;
}

/* ---- data ---- */

static uint64_t fnv1a(const char *name) {
    uint64_t hash = 0xcbf29ce484222325;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
    return hash;
}

/* Returns the next integer of 24 bits. */
static uint32_t next_random(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (uint32_t)((z ^ z >> 31) >> 40);
}

static uint32_t float_bits(double value) {
    const float f = (float)value;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static void put_tensor(FILE *f, uint64_t state, const json_t *tensor, const char *dtype) {
    const double mean = number_of(tensor, "mean"), half_range = number_of(tensor, "half_range");
    const uint64_t min = integer_of(tensor, "min"), n_values = integer_of(tensor, "max") - min + 1;
    const json_t *zero = json_object_get(tensor, "zero");
    const uint64_t zero_begin = (uint64_t)json_integer_value(json_array_get(zero, 0));
    const uint64_t n_zero = (uint64_t)json_integer_value(json_array_get(zero, 1));
    const size_t n_bytes = element_bytes(dtype);
    const uint64_t n = n_elements(tensor);
    for (uint64_t i = 0; i < n; i++) {
        const uint32_t random = next_random(&state);
        const double in_range = ((double)random - 0x1p23) / 0x1p23;
        uint32_t bits = float_bits(mean + half_range * in_range);
        if (n_bytes == 2) bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        if (n_bytes == 1) bits = (uint32_t)(min + (random * n_values >> 24));
        if (i - zero_begin < n_zero) bits = 0;
        put_little_endian(f, bits, n_bytes);
    }
}

static bool put_file(FILE *f, json_t *manifest) {
    const uint64_t seed = integer_of(manifest, "seed");
    const char *name;
    json_t *tensor;
    if (!put_header(f, manifest)) return false;
    json_object_foreach(json_object_get(manifest, "tensors"), name, tensor) {
        const char *dtype = dtype_of(manifest, tensor);
        if (!element_bytes(dtype)) {
            fprintf(stderr, "%s: dtype is '%s'; it must be BF16, F32 or U8\n", name, dtype);
            return false;
        }
        put_tensor(f, seed ^ fnv1a(name), tensor, dtype);
    }
    return !ferror(f);
}

bool write_seeded_weights(const char *manifest, const char *out) {
    json_error_t error;
    json_t *json = json_load_file(manifest, 0, &error);
    if (!json) {
        fprintf(stderr, "%s: line %d: %s\n", manifest, error.line, error.text);
        return false;
    }
    FILE *f = fopen(out, "wb");
    bool is_written = f && put_file(f, json);
    if (f && fclose(f)) is_written = false;
    if (!is_written) fprintf(stderr, "%s: cannot write the weights of %s\n", out, manifest);
    json_decref(json);
    return is_written;
}
