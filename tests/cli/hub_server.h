/* SPDX-License-Identifier: Apache-2.0 */
/* Web server on 127.0.0.1 that imitates the API of Hugging Face's hub, with faults that a test
 * chooses. Runs in threads of the test. */
#ifndef AG_TESTS_HUB_SERVER_H
#define AG_TESTS_HUB_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* A file of a repository. A file with a hash is large and on another host. */
typedef struct hub_object {
    const char *repo, *path;
    const void *data; /* borrowed */
    size_t n;
    const char *sha256; /* NULL: the file is small */
} hub_object;

/* Paths that the server answers:
 *   /api/models/REPO/revision/REV   the list of files; REV is main, v2/x or COMMIT
 *   /REPO/resolve/COMMIT/PATH       a small file, or a redirect to http://localhost:PORT/far/...
 *   /plain/PATH   /weak/PATH        the object of that path with an ETag, or with none
 *   /status/N  /loop  /page         that status, a redirect to itself, a page of HTML */
#define HUB_COMMIT "0123456789abcdef0123456789abcdef01234567"

/* Faults of the server. They may be set while no client runs. */
typedef struct hub_faults {
    size_t cut_after;   /* bytes of a body until the connection breaks; 0: never */
    unsigned cuts;      /* how often */
    size_t pause_every; /* bytes between pauses of 1 ms; 0: no pauses */
    unsigned busy;      /* number of answers that are 503 */
    unsigned silent;    /* number of requests that get no answer until their client disconnects */
    bool no_length;     /* answers have no Content-Length */
    bool no_ranges;     /* ranges are ignored */
    bool unsatisfiable; /* ranges are answered by 416 */
    const char *token;  /* REPO/resolve requires it, else 401; NULL: none */
    size_t kill_after;  /* bytes of bodies until `victim` is killed; 0: never */
    pid_t victim;
    const char *etag;   /* ETag of /plain; NULL: "one" */
    unsigned old_etags; /* number of answers of /plain that still have "one" */
} hub_faults;

extern hub_faults hub_fault;

/* Starts the server. Returns its port. The objects are borrowed. */
int hub_start(const hub_object *objects, size_t n);

/* hub_log() returns the requests since the last hub_forget(), as lines of "METHOD host path range=R
 * if=V token=T". */
void hub_forget(void);
const char *hub_log(void);
size_t hub_bytes_sent(void); /* bytes of bodies */

#endif
