#include "escape.h"
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/sched.h>

static void unshare_all(void) {
    int flags[] = {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET, CLONE_NEWPID, CLONE_NEWIPC, CLONE_NEWUTS, 0x02000000, 0x80};
    for (int i = 0; i < 8; i++) {
        pid_t child = fork();
        if (!child) { worked("unshare", unshare(flags[i])); _exit(0); }
        waitpid(child, NULL, 0);
    }
}

static void clone_user(void) {
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    worked("clone with CLONE_NEWUSER", pid);
    /* The upper half of the flags is not looked at by the kernel, and must not fool a filter. */
    pid = syscall(SYS_clone, 0xdead00000000UL | CLONE_NEWNS | CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) _exit(0);
    worked("clone with upper bits", pid);
}

static void clone3_user(void) {
    struct clone_args arguments = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0) _exit(0);
    worked("clone3 with CLONE_NEWUSER", pid);
}

static void setns_all(void) {
    const char *names[] = {"user", "mnt", "net", "pid", "ipc", "uts", "cgroup"};
    char path[64];
    for (int i = 0; i < 7; i++) {
        snprintf(path, sizeof path, "/proc/1/ns/%s", names[i]);
        int file = open(path, O_RDONLY);
        pid_t child = fork();
        if (!child) { if (file >= 0) worked(path, setns(file, 0)); _exit(0); }
        waitpid(child, NULL, 0);
    }
    int own = syscall(SYS_pidfd_open, getppid(), 0);
    pid_t child = fork();
    if (!child) { worked("setns by pidfd", setns(own, CLONE_NEWNET)); _exit(0); }
    waitpid(child, NULL, 0);
}

static void mounts(void) {
    mkdir("m", 0755);
    long result = mount("none", "m", "tmpfs", 0, "size=4k");
    worked("mount", result);
    if (result == 0) umount2("m", MNT_DETACH);
    result = mount(env("OUT"), "m", NULL, MS_BIND, NULL);
    worked("bind mount", result);
    if (result == 0) umount2("m", MNT_DETACH);
    reached("remount", mount(NULL, "/nonexistent", NULL, MS_REMOUNT | MS_BIND, NULL));
    reached("umount", umount2("/nonexistent", MNT_DETACH));
    reached("pivot_root", syscall(SYS_pivot_root, "/nonexistent", "/nonexistent"));
}

static void new_mounts(void) {
    reached("fsopen", syscall(428 + 2, "tmpfs", 0));
    reached("open_tree", syscall(428, AT_FDCWD, "/usr", 1 /* OPEN_TREE_CLONE */));
    reached("move_mount", syscall(429, -1, "", -1, "", 0x44));
    reached("fsconfig", syscall(431, -1, 0, 0, 0, 0));
    reached("fsmount", syscall(432, -1, 0, 0));
    reached("fspick", syscall(433, -1, "", 0));
    reached("mount_setattr", syscall(442, -1, "", 0x1000, NULL, 0));
}

static void keys(void) {
    reached("add_key", syscall(SYS_add_key, "user", "lmagent", "x", 1, KEY_SPEC_PROCESS_KEYRING));
    reached("keyctl", syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0));
    reached("request_key", syscall(SYS_request_key, "user", "lmagent", NULL, 0));
}

