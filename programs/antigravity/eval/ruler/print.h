/* SPDX-License-Identifier: Apache-2.0 */
/* Writes RULER prompts to standard output, for use by other programs. */
#ifndef ANTIGRAVITY_RULER_PRINT_H
#define ANTIGRAVITY_RULER_PRINT_H

#include "prompt.h"

/* Prints the prompt as one JSON object on a line. Returns an exit code. */
int ruler_print(const ruler_task *task, uint32_t length, int64_t seed, int64_t number,
                const ruler_prompt *p);

#endif
