/* SPDX-License-Identifier: Apache-2.0 */
/* Built without libevent: there is no server. */
#include "command.h"
#include "output.h"

int command_serve(int argc, char **argv) {
    (void)argc, (void)argv;
    complain("this program was built without libevent, by which it would speak HTTP "
             "(Debian: libevent-dev)");
    return EXIT_FAILED;
}
