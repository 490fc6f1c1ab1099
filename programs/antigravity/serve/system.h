/* SPDX-License-Identifier: Apache-2.0 */
/* System calls of the server: files, the wall clock, random bytes and limits of the process. */
#ifndef ANTIGRAVITY_SERVE_SYSTEM_H
#define ANTIGRAVITY_SERVE_SYSTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Opens a file for appending, and creates it for its owner only. Returns NULL with errno. */
FILE *system_append_file(const char *path);
/* Opens a regular file of this user for reading; symbolic links are rejected. Returns NULL with
 * errno. */
FILE *system_open_own_file(const char *path);
bool system_is_directory(const char *path);
/* Gets the permissions (07777) of a file that can be read. Fails with errno. */
bool system_file_mode(const char *path, unsigned *mode);

/* Returns when the file changed last, in seconds since 1970; 0: not known. */
double system_change_time(const char *path);

/* Returns the seconds since 1970. */
double system_wall_clock(void);
/* Writes a time in UTC to text[cap]. seconds: since 1970; format: of strftime(). */
void system_format_time(char *text, size_t cap, const char *format, double seconds);

/* Fills bytes[0..n) with random bytes. Fails if the system has none. */
bool system_random(void *bytes, size_t n);

/* Returns the size of the machine's memory in bytes; 0: not known. */
uint64_t system_memory_bytes(void);

/* Raises the limit on open files as far as possible. Returns it; SIZE_MAX: none, or not known. */
size_t system_raise_file_limit(void);
/* Returns the pages of freed blocks of malloc() to the system. */
void system_trim_heap(void);

/* True if large blocks get their own pages. Sanitizers must see every block. */
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
enum { SYSTEM_HAS_PAGES = 1 };
#else
enum { SYSTEM_HAS_PAGES = 0 };
#endif
/* Map, resize and unmap pages, which are zero at first. Sizes are multiples of the page size.
 * Return NULL without memory, or without SYSTEM_HAS_PAGES. */
void *system_map_pages(size_t bytes);
void *system_remap_pages(void *pages, size_t old_bytes, size_t bytes);
void system_unmap_pages(void *pages, size_t bytes);

/* Configures malloc() so that freed memory returns to the system: few heaps, and separate mappings
 * for large blocks. No fastbins: free() merges each block at once. Otherwise one free() merges
 * thousands of them while the heap is locked. */
void system_limit_heap(void);

/* Runs this program with these arguments, which end with NULL. variable: "NAME=VALUE", set in its
 * environment. *output: a pipe, for reading without waiting, from its standard output and error.
 * Returns the process, or -1 with errno set. */
pid_t system_run_self(const char *const *args, const char *variable, int *output);
/* Waits until the process ends. Returns its exit code, or 128 plus the signal. */
int system_wait(pid_t pid);

#endif
