"""Sharp words: with them a program runs another one, loads code, or writes or deletes what is not its business.

A final `*` of an allow rule does not cover them; a pattern that spells them out does. Here is the table; `options.py`
reads it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lmagent.engine.shellline.words import names_in


class Sharp(NamedTuple):
    """What is sharp of a program.

    Attributes:
        options: `-x` stands alone or in a cluster, `--long` may be abbreviated, `-long` is an option of one or two
            dashes, and `*` at the end is any text.
        valued: letters that take a value, so that what follows them in a cluster is no option.
        whole: options are whole words (`go test -exec`): no clusters, no abbreviations.
        first: letters of a first word without a dash (`tar xf a.tar`) are options, too.
        word: any other word that is sharp, also as the value of an option.
        head: only options in front of the first operand are its own; what follows belongs to a script.
    """

    options: frozenset[str] = frozenset()
    valued: str = ""
    whole: bool = False
    first: bool = False
    word: re.Pattern[str] | None = None
    head: bool = False


def _of(
    options: str = "", valued: str = "", *, whole: bool = False, first: bool = False, word: str = "", head: bool = False
) -> Sharp:
    return Sharp(names_in(options), valued, whole, first, re.compile(word, re.DOTALL) if word else None, head)


_CC = _of(
    "-wrapper -fplugin* -fpass-plugin* -fuse-ld* -specs -specs* -B* -Xclang -load -iplugindir* -fprofile-use* "
        "--ld-path "
    "--config --gcc-toolchain --specs",
    whole=True, word=r"@.*|-W[lpa],.*(?:plugin|-o|@).*",
)  # fmt: skip
_TAR = _of(
    "-I -F -T -P -g --to-command --use-compress-program --checkpoint-action --rsh-command --rmt-command --info-script "
    "--new-volume-script --files-from --absolute-names --listed-incremental --index-file --volno-file --remove-files",
    "bCfHKLNVX", first=True,
)  # fmt: skip
_VIM = _of("-c -S -s -u -U -w -W -e -E -i --cmd --startuptime --remote-send --remote-expr", word=r"\+.*")
_FD = _of("-x -X --exec --exec-batch", "cdeEjSot")
_AWK = _of(
    "-f -i -l -o -d -p -E -D --file --include --load --exec --pretty-print --dump-variables --profile --debug", "Fve"
)
_SSH = _of("-o -F -E -I -S -D -P")
_PAGED = _of(
    "-o -O -k -T --log-file --LOG-FILE --lesskey-file --lesskey-src --lesskey-content --tag-file", word=r"\+.*"
)

SHARP: dict[str, Sharp] = {
    # Git's own rules are in options.py; these are of any of its commands.
    "git": _of(
        "-O -x --output --output-directory --ext-diff --textconv --open-files-in-pager --exec --exec-path --config "
        "--config-env --upload-pack --receive-pack --git-dir --work-tree --template --extcmd --tool --sendmail-cmd",
        word="ext::.*",
    ),
    # Looking, searching, comparing.
    "rg": _of("--pre --hostname-bin", "gefmtTABCEMjdr"), "ag": _of("--pager"), "ack": _of("--pager --ackrc"),
    "bat": _of("--pager"), "batcat": _of("--pager"), "fd": _FD, "fdfind": _FD, "tree": _of("-o"),
    "find": _of(),  # what it runs is unwrapped; here it only means that a run-time word may become -delete
    "less": _PAGED, "more": _of(word=r"\+.*"), "most": _of(word=r"\+.*"),
    "man": _of("-P -H -C -M --pager --html --config-file --manpath"), "info": _of("-o --output --restore"),
    "diff": _of("--to-file"), "uniq": _of(), "xxd": _of(), "file": _of("-C --compile"),
    "split": _of("--filter"), "shuf": _of("-o --output"), "iconv": _of("-o --output"), "base64": _of("-o --output"),
    "sort": _of("-o -T --output --compress-program --temporary-directory", "kStC"), "tee": _of(),
    "xmllint": _of("-o --output --shell", whole=True), "xsltproc": _of("-o --output", whole=True),
    "dot": _of("-o -O"), "nm": _of("--plugin"), "ar": _of("--plugin"), "objdump": _of("--plugin"),
    # Text by a program of its own: see also options.py.
    "sed": _of("-i -f -s -I -w --in-place --file --separate", "el"),
    "awk": _AWK, "gawk": _AWK, "mawk": _AWK, "nawk": _AWK,
    "jq": _of("-f -L --from-file --library-path"), "yq": _of("-i -s -f --inplace --in-place --split-exp --from-file"),
    "perl": _of("-i -M -m -I -d -x", head=True), "ruby": _of("-r -I -i -x -C --require", head=True),
    "php": _of("-r -d -B -R -F -E -c -z", head=True),
    "node": _of(
        "-r --require --import --loader --experimental-loader --env-file --cpu-prof-dir --heapsnapshot-near-heap-limit "
        "--diagnostic-dir --trace-event-file-pattern --report-dir --redirect-warnings --openssl-config "
        "--build-snapshot",
        head=True,
    ),
    "ts-node": _of("-r --require -e --eval --compiler -C", head=True), "tsx": _of("-r --require --import", head=True),
    # Archives and copies.
    "tar": _TAR, "bsdtar": _TAR, "gtar": _TAR,
    "zip": _of("-T -TT -m -O -lf -la --test --unzip-command --move --output-file --out --logfile-path --TT"),
    "rsync": _of("-e -M -T --rsh --rsync-path --delete* --remove-source-files --log-file --write-batch --daemon "
        "--config "
                 "--remote-option --backup-dir --partial-dir --temp-dir --only-write-batch"),
    "scp": _of("-S -o -F -D -J"), "sftp": _of("-S -o -F -D -b -s -J"), "ssh": _SSH, "ssh-keygen": _of("-D -P -w -f"),
    # The net.
    "curl": _of(
        "-o -O -J -K -T -F -D -c -x --output --remote-name --remote-name-all --remote-header-name --output-dir "
        "--config "
        "--upload-file --form --data-urlencode --dump-header --cookie-jar --trace --trace-ascii --stderr "
        "--libcurl --hsts --alt-svc "
        "--etag-save --proxy --preproxy --unix-socket --abstract-unix-socket --engine --netrc-file --create-file-mode",
        "XHdAeubmrwzCEYytUPQ", word=r"-\w*d@.*|--(?:data|json|url-query)[\w-]*=[^@]*@.*|@.+|.*%output\{.*",
    ),
    "wget": _of(
        "-O -o -a -P -e -i -x --output-document --output-file --append-output --directory-prefix --execute --post-file "
        "--post-data --body-file --body-data --use-askpass --config --save-cookies --warc-file --rejected-log "
        "--hsts-file "
        "--input-file --ca-directory", "tTQUABRDIXwl",
    ),
    "openssl": _of("-out -engine -provider -provider-path -writerand -config", whole=True),
    "tcpdump": _of("-z -w -W -C -G"), "nmap": _of("-o* --script* -iL --datadir --resume --stylesheet", whole=True),
    "ip": _of("-b -batch -force", whole=True, word="exec"), "ss": _of("-K -D --kill --diag"),
    # Build tools and compilers.
    "make": _of(
        "-f -C -I -E --file --makefile --directory --include-dir "
        "--eval", "jlOW", word=r"(?P<assigned>[\w.]+)[:?+]?:?=.*",
    ),
    "cmake": _of("-P -E -C --install-prefix --graphviz --profiling-output --trace-redirect --toolchain", whole=True,
                 word=r"-D?.*(?:COMPILER|LAUNCHER|PROGRAM|INCLUDE|TOOLCHAIN|COMMAND|LINKER).*="),
    "ninja": _of("-C -f -t"), "ctest": _of("-S -SP -O --output-log --build-and-test --output-junit", whole=True),
    "cargo": _of("-Z -C --config --target-dir --out-dir --artifact-dir --lockfile-path"),
    "rustc": _of("-o -C -Z --codegen --out-dir --emit --sysroot", word="@.*"),
    "go": _of(
        "-exec -toolexec -vettool -o -C -overlay -w -ldflags -gcflags -asmflags -gccgoflags -extldflags -modfile "
        "-compiler "
        "-pkgdir -coverprofile -cpuprofile -memprofile -blockprofile -mutexprofile -trace -outputdir -test.* "
        "-fuzzcachedir "
        "-modcacherw -pgo -httptest.serve", whole=True,
    ),
    "gofmt": _of("-w -cpuprofile", whole=True),
    "gcc": _CC, "g++": _CC, "cc": _CC, "c++": _CC, "clang": _CC, "clang++": _CC,
    "javac": _of("-processor -processorpath -s -h -Xplugin*", whole=True, word="@.*|-J.*"),
    "gradle": _of("-I -b -c -p -g --init-script --build-file --settings-file --project-dir --gradle-user-home "
        "--include-build "
                  "--project-cache-dir"),
    "mvn": _of("-f -s -t -gs -gt --file --settings --global-settings "
        "--toolchains", word=r"-D(?:maven\.ext|exec|.*jvm).*"),
    # Packages and tests.
    "npm": _of(
        "-C --script-shell --shell --node-options --prefix --userconfig --globalconfig --git --editor --viewer "
        "--browser "
        "--python --node-gyp --init-module --cache --pack-destination",
    ),
    "pnpm": _of("-C --dir --script-shell --node-options --store-dir --config* --global-dir --modules-dir"),
    "yarn": _of("--cwd --use-yarnrc --modules-folder --cache-folder --scripts-prepend-node-path"),
    "pip": _of("-t -i -f --target --prefix --root --index-url --extra-index-url --find-links --log --python --src "
        "--report "
               "--cache-dir --config-settings --global-option --build-option --proxy --trusted-host --cert "
        "--client-cert"),
    "pytest": _of(
        "-p -c -o --rootdir --confcutdir --override-ini --basetemp --junitxml --junit-xml --log-file --pastebin "
        "--config-file --debug --pdbcls --import-mode --trace-config --cov-report --cov-config --html "
        "--json-report-file "
        "--report-log --result-log --rsyncdir --tx --pdb --profile-svg", "kmnWr",
    ),
    "mypy": _of("--config-file --python-executable --install-types --cache-dir --*-report --junit-xml"),
    "ruff": _of("-o --output-file --add-noqa"), "flake8": _of("--config --append-config --require-plugins "
        "--output-file --tee"),
    "pylint": _of("--load-plugins --init-hook --rcfile --output --generate-*"), "tox": _of("-c -x --conf --override "
        "--workdir"),
    "nox": _of("-f --noxfile"), "rspec": _of("-r -I -O -o --require --options --out --format -f --init"),
    "rake": _of("-f -r -e -E -p -R -I -g -l --rakefile --require --execute* --libdir"),
    "rubocop": _of("-r -c -o -a -A --require --config --out --plugin --auto-correct* --autocorrect*"),
    "jest": _of("-c --config --outputFile --globalSetup --globalTeardown --testRunner --runner --setupFiles* "
        "--reporters "
                "--resolver --transform --testEnvironment --coverageDirectory --preset --filter --rootDir "
        "--watchPlugins"),
    "vitest": _of("-c -r --config --outputFile* --globalSetup --reporter --root --dir --environment --browser*"),
    "mocha": _of("-r --require --config --import --loader --package --opts --reporter -R --node-option -n --ui"),
    "eslint": _of("-c -o -f --config --rulesdir --plugin --parser --resolve-plugins-relative-to --output-file "
        "--format --fix*"),
    "prettier": _of("-w --write --config --plugin* --config-path"), "tsc": _of("--outDir --outFile --build -b "
        "--init --watch*"),
    # The system.
    "date": _of("-s --set"), "hostname": _of("-F --file -b"), "dmesg": _of("-c -C -D -E -n --clear --read-clear"),
    "mount": _of("-t -o --types --options --bind --rbind --move"), "printf": _of("-v"), "test": _of("-v"),
    "systemctl": _of("-H -M --host --machine --root --image"), "journalctl": _of("--vacuum* --rotate --flush "
        "--cursor-file "
                     "--relinquish-var --smart-relinquish-var --setup-keys --update-catalog -M --machine"),
    "docker": _of("-H -c -o --host --context --config --output --cidfile --iidfile --metadata-file --device "
        "--privileged"),
    "podman": _of("--root --runroot --hooks-dir --runtime --conmon --cidfile --iidfile -o --output --privileged"),
    "kubectl": _of("--kubeconfig --cache-dir --profile-output"), "helm": _of("--post-renderer --kubeconfig "
        "--output-dir"),
    "terraform": _of("-chdir -plugin-dir -out -state-out -backup", whole=True),
    # Editors.
    "vim": _VIM, "vi": _VIM, "nvim": _VIM, "view": _VIM, "ex": _VIM, "vimdiff": _VIM,
    "emacs": _of("-f -l -eval -load -funcall -execute -script -x -batch -insert -kill -u", whole=True),
    "gdb": _of("-x -ex -ix -iex -eval-command -init-command -command -init-eval-command", whole=True),
    "pandoc": _of("-o -F -L -d -H --output --filter --lua-filter --pdf-engine --extract-media --defaults --log "
        "--template"),
}  # fmt: skip
