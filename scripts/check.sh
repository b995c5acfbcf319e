#!/bin/sh
# Runs checks and tests, each with its own tool. Every step runs; the end names the steps and tests that failed.
#   scripts/check.sh            lint and the tests that guard a merge
#   scripts/check.sh lint       everything but the tests
#   scripts/check.sh quick      the quick tests
#   scripts/check.sh merge      the quick tests and those that guard a merge
#   scripts/check.sh nightly    what neither of these runs
# VENV names the environment (default .venv). HOPYARD_TEST_RESULTS names the folder for reports (default .test-results).
set -u
cd "$(dirname "$0")/.." || exit 1
what=${1:-all}
case $what in
  all | lint | quick | merge | nightly) ;;
  *)
    echo "usage: scripts/check.sh [lint|quick|merge|nightly]" >&2
    exit 2
    ;;
esac
bin=$(cd "${VENV:-.venv}/bin" && pwd) || exit 1
PATH=$bin:$PATH
export PATH
results=${HOPYARD_TEST_RESULTS:-.test-results}
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
  mypy sdk/python/hopyard services/*/hopyard_* policies/hopyard_* scripts tests benchmarks || return 1
  for folder in examples/*/; do
    if [ -n "$(find "$folder" -name '*.py' -print -quit)" ]; then
      mypy "$folder" || return 1
    fi
  done
}

lint() {
  step "ruff check" ruff check .
  step "ruff format" ruff format --check .
  step "mypy --strict" types
  step "import-linter" lint-imports --no-logo --no-cache
  step "buf lint" buf lint
  step "buf breaking" buf breaking --against protos/released.binpb
  step "generated code" python scripts/generate_protos.py --check
}

tests() { # tiers workers
  # Tests start hundreds of processes. None of them compiles Hopyard again, even where Python keeps no bytecode.
  python -m compileall -q sdk services policies
  rm -f "$results/failed.txt"
  step "pytest, tier $1" python -m pytest -q -n "$2" --dist worksteal --tier "$1"
  if [ -s "$results/failed.txt" ]; then
    failed="$failed
$(sed 's/^/    /' "$results/failed.txt")"
  fi
}

cores=$(getconf _NPROCESSORS_ONLN)
# Tests with processes wait for these much of the time: one worker more than cores, and four at most.
workers=$((cores < 3 ? cores + 1 : 4))
case $what in
  all)
    lint
    tests quick,merge "$workers"
    ;;
  lint) lint ;;
  quick) tests quick "$cores" ;;
  merge) tests quick,merge "$workers" ;;
  nightly)
    tests nightly "$workers"
    step "golden record" python -m tests.golden
    step "fault simulation" python -m tests.simulation --schedules 6000 --seed 1000 --jobs "$cores"
    step "random searches" python benchmarks/fuzz.py --searches 5000 --seed 100000
    for seed in 2 3 4; do
      KILLS_SEED=$seed step "kills, seed $seed" python -m pytest -q tests/e2e/test_kills.py
    done
    ;;
esac

if [ -n "$failed" ]; then
  printf '\nfailed:%s\n' "$failed" >&2
  exit 1
fi
printf '\nall checks passed\n'
