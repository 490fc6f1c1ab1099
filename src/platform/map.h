/* SPDX-License-Identifier: Apache-2.0 */
/* Memory pages: anonymous and file mappings, and advice about their pages. The system may ignore
 * advice; memory then works the same, only slower. */
#ifndef AG_PLATFORM_MAP_H
#define AG_PLATFORM_MAP_H

#include <stdbool.h>
#include <stddef.h>

enum { AG_HUGE_PAGE = 2 << 20 };

size_t ag_page_size(void);

/* Maps `bytes`, rounded up to full pages, of zeroed memory. Return NULL after a failure.
 *   ag_map_huge   from 2 MiB on aligned to 2 MiB and advised to use huge pages
 *   ag_map_small  small pages, which the system commits when they are first touched */
void *ag_map_huge(size_t bytes);
void *ag_map_small(size_t bytes);
/* Maps the first `bytes` of an open file read-only, to be read from front to back. NULL: errno.
 * Reading beyond the end of a file that has shrunk raises SIGBUS. */
void *ag_map_file(int fd, size_t bytes);
/* `bytes` as given to the function that mapped p. */
void ag_unmap(void *p, size_t bytes);

/* Gives back the full pages inside [offset, offset + n) of a mapping of `size` bytes at `data`,
 * which begins on a page. The page that holds the mapping's end counts as full if the range
 * reaches that end. Returns the bytes given back. Anonymous memory reads as zero afterwards, a
 * file's bytes are read again. */
size_t ag_pages_discard(void *data, size_t size, size_t offset, size_t n);
/* Drops [begin, end) of a file mapping from this process's memory. `begin` is on a page. */
void ag_pages_drop(void *data, size_t begin, size_t end);

/* Asks for huge pages where full ones fit into [p, p + bytes): scratch memory that is read again
 * and again. */
void ag_pages_prefer_huge(void *p, size_t bytes);
/* Turns the small pages of [p, p + AG_HUGE_PAGE), p aligned to it, into a huge one (Linux 6.1). If
 * the page is given back later, small pages take its place. */
void ag_pages_collapse(void *p);

#endif
