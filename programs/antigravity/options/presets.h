/* SPDX-License-Identifier: Apache-2.0 */
/* Presets: JSON files of options that commands know by name. */
#ifndef ANTIGRAVITY_PRESETS_H
#define ANTIGRAVITY_PRESETS_H

#include "options.h"

#include <limits.h>

/* A preset is a file for options_read_file(): NAME.json in $XDG_CONFIG_HOME/antigravity/presets. A
 * name with a '/' is a path. On false the reason is in message[MESSAGE_SIZE]. */
bool preset_find(const char *name, char path[PATH_MAX], char *message);
/* Calls `each` for each preset, in the order of the names, until it returns false. */
void preset_each(bool (*each)(void *user, const char *name, const char *path), void *user);

/* The row "--preset NAME" of a structure with a field `preset`. */
#define PRESET_ROW                                                                             \
    {                                                                                          \
        .name = "preset", SETS_FILE("NAME", preset, preset_find),                              \
        .help = "options from NAME.json in ~/.config/antigravity/presets, which those of the " \
                "command line override"                                                        \
    }

#endif
