#!/usr/bin/env bash
# The page's types, read from its comments. Exit code 3: cannot be checked here, and why.
set -uo pipefail
cd "$(dirname "$0")/../tools/web"
command -v node >/dev/null && command -v npm >/dev/null || { echo "node and npm are not installed"; exit 3; }
if [ ! -x node_modules/.bin/tsc ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
    said="$(npm ci --no-fund --no-audit 2>&1)" || { echo "npm could not install the type checker: ${said##*npm error }"; exit 3; }
fi
node_modules/.bin/tsc -p . && echo "types of the page: ok"
