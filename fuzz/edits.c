/* SPDX-License-Identifier: Apache-2.0 */
#include "edits.h"

#include "core/checksum.h"
#include "formats/checksummed_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 1 << 20, MAX_INSERTED = 64, FROM_END = 128, ALIGNED = 64, N_OPERATIONS = 6 };

static void must(int ok) {
    if (!ok) abort();
}

uint64_t edited_number(const unsigned char *p, size_t n_bytes) {
    uint64_t value = 0;
    for (size_t i = n_bytes; i--;) value = value << 8 | p[i];
    return value;
}

void edited_set_number(unsigned char *p, size_t n_bytes, uint64_t value) {
    for (size_t i = 0; i < n_bytes; i++) p[i] = (unsigned char)(value >> (8 * i));
}

edited_file edited_file_read(const char *path) {
    FILE *f = fopen(path, "rb");
    must(f && fseek(f, 0, SEEK_END) == 0);
    const long n = ftell(f);
    edited_file e = {.data = malloc((size_t)n + 1), .n = (size_t)n};
    must(e.data && fseek(f, 0, SEEK_SET) == 0 && fread(e.data, 1, e.n, f) == e.n);
    fclose(f);
    return e;
}

edited_file edited_file_copy(const edited_file *f) {
    edited_file e = {.data = malloc(MAX_FILE), .n = f->n};
    must(e.data && f->n <= MAX_FILE);
    memcpy(e.data, f->data, f->n);
    return e;
}

static void insert(edited_file *f, size_t at, size_t n, unsigned char value) {
    if (f->n + n > MAX_FILE) return;
    memmove(f->data + at + n, f->data + at, f->n - at);
    memset(f->data + at, value, n);
    f->n += n;
}

static void remove_bytes(edited_file *f, size_t at, size_t n) {
    if (n > f->n - at) n = f->n - at;
    memmove(f->data + at, f->data + at + n, f->n - at - n);
    f->n -= n;
}

static void apply(edited_file *f, size_t first, const uint8_t *edit) {
    if (f->n <= first) return;
    size_t at = edited_number(edit + 1, 3) % (f->n - first);
    if (edit[0] & ALIGNED) at &= ~(size_t)3;
    at = edit[0] & FROM_END ? f->n - 1 - at : first + at;
    const uint32_t value = (uint32_t)edited_number(edit + 4, 4);
    const size_t width = f->n - at < 4 ? f->n - at : 4;
    switch (edit[0] % ALIGNED % N_OPERATIONS) {
    case 0:
        f->data[at] = (unsigned char)value;
        break;
    case 1:
        edited_set_number(f->data + at, width, value);
        break;
    case 2:
        edited_set_number(f->data + at, width, edited_number(f->data + at, width) + value);
        break;
    case 3:
        insert(f, at, value % MAX_INSERTED, (unsigned char)(value >> 8));
        break;
    case 4:
        remove_bytes(f, at, value % MAX_INSERTED);
        break;
    default:
        f->n = at;
    }
}

void edited_file_apply(edited_file *f, size_t first, const uint8_t *edits, size_t n) {
    for (size_t i = 0; i + EDIT_BYTES <= n; i += EDIT_BYTES) apply(f, first, edits + i);
}

void edited_file_seal(edited_file *f, size_t end) {
    ag_checksum sum;
    if (end + AG_CHECKSUM_BYTES > f->n) return;
    ag_checksum_begin(&sum);
    ag_checksum_add(&sum, f->data, end);
    edited_set_number(f->data + end, AG_CHECKSUM_BYTES, ag_checksum_value(&sum));
}

void edited_file_write(const edited_file *f, const char *path) {
    FILE *out = fopen(path, "wb");
    must(out && fwrite(f->data, 1, f->n, out) == f->n && fclose(out) == 0);
}
