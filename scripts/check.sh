#!/bin/sh
# Every check and every test, each by its own tool; all run, and the ones that failed are named at the end.
#   scripts/check.sh          everything
#   scripts/check.sh lint     everything but the tests
# VENV names the environment (default .venv).
set -u
cd "$(dirname "$0")/.." || exit 1
what=${1:-all}
case $what in
  all | lint) ;;
  *)
    echo "usage: scripts/check.sh [lint]" >&2
    exit 2
    ;;
esac
bin=$(cd "${VENV:-.venv}/bin" && pwd) || exit 1
PATH=$bin:$PATH
export PATH
failed=

step() { # name command...
  name=$1
  shift
  printf '\n== %s\n' "$name"
  "$@" || failed="$failed
  $name"
}

# Examples have no packages, so that each folder can hold a train.py: mypy reads one folder at a time.
types() {
  set -- sdk/python/hopyard services/*/hopyard_* policies/hopyard_* scripts tests
  for folder in benchmarks; do
    if [ -d "$folder" ]; then set -- "$@" "$folder"; fi
  done
  mypy "$@" || return 1
  for folder in examples/*/; do
    if [ -n "$(find "$folder" -name '*.py' -print -quit)" ]; then
      echo "$folder"
      mypy "$folder" || return 1
    fi
  done
}

step "ruff check" ruff check .
step "ruff format" ruff format --check .
step "mypy --strict" types
step "import-linter" lint-imports --no-logo --no-cache
step "buf lint" buf lint
step "buf breaking" buf breaking --against protos/released.binpb
step "generated code" python scripts/generate_protos.py --check
if [ "$what" = all ]; then
  # Tests start hundreds of processes: none of them shall compile Hopyard again, where Python is told to keep no bytecode.
  python -m compileall -q sdk services policies
  # One worker more than processors, and four at most: much of what tests wait for is other processes.
  workers=$(($(getconf _NPROCESSORS_ONLN) + 1))
  if [ "$workers" -gt 4 ]; then workers=4; fi
  step "pytest" python -m pytest -q -n "$workers" --dist worksteal
fi

if [ -n "$failed" ]; then
  printf '\nfailed:%s\n' "$failed" >&2
  exit 1
fi
printf '\nall checks passed\n'
