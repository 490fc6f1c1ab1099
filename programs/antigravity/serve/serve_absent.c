/* SPDX-License-Identifier: Apache-2.0 */
/* The command in a build without libevent. */
#include "../command.h"
#include "../terminal/output.h"

int command_serve(int argc, char **argv) {
    (void)argc, (void)argv;
    return complain_failure(
        "serve is not supported: this program was built without libevent (Debian: libevent-dev)");
}
