"""Tables of the programs that run other programs, and how their options are read; `unwrap.py` looks into them."""

from __future__ import annotations

import re
from typing import NamedTuple

from lmagent.engine.shellline.words import names_in

SYSTEM_DIRS = frozenset(("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"))
SHELLS = frozenset(("bash", "sh", "dash", "zsh", "ksh", "ash", "mksh", "rbash"))
# They change what names mean, or run text in ways not worth modelling.
REDEFINE = names_in("alias unalias enable hash shopt bind complete compgen compopt fc")
CARRIERS = names_in(
    "parallel flock strace ltrace chroot unshare nsenter script systemd-run taskset chrt numactl prlimit setarch "
    "linux64 linux32 unbuffer runuser pkexec setpriv fakeroot eatmydata torsocks proxychains xvfb-run rlwrap entr "
    "caffeinate firejail bwrap dbus-run-session fish csh tcsh start-stop-daemon capsh expect at batch crontab "
    "choom uclampset sg newgrp coreutils toolbox"
)
# With what is on their standard input, or in a file.
READING = names_in(
    "parallel script chroot unshare nsenter runuser pkexec fakeroot firejail bwrap fish csh tcsh expect at batch "
    "crontab "
    "entr sg newgrp toolbox unbuffer"
)
# To dash, `[[` is a command, `((` are subshells, and `$'` begins with a plain dollar sign.
ONLY_BASH = re.compile(r"\[\[|\(\(|\$'|\+=|\]=|<<<|[<>]\(|\}[<>]|\b(?:function|select|coproc)\b")


class Spec(NamedTuple):
    """How a wrapper's options are read: letters without and with a value, long ones alike."""

    flags: str = ""
    valued: str = ""
    long_flags: str = ""
    long_valued: str = ""
    operands: int = 0
    keep: bool = False
    assigns: bool = False
    plain: str = ""  # letters with which it runs nothing
    writes: str = ""  # letters whose value is a file it writes


SPECS = {
    "sudo": Spec(
        "AbBEHinPsSkKN", "CDghpRrTtUu",
        "--askpass --background --bell --preserve-env --set-home --login --non-interactive --preserve-groups --shell "
        "--stdin --reset-timestamp --no-update",
        "--chdir --group --host --prompt --chroot --command-timeout --user --close-from --role --type",
        keep=True, assigns=True, plain="elvV",
    ),
    "doas": Spec("ns", "uC", keep=True, plain="L"),
    "timeout": Spec(
        "vfp", "ks", "--foreground --preserve-status --verbose", "--kill-after --signal", operands=1
    ),
    "nice": Spec("0123456789", "n", "", "--adjustment"),
    "ionice": Spec("t", "cn", "--ignore", "--class --classdata", plain="pPu"),
    "nohup": Spec(),
    "setsid": Spec("cfw", "", "--ctty --fork --wait"),
    "stdbuf": Spec("", "ioe", "", "--input --output --error"),
    "time": Spec(
        "pvqa", "fo", "--portability --verbose --quiet --append", "--format --output", writes="o"
    ),
    "command": Spec("p", plain="vV"),
    "builtin": Spec(),
    "exec": Spec("cl", "a"),
    "coproc": Spec(),
    "xargs": Spec(
        "0rtpxo", "ILnPsEda",
        "--null --no-run-if-empty --verbose --interactive --exit --open-tty --show-limits",
        "--max-args --max-procs --max-chars --delimiter --arg-file --process-slot-var --max-lines --eof",
    ),
    "env": Spec(
        "i0v", "u", "--ignore-environment --null --debug --default-signal --ignore-signal --block-signal",
        "--unset", assigns=True,
    ),
    "watch": Spec(
        "bcdegprtwx", "nq", "--beep --color --differences --errexit --chgexit --no-title --precise --exec --no-wrap",
        "--interval --equexit",
    ),
}  # fmt: skip
