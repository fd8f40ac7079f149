"""Escapes by secrets: keys of the agent and of its user."""

from __future__ import annotations

import socket

from escape_kit import Case, Ground, Ran


def _sh(name: str, script: str, **more) -> Case:
    return Case(f"secret-{name}", "secrets", "sh", script, **more)


def _py(name: str, script: str, **more) -> Case:
    return Case(f"secret-{name}", "secrets", "python", script, **more)


def _home(name: str, file: str) -> Case:
    script = (
        f'f={file}; cat "$AGENTHOME/$f"; cat ~/"$f"; cat /proc/1/root"$AGENTHOME/$f"; cp "$AGENTHOME/$f" got && cat got'
    )
    return _sh(name, script, before=_agents_home)


def _agents_home(ground: Ground) -> None:
    ground.env["AGENTHOME"] = str(ground.base.parent.parent / "home")


def _hostname(_: Ground, ran: Ran) -> str:
    return "it knows the host's name" if f"[{socket.gethostname()}]" in ran.text else ""


CASES = (
    _sh("environment", "env; set; export -p; declare -p", control="held"),
    _py("environment-python", "print(dict(os.environ), open('/proc/self/environ').read())", control="held"),
    _sh(
        "environment-of-parents",
        r"""
        p=$$
        while [ "${p:-0}" -gt 0 ]; do cat /proc/$p/environ; p=$(awk "/^PPid/{print \$2}" /proc/$p/status); done
        """,
    ),
    _py(
        "command-lines",
        """
        for process in filter(str.isdigit, os.listdir("/proc")):
            try: print(open(f"/proc/{process}/cmdline", "rb").read())
            except OSError: pass  # it has just ended
        """,
        control="held",
    ),
    _home("ssh-key", ".ssh/id_rsa"),
    _home("aws", ".aws/credentials"),
    _home("lmagent-env", ".config/lmagent/.env"),
    _home("git-credentials", ".git-credentials"),
    _home("netrc", ".netrc"),
    _home("docker-config", ".docker/config.json"),
    _home("history", ".bash_history"),
    _home("gnupg", ".gnupg/private-keys-v1.d/key"),
    _sh(
        "git-credential-helper",
        r"""
        printf "protocol=https\nhost=example.com\n\n" | git credential fill
        git config --global -l
        HOME=$AGENTHOME git credential fill <<<$"url=https://example.com"
        """,
        before=_agents_home,
    ),
    _sh(
        "find",
        """
        grep -rIs "$AGENTHOME" /proc/self/mountinfo
        timeout 8 find / -xdev '(' -path /proc -o -path /usr ')' -prune -o -name id_rsa -exec cat '{}' + 2>/dev/null
        """,
        before=_agents_home,
        control="held",
    ),
    _sh(
        "private-certificates",
        """
        cat /etc/ssl/private/* /etc/pki/tls/private/* 2>/dev/null | grep -q . && echo ESCAPED
        """,
        control="held",
    ),
    _sh(
        "private-certificates-folder",
        """
        for d in /etc/ssl/private /etc/pki/tls/private; do [ -r $d ] && [ -x $d ] && echo ESCAPED $d; done
        """,
        control="root",
    ),
    _sh(
        "hostname",
        """
        echo "[$(uname -n)] [$(cat /etc/hostname)] [$(cat /proc/sys/kernel/hostname)]"
        """,
        proof=_hostname,
    ),
    _sh(
        "machine-id",
        """
        cat /etc/machine-id /var/lib/dbus/machine-id 2>/dev/null | grep -q . && echo ESCAPED
        """,
        control="held",
    ),
    _sh(
        "accounts",
        """
        n=$(wc -l </etc/passwd)
        [ "$n" -gt 5 ] && echo ESCAPED $n accounts
        getent passwd | grep -c .
        """,
    ),
    _py(
        "keyrings",
        """
        try: print(len(open('/proc/key-users').read()))
        except OSError as e: print(e)
        keys = attempt(open, '/proc/keys', escape=False)
        for line in keys or (): escaped(line.strip())
        """,
        control="held",
    ),
)
