/* SPDX-License-Identifier: Apache-2.0 */
/* Spill file: records of one size in a private file. A system error costs records and nothing
 * else: put and get return false, and the text of the first failure is stored.
 * Reference-counted: sessions and their forks share one. */
#ifndef AG_CACHE_SPILL_FILE_H
#define AG_CACHE_SPILL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ag_spill_file ag_spill_file;

/* Creates a spill file; NULL if out of memory. path: a directory, where the file gets no name,
 * or a file that does not exist and is removed at the end. The file is opened when the first
 * record is written. max_bytes: limit of the file; 0: no limit. */
ag_spill_file *ag_spill_file_create(const char *path, size_t record_bytes, uint64_t max_bytes);
ag_spill_file *ag_spill_file_share(ag_spill_file *f); /* adds a reference and returns f */
/* Returns another file in the same directory, or f with one more reference if the path is not a
 * directory. NULL if out of memory. */
ag_spill_file *ag_spill_file_sibling(ag_spill_file *f);
void ag_spill_file_release(ag_spill_file *f); /* accepts NULL */

/* Writes n bytes, at most record_bytes, to a free record and sets *record. Returns false on
 * failure. */
bool ag_spill_file_put(ag_spill_file *f, const void *bytes, size_t n, uint32_t *record);
/* Reads the n bytes of a record and compares their checksum with `sum`. Returns false on
 * failure. */
bool ag_spill_file_get(ag_spill_file *f, uint32_t record, void *bytes, size_t n, uint64_t sum);
void ag_spill_file_free(ag_spill_file *f, uint32_t record);
/* Returns whether the limit max_bytes prevents another record. */
bool ag_spill_file_is_full(const ag_spill_file *f);
/* Stores as the failure that the file is full of records of other sessions. */
void ag_spill_file_report_full(ag_spill_file *f);

uint64_t ag_spill_file_bytes(const ag_spill_file *f); /* bytes of records in use */
/* Returns the text of the first failure, borrowed; NULL if there was none. */
const char *ag_spill_file_trouble(const ag_spill_file *f);
/* Returns the same text once, then NULL. */
const char *ag_spill_file_unreported_trouble(ag_spill_file *f);

uint64_t ag_spill_checksum(const void *bytes, size_t n);

#endif
