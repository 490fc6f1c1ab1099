/* SPDX-License-Identifier: Apache-2.0 */
/* A model file that becomes shorter while its weights are read from the map of it. */
#ifndef ANTIGRAVITY_TRUNCATED_FILE_H
#define ANTIGRAVITY_TRUNCATED_FILE_H

/* From now on that is said, naming dir (borrowed), and ends the program with EXIT_FAILED; without a
 * watch the system ends it by SIGBUS, silently. NULL: no longer. */
void truncated_file_watch(const char *dir);

#endif
