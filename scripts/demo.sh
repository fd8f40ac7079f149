#!/usr/bin/env bash
# The main job, offline: the agent summarises a small workspace. The model's side is a recording, the rest is real.
set -euo pipefail
cd "$(dirname "$0")/.."
demo="$PWD/examples/demo"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
workspace="$folder/workspace"
mkdir "$workspace"
cp -R "$demo/workspace/." "$workspace/"

# Settings of this machine must not change what the recording was made with.
for name in $(compgen -e | grep -E '^(LLM|LM|OPENAI|OPENROUTER)_' || true) WORKSPACE PERMISSION_MODE; do unset "$name"; done
export HOME="$folder"
unset XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME

cat <<TEXT
This is lmagent at work on a copy of examples/demo/workspace.
There is no model here: the model's side is played from a recording (examples/demo/cassette.jsonl).
Everything else is real: the loop, the tools, the files, the session log.

\$ lmagent "Summarise all Python files in this workspace into SUMMARY.md" --permission auto
TEXT
.venv/bin/lmagent "Summarise all Python files in this workspace into SUMMARY.md" \
    --permission auto --model demo-model --workspace "$workspace" --replay "$demo/cassette.jsonl" </dev/null
printf '\n$ cat SUMMARY.md\n'
cat "$workspace/SUMMARY.md"
printf '\nThat was a recording of the model. With a real one: start a model server and type lmagent in any folder.\n'
