#!/usr/bin/env bash
# Every check and the tests; all of them run, also after a failure. `make check` sets up before it.
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
# Hundreds of tests start Python: a machine that keeps no byte code would compile the program for each of them.
unset PYTHONDONTWRITEBYTECODE
long="${1:-}"
marked="long"
[ "$long" = long ] || marked="not long"
workers=$(($(nproc 2>/dev/null || echo 2) * 5 / 2)) # tests wait for processes and browsers half of their time

quick() {
    step "lock file" "$uv" lock --check --quiet
    step "ruff" "$bin/ruff" check .
    step "format" "$bin/ruff" format --check --quiet .
    step "layers" "$bin/lint-imports"
    step "sizes" "$bin/python" scripts/check_sizes.py
    step "words" "$bin/python" scripts/check_words.py
    step "lines" "$bin/python" scripts/count_lines.py
    step "docs" "$bin/python" scripts/generate_docs.py --check
}

# The checks that take long run beside the tests; the output of each is printed in one piece after them.
types() {
    "$bin/pyright" --version >/dev/null 2>&1 || { echo "pyright could not be started (its first start fetches it from the npm registry)"; return 3; }
    "$bin/pyright"
}

outputs="$(mktemp -d)"
report="$outputs/tests"
trap 'rm -rf "$outputs"' EXIT

# Start a step beside the others; `finish` waits for it and prints it. Exit code 3 means: it could not run here, and why.
declare -A running
begin() {
    local name="$1"
    shift
    (
        SECONDS=0
        "$@" >"$outputs/$name" 2>&1
        code=$?
        echo "$SECONDS" >"$outputs/$name.seconds"
        exit $code
    ) &
    running["$name"]=$!
}
finish() {
    local name="$1" code=0
    wait "${running[$name]}" || code=$?
    if [ $code -eq 3 ]; then
        skipped+=("$name: $(cat "$outputs/$name")")
        return
    fi
    printf '\n== %s\n' "$name"
    cat "$outputs/$name"
    if [ $code -eq 0 ]; then
        printf -- '-- %s: ok (%d s, beside the tests)\n' "$name" "$(cat "$outputs/$name.seconds")"
    else
        printf -- '-- %s: FAILED (%d s, beside the tests)\n' "$name" "$(cat "$outputs/$name.seconds")"
        failed+=("$name")
    fi
}

# Thousands of tests drive real processes and browsers on a busy machine. Up to a dozen that fail are tried once more, alone:
# what passes then is told apart in the summary, as a race to be found, in the program or in the test; what fails again has failed.
# Property tests draw the same examples in each run here: what fails, fails on every machine. `make explore` draws new ones.
tests() {
    # In a fresh clone each worker would compile all tests for itself.
    [ -d tests/core/__pycache__ ] || "$bin/pytest" --collect-only -qq >/dev/null 2>&1 </dev/null
    "$bin/pytest" -m "$marked" -n "$workers" --dist worksteal -q --hypothesis-profile=ci --durations=10 --durations-min=0.5 </dev/null 2>&1 | tee "$report"
    local code=${PIPESTATUS[0]} names
    [ "$code" -eq 1 ] || return "$code"
    mapfile -t names < <(grep -E '^(FAILED|ERROR) ' "$report")
    [ ${#names[@]} -gt 0 ] && [ ${#names[@]} -le 12 ] || return 1
    printf '\n-- %d failed: tried once more, alone\n' ${#names[@]}
    "$bin/pytest" -m "$marked" --last-failed --last-failed-no-failures none -q --hypothesis-profile=ci </dev/null || return 1
    unstable+=("${names[@]}")
}
if [ "$long" != long ]; then
    begin "types" types
    begin "types of the page" scripts/check_web.sh
    quick
fi
step "tests ($marked)" tests
if [ "$long" != long ]; then
    finish "types"
    finish "types of the page"
fi
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
