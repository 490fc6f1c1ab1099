/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/glob.h"

#include <fnmatch.h>

bool ag_glob_matches(const char *pattern, const char *text) {
    return fnmatch(pattern, text, 0) == 0;
}
