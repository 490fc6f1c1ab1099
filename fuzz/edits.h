/* SPDX-License-Identifier: Apache-2.0 */
/* Edits of a valid file: the input of a target says what changes, so that mutations reach what lies
 * behind checks of the whole file. */
#ifndef AG_FUZZ_EDITS_H
#define AG_FUZZ_EDITS_H

#include <stddef.h>
#include <stdint.h>

enum { EDIT_BYTES = 8 };

/* A growing copy of a file. */
typedef struct edited_file {
    unsigned char *data; /* owned; free() it */
    size_t n;
} edited_file;

/* Returns the file at the path; aborts if it cannot be read. */
edited_file edited_file_read(const char *path);
edited_file edited_file_copy(const edited_file *f);
/* Applies edits of EDIT_BYTES each: an operation, three bytes of a place, a number of four bytes.
 * Operations: set a byte, set a number, add to a number, insert, remove, cut; with bit 7 the place
 * is counted from the end, with bit 6 it is a multiple of four. A part of an edit is ignored. */
void edited_file_apply(edited_file *f, size_t first, const uint8_t *edits, size_t n);
/* Puts the checksum of the bytes before `end` behind them, where the file has a seal. */
void edited_file_seal(edited_file *f, size_t end);
/* Writes the file; aborts if that fails. */
void edited_file_write(const edited_file *f, const char *path);
/* Numbers lowest byte first, as files of caches have them. */
uint64_t edited_number(const unsigned char *p, size_t n_bytes);
void edited_set_number(unsigned char *p, size_t n_bytes, uint64_t value);

#endif
