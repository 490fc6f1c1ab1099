/* SPDX-License-Identifier: Apache-2.0 */
/* Records of one size in a file that nobody else reads. Whatever the system refuses, and whatever
 * happens to the file meanwhile, costs records and nothing else: putting and getting say whether it
 * worked, and the first failure is kept as a text. Counted: sessions and their forks share one. */
#ifndef AG_CACHE_SPILL_FILE_H
#define AG_CACHE_SPILL_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ag_spill_file ag_spill_file;

/* path: a directory, in which the file has no name, or a file that is not there yet and that is
 * removed at the end. It is made when the first record is put. max_bytes: of the file; 0: no limit.
 * NULL without memory. */
ag_spill_file *ag_spill_file_create(const char *path, size_t record_bytes, uint64_t max_bytes);
ag_spill_file *ag_spill_file_share(ag_spill_file *f); /* returns f */
/* Another one in the same directory; where the path is no directory, the same one. Counted. NULL
 * without memory. */
ag_spill_file *ag_spill_file_sibling(ag_spill_file *f);
void ag_spill_file_release(ag_spill_file *f); /* NULL is fine */

/* n bytes, at most record_bytes, of a record that becomes used. */
bool ag_spill_file_put(ag_spill_file *f, const void *bytes, size_t n, uint32_t *record);
/* The n bytes that were put; `sum` is their checksum (core/checksum.h). */
bool ag_spill_file_get(ag_spill_file *f, uint32_t record, void *bytes, size_t n, uint64_t sum);
void ag_spill_file_free(ag_spill_file *f, uint32_t record);
/* Whether max_bytes alone keeps a record from being put. */
bool ag_spill_file_is_full(const ag_spill_file *f);
/* A failure: it is full of what others need. */
void ag_spill_file_report_full(ag_spill_file *f);

uint64_t ag_spill_file_bytes(const ag_spill_file *f); /* of used records */
/* The first failure, or NULL; borrowed. */
const char *ag_spill_file_trouble(const ag_spill_file *f);
/* The same, once. */
const char *ag_spill_file_unreported_trouble(ag_spill_file *f);

uint64_t ag_spill_checksum(const void *bytes, size_t n);

#endif
