#!/usr/bin/env bash
# The agent at work, offline: a real model on the real engine, however small (src/lmagent/demo/MODEL_CARD.md).
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/ensure_programs sandbox
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

# Settings of this machine must not change what is shown.
for name in $(compgen -e | grep -E '^(LLM|LM|OPENAI|OPENROUTER)_' || true) WORKSPACE PERMISSION_MODE; do unset "$name"; done
export HOME="$folder"
unset XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME
.venv/bin/lmagent demo </dev/null
