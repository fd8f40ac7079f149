"""Escapes by files: read or change what is outside the workspace."""

from __future__ import annotations

import os
from pathlib import Path

from escape_kit import Case, Ground, Ran

_SETGID = (
    "chmod with set-group-id is what folders need that a group of users shares, and a filter of system calls cannot "
    "tell a folder from a file: a program left in the workspace can have it, for the group of the user"
)


def _sh(name: str, script: str, **more) -> Case:
    return Case(f"files-{name}", "files", "sh", script, **more)


def _py(name: str, script: str, **more) -> Case:
    return Case(f"files-{name}", "files", "python", script, **more)


def _c(name: str, function: str, **more) -> Case:
    return Case(f"files-{name}", "files", "c", f"files {function}", **more)


def _ours(ground: Ground) -> None:
    folder = ground.here / ".lmagent"
    folder.mkdir()
    (folder / "log").write_text(ground.secret)


def _ours_changed(ground: Ground, _: Ran) -> str:
    folder = ground.here / ".lmagent"
    same = folder.is_dir() and os.listdir(folder) == ["log"] and (folder / "log").read_text() == ground.secret
    return "" if same else "the agent's own folder was changed"


def _ours_planted(ground: Ground, _: Ran) -> str:
    return "it made a .lmagent for the agent to read" if any((ground.here / ".lmagent").glob("*")) else ""


def _in_hosts_tmp(ground: Ground, _: Ran) -> str:
    there = [path for folder in ("/tmp", "/dev/shm") if (path := Path(folder, ground.secret[7:15])).exists()]
    for path in there:
        path.unlink()
    return f"it wrote {there}" if there else ""


def _tell_name(ground: Ground) -> None:
    ground.env["FILE"] = ground.secret[7:15]


def _privileged_files(ground: Ground, _: Ran) -> str:
    bits = {path.name: path.lstat().st_mode for path in ground.here.rglob("*")}
    found = [f"{name} {mode:o}" for name, mode in bits.items() if mode & 0o6000 and mode & 0o111]
    return f"set-user-id files on the host: {found}" if found else ""


def _linked(ground: Ground, _: Ran) -> str:
    found = [path.name for path in ground.here.iterdir() if path.is_file() and path.stat().st_nlink > 1]
    for name in found:
        (ground.here / name).unlink()
    return f"files of the system under names of the workspace: {found}" if found else ""


_OPEN = """
for path in sys.argv[1:]:
    attempt(os.open, path, os.O_WRONLY | os.O_NONBLOCK)  # opened, never written
"""
_UNNAMED = """
for path in sys.argv[1:]:
    attempt(os.open, path, os.O_WRONLY | os.O_TMPFILE, 0o600)  # a file without a name: nothing is left
"""
_DEVICES = tuple(
    f"/dev/{name}"
    for name in (
        *("mem", "kmem", "port", "kmsg", "kvm", "fuse", "loop-control", "loop0", "tty0", "tty1", "console", "hwrng"),
        *("sda", "vda", "nvme0n1", "xvda", "dm-0", "mapper/control", "net/tun", "btrfs-control", "vhost-vsock"),
        *("uinput", "input/event0", "dri/card0", "snd/controlC0", "rtc0", "cpu/0/msr", "cpu_dma_latency", "autofs"),
    )
)

