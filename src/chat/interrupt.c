/* SPDX-License-Identifier: Apache-2.0 */
#include "chat/interrupt.h"

#include "core/fail.h"
#include "core/interrupt.h"

/* The interrupt function may make a system call, and a list item takes about a microsecond. */
enum { ITEMS_PER_CHECK = 16 };

ag_status ag_chat_check_interrupt(const char *what, ag_error *err) {
    static _Thread_local unsigned n_items;
    if (++n_items % ITEMS_PER_CHECK != 0 || !ag_interrupted()) return AG_OK;
    return AG_FAIL(err, CANCELLED, "%s: interrupted", what);
}
