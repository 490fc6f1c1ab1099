/* SPDX-License-Identifier: Apache-2.0 */
#include "version.h"

#include <antigravity/status.h>
#include <stdio.h>

const char *version_absent_parts(void) { return AG_ABSENT_PARTS; }

void version_print(void) {
    const char *absent = version_absent_parts();
    printf("antigravity %s%s%s\n", ag_version(), *absent ? ", built without " : "", absent);
}