static void bpf(void) {
    union bpf_attr map = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    reached("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map));
}

static void perf(void) {
    struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE, .size = sizeof event, .exclude_kernel = 1};
    reached("perf_event_open", syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
}

static void userfault(void) { reached("userfaultfd", syscall(SYS_userfaultfd, 1)); }

static void uring(void) {
    char parameters[120] = {0};
    reached("io_uring_setup", syscall(425, 1, parameters));
    reached("io_uring_enter", syscall(426, -1, 0, 0, 0, NULL, 0));
    reached("io_uring_register", syscall(427, -1, 0, NULL, 0));
}

static void modules(void) {
    reached("init_module", syscall(SYS_init_module, NULL, 0, ""));
    reached("finit_module", syscall(SYS_finit_module, -1, "", 0));
    reached("delete_module", syscall(SYS_delete_module, "lmagent-nonexistent", O_NONBLOCK));
}

static void kexec(void) {
    reached("kexec_load", syscall(SYS_kexec_load, 0, 17, NULL, 0));
    reached("kexec_file_load", syscall(SYS_kexec_file_load, -1, -1, 0, "", 0xffff));
    reached("reboot", syscall(SYS_reboot, 1, 2, 3, NULL));
}

static void administration(void) {
    reached("swapon", syscall(SYS_swapon, "/nonexistent", 0));
    reached("swapoff", syscall(SYS_swapoff, "/nonexistent"));
    reached("acct", syscall(SYS_acct, "/nonexistent"));
    reached("quotactl", syscall(SYS_quotactl, 0x800002 << 8, "/nonexistent", 0, NULL));
    struct timespec never = {0, 2000000000};
    reached("clock_settime", syscall(SYS_clock_settime, CLOCK_REALTIME, &never));
    reached("sethostname", syscall(SYS_sethostname, "x", -1L));
    reached("setdomainname", syscall(SYS_setdomainname, "x", -1L));
}

static void log_buffer(void) {
    char text[1024];
    reached("syslog", syscall(SYS_syslog, 3, text, sizeof text));
    reached("syslog size", syscall(SYS_syslog, 10, NULL, 0));
}

static void processor(void) {
    reached("ioperm", syscall(SYS_ioperm, 0x80, 1, 1));
    reached("iopl", syscall(SYS_iopl, 3));
    char table[16];
    reached("modify_ldt", syscall(SYS_modify_ldt, 0, table, sizeof table));
}

/* The same calls by their x32 numbers, and by the gate of 32-bit programs: a filter by numbers must not miss them. */
static void x32(void) {
    reached("x32 getpid", syscall(0x40000000 | 39));
    reached("x32 unshare", syscall(0x40000000 | SYS_unshare, 0));
    reached("x32 ptrace", syscall(0x40000000 | 521, 0, 0, 0, 0));
}

static void gate(void) {
    pid_t child = fork();
    if (!child) {
        long result = -ENOSYS;
#ifdef __x86_64__
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20 /* getpid */) : "memory");
#endif
        errno = result < 0 ? -result : 0;
        worked("int 0x80", result < 0 ? -1 : result);
        _exit(0);
    }
    waitpid(child, NULL, 0);
}

static int terminal(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(master), unlockpt(master);
    setsid();
    int slave = open(ptsname(master), O_RDWR);
    ioctl(slave, TIOCSCTTY, 0);
    return slave;
}

/* Types into a terminal; EIO is the kernel's own switch (dev.tty.legacy_tiocsti). */
static void typed(const char *what, unsigned long request, void *argument) {
    pid_t child = fork();
    if (!child) { reached(what, syscall(SYS_ioctl, terminal(), request, argument)); _exit(0); }
    waitpid(child, NULL, 0);
}

static void sti(void) { typed("TIOCSTI", 0x5412, "x"); }
static void sti_high(void) {
    typed("TIOCSTI with bit 32", 0x100005412UL, "x");
    typed("TIOCSTI with bit 63", 0x8000000000005412UL, "x");
    typed("TIOCSTI sign-extended", 0xffffffff00005412UL, "x");
}
static void console(void) {
    char paste[2] = {3, 0};
    typed("TIOCLINUX", 0x541C, paste);
    typed("TIOCLINUX with bit 40", 0x1000000541CUL, paste);
}

int main(int argc, char **argv) {
    static const struct attack attacks[] = {
        {"unshare", unshare_all}, {"clone", clone_user}, {"clone3", clone3_user}, {"setns", setns_all},
        {"mounts", mounts}, {"new_mounts", new_mounts}, {"keys", keys}, {"bpf", bpf}, {"perf", perf},
        {"userfault", userfault}, {"uring", uring}, {"modules", modules}, {"kexec", kexec},
        {"administration", administration}, {"log", log_buffer}, {"processor", processor}, {"x32", x32}, {"gate", gate},
        {"sti", sti}, {"sti_high", sti_high}, {"console", console}, {0}};
    return start(attacks, argc, argv);
}
