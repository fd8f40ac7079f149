"""Variables that change which programs a program runs."""

from __future__ import annotations

import re

_DANGEROUS = re.compile(
    r"(?:PATH|\w+PATH|LD_\w+|DYLD_\w+|BASH\w*|ENV|IFS|PS[0-4]|GIT_\w+|PYTHON\w*|NODE_\w+|PERL\w*|RUBY\w*|GEM_\w+|JAVA\w*"
    r"|_JAVA\w*|JDK_\w+|MAVEN_\w+|GRADLE_\w+|GO\w+|CGO_\w+|CARGO\w*|RUST(?!_BACKTRACE)\w*|CC|CXX|CPP|LD|AR|AS|MAKE\w*|SHELL\w*"
    r"|\w*(?:PAGER|EDITOR|VISUAL|BROWSER|ASKPASS|COMMAND|CMD|OPTS|OPTIONS|FLAGS|PLUGINS|PRELOAD|CONFIG\w*|OPEN|CLOSE)"
    r"|HOME|\w+_HOME|XDG_\w+|TMPDIR|LESS\w*|MAN\w*|NPM_\w+|YARN_\w+|PNPM_\w+|PIP_\w+|UV_\w+|VIRTUAL_ENV|PYTEST_\w+|TAR_\w+"
    r"|SSH_\w+|RSYNC_\w+|DOCKER_\w+|TERMINFO\w*|LOCPATH|GCONV_PATH|MALLOC_\w+|GLIBC_\w+|NLSPATH|HOSTALIASES|\w*PROXY"
    r"|PROMPT\w*|HIST\w+|INPUTRC|GLOBIGNORE|CDPATH|FPATH|ZDOTDIR|KRB5\w*|OPENSSL\w*|SSL\w*|CURL_\w+|WGET\w*|LUA_\w+"
    r"|PHP\w*|DOTNET_\w+|CORECLR_\w+|COR_\w+|ELECTRON_\w+|QT_\w+|GTK_\w+|GIO_\w+)",
    re.IGNORECASE,
)  # fmt: skip


def is_dangerous(assignment: str) -> bool:
    """Whether a variable changes which programs a program runs; an index is never looked into."""
    return _DANGEROUS.fullmatch(re.split(r"\+?=|\[", assignment, maxsplit=1)[0]) is not None
