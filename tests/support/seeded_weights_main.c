/* SPDX-License-Identifier: Apache-2.0 */
/* usage: seeded_weights WEIGHTS_JSON OUT
 * Writes the safetensors file OUT. */
#include "support/seeded_weights.h"

int main(int argc, char **argv) {
    return argc == 3 && write_seeded_weights(argv[1], argv[2]) ? 0 : 1;
}
