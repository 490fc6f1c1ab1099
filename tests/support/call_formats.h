/* SPDX-License-Identifier: Apache-2.0 */
/* Call formats for tests, at least one of each kind, and tools. */
#ifndef AG_TESTS_SUPPORT_CALL_FORMATS_H
#define AG_TESTS_SUPPORT_CALL_FORMATS_H

#include "chat/calls/call_format.h"

static const ag_call_format hermes = {.kind = AG_CALLS_JSON,
                                      .is_parallel = true,
                                      .section_open = "",
                                      .section_close = "",
                                      .call_open = "<tool_call>\n",
                                      .call_close = "\n</tool_call>",
                                      .triggers = {"<tool_call>"},
                                      .name_key = "name",
                                      .arguments_key = "arguments"};
static const ag_call_format bare = {.kind = AG_CALLS_JSON,
                                    .is_bare = true,
                                    .section_open = "",
                                    .section_close = "",
                                    .call_open = "",
                                    .call_close = "",
                                    .name_key = "name",
                                    .arguments_key = "parameters"};
static const ag_call_format list = {.kind = AG_CALLS_JSON,
                                    .section_open = "[TOOL_CALLS]",
                                    .section_close = "",
                                    .call_open = "",
                                    .call_close = "",
                                    .triggers = {"[TOOL_CALLS]"},
                                    .name_key = "name",
                                    .arguments_key = "arguments"};
static const ag_call_format named = {.kind = AG_CALLS_NAMED,
                                     .section_open = "",
                                     .section_close = "",
                                     .call_open = "[TOOL_CALLS]",
                                     .call_close = "",
                                     .triggers = {"[TOOL_CALLS]"},
                                     .id_open = "[CALL_ID]",
                                     .name_end = "[ARGS]"};
static const ag_call_format kimi = {.kind = AG_CALLS_NAMED,
                                    .id_is_name = true,
                                    .section_open = "<|calls|>",
                                    .section_close = "<|calls_end|>",
                                    .call_open = "<|call|>functions.",
                                    .call_close = "<|call_end|>",
                                    .triggers = {"<|calls|>", "<|call|>functions."},
                                    .name_end = "<|args|>"};
static const ag_call_format fenced = {.kind = AG_CALLS_NAMED,
                                      .section_open = "<calls>",
                                      .section_close = "</calls>",
                                      .call_open = "<call>function<sep>",
                                      .call_close = "\n```</call>",
                                      .triggers = {"<calls>", "<call>function<sep>"},
                                      .name_end = "\n```json\n"};
static const ag_call_format lines = {.kind = AG_CALLS_TAGGED,
                                     .section_open = "",
                                     .section_close = "",
                                     .call_open = "<tool_call>\n<function=",
                                     .call_close = "\n</function>\n</tool_call>",
                                     .triggers = {"<tool_call>"},
                                     .name_end = ">\n",
                                     .param_open = "<parameter=",
                                     .param_text = ">\n",
                                     .param_json = ">\n",
                                     .param_close = "\n</parameter>\n"};
static const ag_call_format keyed = {.kind = AG_CALLS_TAGGED,
                                     .section_open = "",
                                     .section_close = "",
                                     .call_open = "<tool_call>",
                                     .call_close = "\n</tool_call>",
                                     .triggers = {"<tool_call>"},
                                     .name_end = "\n",
                                     .param_open = "<arg_key>",
                                     .param_text = "</arg_key>\n<arg_value>",
                                     .param_json = "</arg_key>\n<arg_value>",
                                     .param_close = "</arg_value>\n"};
static const ag_call_format typed = {
    .kind = AG_CALLS_TAGGED,
    .section_open = "\n<calls>\n",
    .section_close = "</calls>",
    .call_open = "<invoke name=\"",
    .call_close = "</invoke>\n",
    .triggers = {"<calls>", "<invoke name=\""},
    .name_end = "\">\n",
    .param_open = "<parameter name=\"",
    .param_text = "\" string=\"true\">",
    .param_json = "\" string=\"false\">",
    .param_close = "</parameter>\n",
};
static const ag_call_format python = {.kind = AG_CALLS_PYTHON,
                                      .section_open = "<|start|>",
                                      .section_close = "<|end|>",
                                      .call_open = "",
                                      .call_close = "",
                                      .triggers = {"<|start|>"}};
static const ag_call_format braces = {.kind = AG_CALLS_BRACES,
                                      .section_open = "",
                                      .section_close = "",
                                      .call_open = "<|call>call:",
                                      .call_close = "<call|>",
                                      .triggers = {"<|call>call:"},
                                      .quote = "<|\"|>"};
static const ag_call_format headed = {.kind = AG_CALLS_TAGGED,
                                      .is_parallel = true,
                                      .section_open = "",
                                      .section_close = "",
                                      .call_open = "<invoke name=\"",
                                      .call_close = "</invoke>",
                                      .triggers = {"<invoke name=\""},
                                      .name_end = "\">\n",
                                      .param_open = "<parameter name=\"",
                                      .param_text = "\">",
                                      .param_json = "\">",
                                      .param_close = "</parameter>\n",
                                      .header_open = " to=",
                                      .header_between = "<|eom|><|start|>assistant to=",
                                      .header_close = "<|message|>"};
static const ag_call_format harmony = {.kind = AG_CALLS_HARMONY};

static const char tools_json[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": "
    "\"integer\"}, \"tags\": {\"type\": \"array\"}}}}}, {\"type\": \"function\", \"function\": "
    "{\"name\": \"add\"}}]";

static const ag_call_format *const all_call_formats[] = {
    &hermes, &bare,  &list,   &named,  &kimi,    &fenced, &lines,
    &keyed,  &typed, &python, &braces, &harmony, &headed,
};
enum { N_CALL_FORMATS = sizeof all_call_formats / sizeof *all_call_formats };

#endif
