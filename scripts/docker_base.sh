#!/usr/bin/env bash
# A base image, made from Debian's packages where no image can be pulled: scripts/docker_base.sh NAME [PACKAGE...]
# Without packages it has those that the Dockerfile needs.
# Root only, on Debian; needs debootstrap. The mirror is the one that this machine's apt uses.
set -euo pipefail
name="$1"
shift
packages="${*:-python3 python3-pip python3-venv ca-certificates libgomp1}"
command -v debootstrap >/dev/null || apt-get install -y -q --no-install-recommends debootstrap >/dev/null 2>&1 \
    || { echo "debootstrap is not installed, and cannot be from here" >&2; exit 3; }
. /etc/os-release
mirror="$(apt-get indextargets --format '$(REPO_URI)' "Release: $VERSION_CODENAME" | head -1)"
root="$(mktemp -d /var/tmp/lmagent-base.XXXXXX)"
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include="${packages// /,}" \
    "$VERSION_CODENAME" "$root" ${mirror:+"$mirror"} >"$root.log" 2>&1 || { tail -5 "$root.log" >&2; exit 3; }
rm -f "$root.log"
rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}
tar -C "$root" --one-file-system --exclude=./proc/* --exclude=./sys/* --exclude=./dev/* -c . | docker import - "$name"
