/* A library for LD_PRELOAD and its like: whoever loads it, where $OUT can be written, is caught. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

__attribute__((constructor)) static void loaded(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/pwned", getenv("OUT") ? getenv("OUT") : "/nonexistent");
    int file = open(path, O_CREAT | O_WRONLY, 0644);
    (void)file;
    struct rlimit size;
    if (getenv("LIMITS") && !getrlimit(RLIMIT_FSIZE, &size) && size.rlim_cur == RLIM_INFINITY)
        puts("ESCAPED the limits: it came before them"), fflush(stdout);
}

unsigned la_version(unsigned version) { loaded(); return version; }

/* What bwrap takes from libcap, so that it starts with this library in its place. */
int cap_from_name(const char *name, int *value) { (void)name; *value = 0; return 0; }
