/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes, error messages, log callbacks and the version. Functions report errors as values: a
 * status for the program and a message for people. */
#ifndef ANTIGRAVITY_STATUS_H
#define ANTIGRAVITY_STATUS_H

#if defined(_WIN32) || !defined(__GNUC__)
#define AG_API
#else
#define AG_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define AG_STATUS_MAP(X)                               \
    X(OK, "success")                                   \
    X(NOMEM, "out of memory")                          \
    X(INVALID, "argument is out of range")             \
    X(SHAPE, "tensor shapes do not fit the operation") \
    X(DTYPE, "data type does not fit the operation")   \
    X(FORMAT, "file or text is malformed")             \
    X(UNSUPPORTED, "valid, but not supported")         \
    X(NOT_FOUND, "no such file, tensor or name")       \
    X(IO, "reading or writing failed")                 \
    X(LIMIT, "a capacity or context limit is reached") \
    X(CANCELLED, "cancelled by the caller")            \
    X(DEVICE, "the device or its driver failed")       \
    X(REFUSED, "refused by the chat template")         \
    X(BUSY, "too many are waiting")

typedef enum ag_status {
#define AG_STATUS_ENUM(name, text) AG_##name,
    AG_STATUS_MAP(AG_STATUS_ENUM)
#undef AG_STATUS_ENUM
} ag_status;

/* An error message. The caller allocates it, usually on the stack; it owns nothing. Every function
 * with a parameter `ag_error *err` accepts NULL and writes *err only on failure. */
typedef struct ag_error {
    ag_status status;
    int line;         /* line of the library's source, for bug reports */
    const char *file; /* string literal */
    char msg[488]; /* one line, UTF-8 or the bytes of a file name, always terminated; the middle of
                    * very long names is omitted */
} ag_error;

/* Return the name ("NOMEM") and the text ("out of memory"). Static strings, never NULL. */
AG_API const char *ag_status_name(ag_status status);
AG_API const char *ag_status_text(ag_status status);

typedef enum ag_log_level {
    AG_LOG_DEBUG,
    AG_LOG_INFO,
    AG_LOG_WARN,
    AG_LOG_STATUS, /* progress of work that takes seconds; the next message replaces it */
} ag_log_level;

/* Receives log messages, since the library never prints. msg is one line without a newline,
 * borrowed for the call. */
typedef void (*ag_log_fn)(void *user, ag_log_level level, const char *msg);

/* Version of these headers. The build reads it from here. Versions with equal MAJOR and MINOR are
 * compatible. */
#define AG_VERSION_MAJOR 0
#define AG_VERSION_MINOR 2
#define AG_VERSION_PATCH 0
#define AG_VERSION_STRING "0.2.0"
/* Returns AG_VERSION_STRING of the running library. */
AG_API const char *ag_version(void);

#ifdef __cplusplus
}
#endif
#endif
