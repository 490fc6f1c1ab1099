/* SPDX-License-Identifier: Apache-2.0 */
/* The command in a build without libevent. */
#include "command.h"
#include "output.h"

int command_serve(int argc, char **argv) {
    (void)argc, (void)argv;
    complain("this program was built without libevent, by which it would speak HTTP "
             "(Debian: libevent-dev)");
    return EXIT_FAILED;
}
