#!/usr/bin/env bash
# Every check and the tests, one after the other; all of them run, also after a failure. `make check` sets up before it.
# With the argument `long` only the tests marked as long: crash matrices, random rounds, real engines and images.
set -uo pipefail
cd "$(dirname "$0")/.."
uv="$(scripts/ensure_uv)" || exit 1
bin=.venv/bin
failed=()
skipped=()
unstable=()

step() {
    local name="$1"
    shift
    printf '\n== %s\n' "$name"
    local begun=$SECONDS
    if "$@"; then
        printf -- '-- %s: ok (%d s)\n' "$name" $((SECONDS - begun))
    else
        printf -- '-- %s: FAILED (%d s)\n' "$name" $((SECONDS - begun))
        failed+=("$name")
    fi
}

"$bin/python" -c 'import platform, os; print("python", platform.python_version(), "on", platform.platform(), "·", os.cpu_count(), "cores")'

scripts/ensure_programs
long="${1:-}"
checks() {
    step "lock file" "$uv" lock --check --quiet
    step "ruff" "$bin/ruff" check .
    step "format" "$bin/ruff" format --check --quiet .
    if "$bin/pyright" --version >/dev/null 2>&1; then
        step "types" "$bin/pyright"
    else
        skipped+=("types: pyright could not be started (its first start fetches it from the npm registry)")
    fi
    step "layers" "$bin/lint-imports"
    step "sizes" "$bin/python" scripts/check_sizes.py
    step "words" "$bin/python" scripts/check_words.py
    step "lines" "$bin/python" scripts/count_lines.py
    scripts/check_web.sh >/dev/null 2>&1
    if [ $? -eq 3 ]; then
        skipped+=("types of the page: $(scripts/check_web.sh)")
    else
        step "types of the page" scripts/check_web.sh
    fi
    if [ -f scripts/generate_docs.py ]; then
        step "docs" "$bin/python" scripts/generate_docs.py --check
    fi
}
marked="long"
workers=$(($(nproc 2>/dev/null || echo 2) * 2)) # tests wait for processes and browsers half of their time
if [ "$long" != long ]; then
    checks
    marked="not long"
fi

report="$(mktemp)"
trap 'rm -f "$report"' EXIT
# Thousands of tests drive real processes and browsers on a busy machine. Up to a dozen that fail are tried once more, alone:
# what passes then is told apart in the summary, as a race to be found, in the program or in the test; what fails again has failed.
# Property tests draw the same examples in each run here: what fails, fails on every machine. `make explore` draws new ones.
tests() {
    "$bin/pytest" -m "$marked" -n "$workers" --dist worksteal -q --hypothesis-profile=ci --durations=10 --durations-min=0.5 </dev/null 2>&1 | tee "$report"
    local code=${PIPESTATUS[0]} names
    [ "$code" -eq 1 ] || return "$code"
    mapfile -t names < <(grep -E '^(FAILED|ERROR) ' "$report")
    [ ${#names[@]} -gt 0 ] && [ ${#names[@]} -le 12 ] || return 1
    printf '\n-- %d failed: tried once more, alone\n' ${#names[@]}
    "$bin/pytest" -m "$marked" --last-failed --last-failed-no-failures none -q --hypothesis-profile=ci </dev/null || return 1
    unstable+=("${names[@]}")
}
step "tests ($marked)" tests
while IFS= read -r line; do skipped+=("test: ${line#SKIPPED }"); done < <(grep '^SKIPPED ' "$report")

printf '\n== summary\n'
if [ ${#skipped[@]} -gt 0 ]; then
    printf 'skipped: %s\n' "${skipped[@]}"
else
    echo "skipped: nothing"
fi
[ ${#unstable[@]} -eq 0 ] || printf 'UNSTABLE, passed alone: %s\n' "${unstable[@]}"
if [ ${#failed[@]} -gt 0 ]; then
    printf 'FAILED: %s\n' "${failed[@]}"
    exit 1
fi
echo "all checks passed"
