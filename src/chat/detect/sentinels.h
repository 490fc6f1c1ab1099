/* SPDX-License-Identifier: Apache-2.0 */
/* Sentinels: texts of the conversations that probe a template. Templates do not contain them. */
#ifndef AG_CHAT_SENTINELS_H
#define AG_CHAT_SENTINELS_H

#define AG_PROBE_QUESTION "Q7vq first question"
#define AG_PROBE_ANSWER "Q7va an answer"
#define AG_PROBE_REASONING "Q7vz"
#define AG_PROBE_TOOL "q7f_alpha"
#define AG_PROBE_TOOL_2 "q7f_beta"
#define AG_PROBE_KEY "q7k_one"
#define AG_PROBE_KEY_2 "q7k_two"
#define AG_PROBE_VALUE "q7v_one"
#define AG_PROBE_NUMBER "70417"
#define AG_PROBE_ID "q7v000001"

#endif
