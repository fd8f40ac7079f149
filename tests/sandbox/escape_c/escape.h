/* Programs of the escape suite: PROGRAM FUNCTION. Each says ESCAPED where it got through, and TRIED at its end. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct attack { const char *name; void (*run)(void); };

static inline const char *env(const char *name) { const char *value = getenv(name); return value ? value : ""; }
static inline int victim(void) { return atoi(env("VICTIM")); }

/* Permitted calls are made with arguments that do nothing, so any other error means: the kernel went to work. */
static inline void reached(const char *what, long result) {
    int error = errno;
    if (result >= 0 || (error != EPERM && error != ENOSYS && error != EACCES))
        printf("ESCAPED %s: %ld, errno %d\n", what, result, result < 0 ? error : 0);
    else
        printf("held %s: errno %d\n", what, error);
    fflush(stdout);
}

static inline void worked(const char *what, long result) {
    int error = errno;
    printf("%s %s: %ld, errno %d\n", result >= 0 ? "ESCAPED" : "held", what, result, result < 0 ? error : 0);
    fflush(stdout);
}

static inline int start(const struct attack *attacks, int argc, char **argv) {
    for (; argc > 1 && attacks->name; attacks++)
        if (!strcmp(attacks->name, argv[1])) {
            attacks->run();
            puts("TRIED");
            return 0;
        }
    fprintf(stderr, "no such attack\n");
    return 2;
}
