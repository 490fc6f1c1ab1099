/* SPDX-License-Identifier: Apache-2.0 */
/* Version of the program, and the parts that its build left out. */
#ifndef ANTIGRAVITY_VERSION_H
#define ANTIGRAVITY_VERSION_H

/* Returns the parts that the build left out: "GPU, pull"; "" if it has all. */
const char *version_absent_parts(void);

/* Prints one line: the version, and the absent parts if there are any. */
void version_print(void);

#endif