CASES = (
    _sh("read-absolute", 'cat "$CANARY"'),
    _sh("read-var-tmp", 'cat "$ELSEWHERE/canary"'),
    _sh("read-dotdot", 'up=; for i in {1..16}; do up=../$up; cat "$up$CANARY"; done; cat "$RELATIVE"'),
    _sh("read-proc-self-root", 'cat "/proc/self/root$CANARY"'),
    _sh("read-proc-1-root", 'cat "/proc/1/root$CANARY"', control="root"),
    _sh("read-proc-self-cwd", 'cat "/proc/self/cwd/$RELATIVE"'),
    _sh("read-every-root-and-cwd", 'for p in /proc/[0-9]*; do cat "$p/root$CANARY" "$p/cwd/$RELATIVE"; done 2>&1'),
    _sh("read-symlink", 'ln -s "$CANARY" link; ln -s "$OUT" folder; cat link folder/canary'),
    _sh(
        "read-oldroot",
        """
        for r in /oldroot /newroot /.oldroot /mnt /host /rootfs; do cat "$r$CANARY"; done
        """,
        control="held",
    ),
    _sh("write-absolute", 'echo x >"$OUT/new"'),
    _sh("write-dotdot", 'echo x >"$(dirname "$RELATIVE")/new"'),
    _sh("write-append", 'echo x >>"$CANARY"'),
    _sh("write-truncate", 'truncate -s 0 "$CANARY"; : >"$CANARY"'),
    _sh("write-symlink", 'ln -s "$OUT" link; echo x >link/new; cp -r /etc/hostname link/; mv link/canary link/moved'),
    _sh("write-var-tmp", 'echo x >"$ELSEWHERE/new"'),
    _sh("delete", 'rm -rf "$OUT" "$ELSEWHERE" "$USERHOME"; find "$OUT" -delete'),
    _sh("chmod-and-touch", 'chmod 777 "$CANARY"; chown 65534 "$CANARY"; setfattr -n user.x -v y "$CANARY"'),
    _sh("rename-over", 'echo mine >mine; mv -f mine "$CANARY"; mv "$OUT/canary" stolen; cat stolen'),
    _py(
        "rename-exchange",
        """
        open("a", "w").write("mine")
        if libc.renameat2(-100, b"a", -100, E["CANARY"].encode(), 2) == 0: escaped(open("a").read())
        """,
    ),
    _sh("hard-link", 'ln "$CANARY" stolen; ln -L "$RELATIVE" stolen2; cat stolen stolen2'),
    _sh("hard-link-to-programs", "ln /usr/bin/env stolen; ln /etc/localtime stolen2", proof=_linked),
    _c("hard-link-by-descriptor", "linkat", proof=_linked, control="held"),
    _sh(
        "home-dotfiles",
        """
        for f in .bashrc .profile .ssh/authorized_keys .config/autostart; do echo x >>"$USERHOME/$f"; done
        """,
    ),
    _sh("home-keys", 'cat "$USERHOME/.ssh/id_rsa"; cp -r "$USERHOME/.ssh" . && cat .ssh/id_rsa'),
    _py("home-of-root", _UNNAMED, args=("/root", "/home", os.path.expanduser("~")), control="root"),
    # Files that no other test executes: a program that is open for writing cannot be started.
    _py("write-system", _OPEN, args=("/usr/bin/tsort", "/usr/lib/os-release", "/bin/dir"), control="root"),
    _py(
        "write-system-folders",
        _UNNAMED,
        args=("/usr", "/usr/bin", "/usr/local/bin", "/lib", "/etc", "/opt"),
        control="root",
    ),
    _py(
        "write-interpreter",
        """
        import encodings
        _f = [os.__file__, encodings.__file__, "/usr/bin/python3"]
        for f in _f: attempt(os.open, f, os.O_WRONLY)
        """,
        control="root",
    ),
    _py(
        "write-etc",
        _OPEN,
        args=("/etc/passwd", "/etc/shadow", "/etc/group", "/etc/ld.so.cache", "/etc/localtime"),
        control="root",
    ),
    _sh("read-shadow", "grep -q . /etc/shadow /etc/gshadow /etc/sudoers && echo ESCAPED", control="root"),
    _py(
        "write-run-and-var",
        _UNNAMED,
        args=("/run", "/var", "/var/lib", "/var/log", "/srv", "/boot", "/run/lock"),
        control="root",
    ),
    _py(
        "write-root",
        """
        attempt(os.mkdir, "/" + E["NAME"])
        attempt(os.rmdir, "/" + E["NAME"], escape=False)
        """,
        control="root",
    ),
    _sh("write-hosts-tmp", 'echo x >"/tmp/$FILE"; echo x >"/dev/shm/$FILE"', before=_tell_name, proof=_in_hosts_tmp),
    _sh("list-hosts-tmp", 'ls -R /tmp /var/tmp | grep -q "$(basename "$ELSEWHERE")" && echo ESCAPED'),
    _sh("other-workspace", 'cat "$OTHER/file"; echo x >"$OTHER/new"; echo x >>"$OTHER/file"'),
    _sh(
        "lmagent-of-the-workspace",
        """
        cat .lmagent/log .LMAGENT/log
        echo x >>.lmagent/log
        echo x >.lmagent/config.toml
        rm -rf .lmagent
        mv .lmagent x
        cat x/log
        """,
        own=True,
        before=_ours,
        proof=_ours_changed,
    ),
    _sh(
        "lmagent-planted",
        "mkdir .lmagent && echo 'sandbox = \"off\"' >.lmagent/config.toml",
        own=True,
        proof=_ours_planted,
    ),
    _py(
        "devices",
        """
        for path in sys.argv[1:]: attempt(os.open, path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        """,
        args=_DEVICES,
        control="root",
    ),
    _py(
        "terminals",
        """
        f = attempt(os.open, E["PTY"], os.O_WRONLY | os.O_NOCTTY, escape=False)
        if f: os.write(f, b"typed")
        """,
        needs=("pty",),
    ),
    _py("controlling-terminal", 'attempt(os.open, "/dev/tty", os.O_RDWR)', control="skip"),
    _py(
        "mknod",
        """
        import stat
        attempt(os.mknod, "null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        attempt(os.mknod, "disk", 0o600 | stat.S_IFBLK, os.makedev(254, 0))
        """,
        control="root",
    ),
    _sh(
        "setuid-copy",
        """
        cp /usr/bin/id . && chmod 4755 id
        cp /usr/bin/env . && chmod ug+s,a+rx env
        install -m 6755 /usr/bin/env e
        """,
        proof=_privileged_files,
    ),
    _py(
        "setuid-made",
        """
        attempt(os.open, "made", os.O_CREAT | os.O_WRONLY, 0o4755, escape=False)
        attempt(os.mknod, "node", 0o106755, escape=False)
        """,
        proof=_privileged_files,
    ),
    _c("setuid-by-every-call", "set_user_id", proof=_privileged_files),
    _sh(
        "setgid-made",
        """
        python3 -c 'import os; os.open("made", os.O_CREAT | os.O_WRONLY, 0o2755)'
        """,
        proof=_privileged_files,
    ),
    _sh(
        "setgid-copy",
        """
        cp /usr/bin/id . && chmod 2755 id
        """,
        proof=_privileged_files,
        known={"bubblewrap": _SETGID, "docker": _SETGID},
    ),
    _py(
        "new-privileges",
        r"""
        s = open("/proc/self/status").read()
        if "NoNewPrivs:\t1" not in s: escaped("set-user-id programs gain")
        for n in ("CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"):
            if f"{n}:\t0000000000000000" not in s: escaped(n)
        """,
    ),
    _py(
        "file-capabilities",
        """
        open("x", "w").close()
        attempt(os.setxattr, "x", "security.capability", struct.pack("<5I", 0x02000001, 1 << 21, 0, 0, 0))
        """,
        control="root",
    ),
    _py(
        "inherited-descriptors",
        """
        for n in os.listdir("/proc/self/fd"):
            try: where = os.readlink(f"/proc/self/fd/{n}")
            except OSError: continue
            if int(n) > 2 and "/fd" not in where: escaped(n, where)
        if os.readlink("/proc/self/fd/0") != "/dev/null": escaped("stdin")
        """,
        control="held",
    ),
    _sh(
        "descriptors-of-others",
        """
        for f in /proc/$AGENT/fd/* /proc/$PPID/fd/* /proc/1/fd/*; do [ -f "$f" ] && cat "$f"; done 2>&1
        """,
    ),
    _py(
        "programs-of-others",
        """
        for p in ("1", "self", str(os.getppid())): attempt(os.open, f"/proc/{p}/exe", os.O_WRONLY)
        """,
        control="held",
    ),
    _sh(
        "map-files",
        """
        cat /proc/1/map_files/* /proc/$AGENT/map_files/* 2>/dev/null | grep -qa ELF && echo ESCAPED
        """,
        control="root",
    ),
    _c("chroot", "chroot_out", control="root"),
    _c("handles", "handles", control="escapes"),
)
