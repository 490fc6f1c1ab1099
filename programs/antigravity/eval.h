/* SPDX-License-Identifier: Apache-2.0 */
/* antigravity eval: its measures, one file each. They get argv from their own name on and return an
 * exit code. */
#ifndef ANTIGRAVITY_EVAL_H
#define ANTIGRAVITY_EVAL_H

int eval_ppl(int argc, char **argv);
int eval_needle(int argc, char **argv);
int eval_kl(int argc, char **argv);

#endif
