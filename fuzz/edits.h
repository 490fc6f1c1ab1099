/* SPDX-License-Identifier: Apache-2.0 */
/* Edits a valid file as the input of a target directs. Mutations thus reach code that runs after
 * the checks of the entire file. */
#ifndef AG_FUZZ_EDITS_H
#define AG_FUZZ_EDITS_H

#include <stddef.h>
#include <stdint.h>

enum { EDIT_BYTES = 8 };

/* Copy of a file in memory; edits can change its length. */
typedef struct edited_file {
    unsigned char *data; /* owned; free() it */
    size_t n;
} edited_file;

/* Returns the file at the path; aborts if it cannot be read. */
edited_file edited_file_read(const char *path);
edited_file edited_file_copy(const edited_file *f);
/* Applies edits of EDIT_BYTES each: an operation, an offset of three bytes, a number of four bytes.
 * Operations: set a byte, set a number, add to a number, insert, remove, truncate. With bit 7 the
 * offset counts from the end, with bit 6 it is a multiple of four. Ignores an incomplete edit. */
void edited_file_apply(edited_file *f, size_t first, const uint8_t *edits, size_t n);
/* Writes the checksum of the bytes before `end` at `end`; does nothing if the file is too short. */
void edited_file_seal(edited_file *f, size_t end);
/* Writes the file; aborts if that fails. */
void edited_file_write(const edited_file *f, const char *path);
/* Numbers lowest byte first, as files of caches have them. */
uint64_t edited_number(const unsigned char *p, size_t n_bytes);
void edited_set_number(unsigned char *p, size_t n_bytes, uint64_t value);

#endif
