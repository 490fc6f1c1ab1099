/* SPDX-License-Identifier: Apache-2.0 */
/* Errors are values: a status to branch on and a message to read. Also the version. */
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

/* Lives on the caller's stack and owns nothing. Every function that takes an `ag_error *err`
 * accepts NULL; it is written only on failure. */
typedef struct ag_error {
    ag_status status;
    int line;         /* of the library's source, for bug reports */
    const char *file; /* a string literal */
    char msg[488]; /* one line, UTF-8 or the bytes of a file name, always terminated; of very long
                    * names the middle is left out */
} ag_error;

/* "NOMEM" and "out of memory": static strings, never NULL. */
AG_API const char *ag_status_name(ag_status status);
AG_API const char *ag_status_text(ag_status status);

typedef enum ag_log_level {
    AG_LOG_DEBUG,
    AG_LOG_INFO,
    AG_LOG_WARN,
    AG_LOG_STATUS, /* what is being done now and may take seconds: for a line that is overwritten */
} ag_log_level;

/* The library never prints. What a user may want to know while things go well is passed to such
 * a callback, one line without a newline; msg is borrowed for the call. */
typedef void (*ag_log_fn)(void *user, ag_log_level level, const char *msg);

/* The version of these headers, for the preprocessor. The build reads it from here. Versions are
 * compatible as long as MAJOR and MINOR are the same. */
#define AG_VERSION_MAJOR 0
#define AG_VERSION_MINOR 2
#define AG_VERSION_PATCH 0
#define AG_VERSION_STRING "0.2.0"
/* AG_VERSION_STRING of the library that is running. */
AG_API const char *ag_version(void);

#ifdef __cplusplus
}
#endif
#endif
