/* SPDX-License-Identifier: Apache-2.0 */
#include "speculation_options.h"

#define OPTION_STRUCT speculation_options

static const option_def defs[] = {
    {.name = "speculate",
     SETS_WORD("auto|off|always", how, AG_SPECULATE_AUTO),
     .help =
         "verify several drafted tokens at a time; on the CPU the text stays the same. auto: if "
         "it is faster, as measured while running, and only on the CPU; always: as long as "
         "possible, on GPUs too"},
    {.name = "draft-max",
     SETS_U32("N", draft_max, 1, 14),
     .aliases = {"draft", "draft-n"},
     .help = "maximum tokens of a draft"},
    {.name = "draft-model",
     SETS_NAME("MODEL", draft_model),
     .aliases = {"model-draft", "--md"},
     .help =
         "a smaller model of the same vocabulary that drafts tokens where the text suggests none"},
};

speculation_options speculation_defaults(void) {
    return (speculation_options){.how = AG_SPECULATE_AUTO, .draft_max = 7};
}

option_group speculation_group(speculation_options *o) {
    return OPTION_GROUP("Speculation", defs, o);
}

void speculation_apply(const speculation_options *o, ag_generate_params *p) {
    p->speculate = o->how;
    p->draft_max = o->draft_max;
}

const char *speculation_name(const speculation_options *o) {
    static const char *const names[] = {"auto", "off", "always"};
    return names[o->how];
}
