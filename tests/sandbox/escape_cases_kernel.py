"""Escapes by the kernel: namespaces, mounts, system calls that no build needs, settings, control groups."""

from __future__ import annotations

from escape_kit import Case


def _sh(name: str, script: str, **more) -> Case:
    return Case(f"kernel-{name}", "kernel", "sh", script, **more)


def _py(name: str, script: str, **more) -> Case:
    return Case(f"kernel-{name}", "kernel", "python", script, **more)


def _c(name: str, function: str, **more) -> Case:
    return Case(f"kernel-{name}", "kernel", "c", f"kernel {function}", **more)


_OPEN = """
import glob
for pattern in sys.argv[1:]:
    for path in glob.glob(pattern):
        attempt(os.open, path, os.O_WRONLY | os.O_NONBLOCK)  # opened, never written
"""
_SETTINGS = tuple(
    f"/proc/sys/{name}"
    for name in (
        *("kernel/core_pattern", "kernel/modprobe", "kernel/hotplug", "kernel/sysrq", "kernel/randomize_va_space"),
        *("kernel/ns_last_pid", "kernel/hostname", "vm/drop_caches", "vm/overcommit_memory", "fs/suid_dumpable"),
        *("net/ipv4/ip_forward", "net/ipv4/ping_group_range", "user/max_user_namespaces", "fs/binfmt_misc/register"),
    )
)
_READ = """
for path in sys.argv[1:]:
    try: file = open(path, "rb", buffering=0); data = file.read(64)
    except OSError as error: print(path, error); continue
    if data: escaped(path, data)
"""
_HOSTS_OWN = {
    "docker-root": "docker leaves /proc/kpagecount and its like to their owner, who is root without any capability "
    "too, and nothing can be mounted over them from outside; an ordinary user's container cannot read them"
}

CASES = (
    _c("unshare", "unshare"),
    _sh(
        "unshare-program",
        """
        unshare -Ur true && echo ESCAPED
        unshare -m true && echo ESCAPED
        unshare -Urn true && echo ESCAPED
        """,
    ),
    _c("clone", "clone"),
    _c("clone3", "clone3"),
    _c("setns", "setns", control="root"),
    _sh(
        "nsenter",
        """
        nsenter -t 1 -m true && echo ESCAPED
        nsenter -t "$AGENT" -n true && echo ESCAPED
        """,
        control="root",
    ),
    _c("mounts", "mounts", control="root"),
    _c("new-mount-calls", "new_mounts"),
    _sh(
        "mount-program",
        """
        mkdir m
        unshare -Um true && mount -t tmpfs none m && { umount m; echo ESCAPED; }
        """,
        control="root",
    ),
    _sh("nested-bubblewrap", "bwrap --ro-bind / / --dev-bind /dev /dev true && echo ESCAPED"),
    _sh("chroot-program", "chroot / true && echo ESCAPED; unshare -r chroot / true && echo ESCAPED"),
    _c("keys", "keys"),
    _c("bpf", "bpf", control="root"),
    _c("perf", "perf"),
    _c("userfaultfd", "userfault"),
    _c("io-uring", "uring"),
    _c("modules", "modules", control="root"),
    _c("kexec-and-reboot", "kexec", control="root"),
    _c("administration", "administration"),
    _c("log-buffer", "log", control="root"),
    _sh(
        "dmesg",
        """
        dmesg | grep -q . && echo ESCAPED
        [ -r /dev/kmsg ] && timeout 1 head -c1 /dev/kmsg && echo ESCAPED
        """,
        control="root",
    ),
    _c("processor", "processor"),
    _c("x32-calls", "x32", control="held"),
    _c("32-bit-gate", "gate", control="held"),
    _c("terminal-input", "sti"),
    _c("terminal-input-high-bits", "sti_high"),
    _c("terminal-console", "console", control="held"),
    _py("settings", _OPEN, args=_SETTINGS, control="root"),
    _py(
        "core-pattern",
        """
        attempt(os.open, "/proc/sys/kernel/core_pattern", os.O_WRONLY)
        attempt(os.open, "/proc/self/root/proc/sys/kernel/core_pattern", os.O_RDWR)
        """,
        control="root",
    ),
    _py("sysrq", _OPEN, args=("/proc/sysrq-trigger", "/proc/1/root/proc/sysrq-trigger"), control="root"),
    _py(
        "uevent-helper",
        _OPEN,
        args=(
            "/sys/kernel/uevent_helper",
            "/sys/kernel/notes",
            "/sys/power/state",
            "/sys/block/*/uevent",
            "/sys/class/net/*/mtu",
        ),
        control="root",
    ),
    _py(
        "release-agent",
        _OPEN,
        args=("/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/*/release_agent", "/sys/fs/cgroup/*/notify_on_release"),
        control="root",
    ),
    _py(
        "cgroup-writes",
        _OPEN,
        args=(
            "/sys/fs/cgroup/cgroup.procs",
            "/sys/fs/cgroup/*/cgroup.procs",
            "/sys/fs/cgroup/*/*max*",
            "/sys/fs/cgroup/*/*limit*",
        ),
        control="root",
    ),
    _sh(
        "cgroup-mount",
        """
        mkdir c
        for t in "cgroup -o pids" cgroup2; do mount -t $t none c && { umount c; echo ESCAPED; }; done
        """,
        control="root",
    ),
    _py(
        "proc-writable",
        _OPEN,
        args=(
            "/proc/mtrr",
            "/proc/acpi/*",
            "/proc/scsi/scsi",
            "/proc/irq/*/smp_affinity",
            "/proc/bus/pci/*/*",
            "/proc/fs/*/*/*",
        ),
        control="root",
    ),
    _py(
        "memory-of-the-kernel",
        _READ,
        args=("/proc/kcore", "/proc/kmsg", "/dev/mem", "/dev/kmem", "/dev/port"),
        control="root",
    ),
    _py(
        "tables-of-the-owner",
        _READ,
        args=tuple(
            f"/proc/{name}"
            for name in (
                "kpagecount",
                "kpageflags",
                "kpagecgroup",
                "slabinfo",
                "vmallocinfo",
                "timer_list",
                "pagetypeinfo",
            )
        ),
        control="root",
        known=_HOSTS_OWN,
    ),
    _py(
        "devices-by-sys",
        _OPEN,
        args=("/sys/bus/*/drivers/*/bind", "/sys/bus/*/drivers_probe", "/sys/devices/system/cpu/cpu*/online"),
        control="root",
    ),
    _py(
        "debugfs",
        _READ,
        args=("/sys/kernel/debug/sched/features", "/sys/kernel/tracing/trace", "/sys/firmware/dmi/tables/DMI"),
        control="held",
    ),
    _sh("no-dump", "ulimit -c unlimited 2>/dev/null && echo ESCAPED", control="held"),
)
