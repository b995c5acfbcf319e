#!/bin/sh
# At a release: makes the contracts as they are now the released ones, which all later changes are checked against
# (`buf breaking`, in scripts/check.sh and in the tests). Commit what it writes with the release.
# VENV names the environment (default .venv).
set -eu
cd "$(dirname "$0")/.."
PATH=$(cd "${VENV:-.venv}/bin" && pwd):$PATH
export PATH
released=protos/released.binpb
if [ -f "$released" ]; then buf breaking --against "$released"; fi
buf build --exclude-source-info --as-file-descriptor-set -o "$released"
echo "$released holds the contracts as they are now"
