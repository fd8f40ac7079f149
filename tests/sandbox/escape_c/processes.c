#include "escape.h"

static void by_pidfd(void) {
    int descriptor = syscall(SYS_pidfd_open, victim(), 0);
    if (descriptor < 0) { perror("pidfd_open"); return; }
    syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, NULL, 0);
}

static void pidfd_getfd_of_victim(void) {
    int descriptor = syscall(SYS_pidfd_open, victim(), 0);
    int stolen = syscall(SYS_pidfd_getfd, descriptor, 0, 0);
    char content[256] = {0};
    if (stolen >= 0 && pread(stolen, content, 255, 0) > 0) puts(content);
    else perror("pidfd_getfd");
}

static void pidfd_getfd_of_own(void) {
    pid_t child = fork();
    if (!child) { sleep(5); _exit(0); }
    worked("pidfd_getfd", syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, child, 0), 1, 0));
    kill(child, SIGKILL);
}

static void ptrace_victim(void) {
    long result = ptrace(PTRACE_ATTACH, victim(), 0, 0);
    worked("ptrace", result);
    if (result == 0) {
        waitpid(victim(), NULL, 0);
        ptrace(PTRACE_DETACH, victim(), 0, 0);
    }
}

static void ptrace_child(void) {
    pid_t child = fork();
    if (!child) { sleep(5); _exit(0); }
    worked("ptrace", ptrace(PTRACE_SEIZE, child, 0, 0));
    kill(child, SIGKILL);
}

static void vm_read(pid_t pid, const char *what) {
    char path[64], line[512], content[140000] = {0};
    unsigned long from = 0, to = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "[stack]")) sscanf(line, "%lx-%lx", &from, &to);
    struct iovec mine = {content, sizeof content}, theirs = {(void *)from, to - from};
    ssize_t got = process_vm_readv(pid, &mine, 1, &theirs, 1, 0);
    worked(what, got);
    if (got > 0) fwrite(content, 1, got, stdout);
}

static void vm_victim(void) { vm_read(victim(), "process_vm_readv"); }

static void vm_child(void) {
    pid_t child = fork();
    if (!child) { sleep(5); _exit(0); }
    vm_read(child, "process_vm_readv of a child");
    char byte = 1;
    struct iovec mine = {&byte, 1};
    worked("process_vm_writev", process_vm_writev(child, &mine, 1, &mine, 1, 0));
    worked("kcmp", syscall(SYS_kcmp, getpid(), child, 0, 1, 1));
    kill(child, SIGKILL);
}

/* Everything a process can do to outlive its parents; it ends by itself after a while, for where it succeeds. */
static void outlive(void) {
    prctl(PR_SET_PDEATHSIG, 0);
    prctl(PR_SET_DUMPABLE, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    for (int signal_number = 1; signal_number < 65; signal_number++) signal(signal_number, SIG_IGN);
    if (fork()) { sleep(8); return; }
    setsid();
    if (fork()) _exit(0);
    prctl(PR_SET_PDEATHSIG, 0);
    prctl(PR_SET_NAME, "kworker/0:1");
    for (int fd = 0; fd < 3; fd++) close(fd);
    for (int i = 0; i < 60; i++) {
        int file = open("beat", O_CREAT | O_WRONLY | O_TRUNC, 0644);
        if (file >= 0) close(file);
        usleep(50000);
    }
    _exit(0);
}

static void ioprio(void) {
    worked("ioprio_set", syscall(SYS_ioprio_set, 1, victim(), (3 << 13)));
    worked("ioprio_set real time", syscall(SYS_ioprio_set, 1, 0, (1 << 13)));
    struct sched_param parameter = {1};
    worked("sched_setscheduler", sched_setscheduler(0, SCHED_FIFO, &parameter));
}

int main(int argc, char **argv) {
    static const struct attack attacks[] = {
        {"pidfd", by_pidfd}, {"getfd", pidfd_getfd_of_victim}, {"getfd_own", pidfd_getfd_of_own},
        {"ptrace", ptrace_victim}, {"ptrace_child", ptrace_child}, {"vm", vm_victim}, {"vm_child", vm_child},
        {"outlive", outlive}, {"ioprio", ioprio}, {0}};
    return start(attacks, argc, argv);
}
