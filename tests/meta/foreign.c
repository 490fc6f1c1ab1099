/* SPDX-License-Identifier: Apache-2.0 */
/* A function of another project's archive: visible to the linker, not exported by our library. */
__attribute__((visibility("default"))) int foreign_function(void);

int foreign_function(void) { return 1; }
