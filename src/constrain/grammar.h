/* SPDX-License-Identifier: Apache-2.0 */
/* Grammar files, in the notation that llama.cpp calls GBNF. */
#ifndef AG_CONSTRAIN_GRAMMAR_H
#define AG_CONSTRAIN_GRAMMAR_H

#include "constrain/net.h"

/* *start: a call of the rule "root". AG_FORMAT names the line. */
ag_status ag_grammar_compile(ag_net *net, const char *text, size_t n, uint32_t *start,
                             ag_error *err);

#endif
