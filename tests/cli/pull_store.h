/* SPDX-License-Identifier: Apache-2.0 */
/* The directory that tests of `antigravity pull` use as the store of models. */
#ifndef AG_TESTS_PULL_STORE_H
#define AG_TESTS_PULL_STORE_H

#include <stdbool.h>
#include <stddef.h>

extern char store[64]; /* its path; the test makes it */

/* Returns whether libcurl is missing from this build or machine. */
bool lacks_libcurl(void);

/* Removes all files of the store. */
void empty_store(void);
/* Removes the store. */
void remove_store(void);
/* Returns the path of a file of the store, valid until the fourth next call. */
const char *in_store(const char *name);
bool is_there(const char *name);
/* Fails the test unless the file has exactly these bytes. */
void assert_file_is(const char *name, const void *bytes, size_t n);

#endif
