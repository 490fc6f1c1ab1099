/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/pages.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

size_t ag_page_size(void) {
    long n = sysconf(_SC_PAGESIZE);
    return n > 0 ? (size_t)n : 4096;
}

size_t ag_pages_round_up(size_t bytes) {
    size_t page = ag_page_size();
    return (bytes + page - 1) / page * page;
}

size_t ag_pages_discard(void *data, size_t size, size_t offset, size_t n) {
    size_t page = ag_page_size();
    size_t begin = ag_pages_round_up(offset), end = offset + n;
    end = end == size ? ag_pages_round_up(end) : end / page * page;
    if (begin >= end) return 0;
    /* The mapping ends with its last page, so `end` never passes it. */
    return madvise((char *)data + begin, end - begin, MADV_DONTNEED) == 0 ? end - begin : 0;
}

void ag_pages_want_huge(void *p, size_t bytes) {
#ifdef MADV_HUGEPAGE
    enum { HUGE_PAGE = 2 << 20 };
    const size_t head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    if (bytes < head + HUGE_PAGE) return;
    (void)madvise((char *)p + head, (bytes - head) / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#else
    (void)p, (void)bytes;
#endif
}
