#!/bin/sh
# Runs lint and tests. All steps run; the end lists the failed steps and tests.
#   scripts/check.sh            lint and the tests that guard a merge
#   scripts/check.sh lint       lint only
#   scripts/check.sh quick      the quick tests
#   scripts/check.sh merge      the quick tests and those that guard a merge
#   scripts/check.sh nightly    nightly tests, golden record, fault simulation, random searches, repeated kills
# VENV names the environment (default .venv). HOPYARD_TEST_RESULTS names the folder for reports (default .test-results), which gets a
# subfolder for each run of pytest.
set -u
cd "$(dirname "$0")/.." || exit 1
what=${1:-all}
case $#$what in
  [01]all | 1lint | 1quick | 1merge | 1nightly) ;;
  *)
    echo "usage: scripts/check.sh [all|lint|quick|merge|nightly]" >&2
    exit 2
    ;;
esac
bin=$(cd "${VENV:-.venv}/bin" 2>/dev/null && pwd)
if [ ! -x "$bin/python" ]; then
  echo "no environment ${VENV:-.venv}: run make test" >&2
  exit 1
fi
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

# Examples are not packages (each folder may have a train.py), so mypy checks one folder at a time.
types() {
  status=0
  mypy sdk/python/hopyard services/*/hopyard_* policies/hopyard_* scripts tests benchmarks || status=1
  for folder in examples/*/; do
    if [ -n "$(find "$folder" -name '*.py' -print -quit)" ]; then
      mypy "$folder" || status=1
    fi
  done
  return "$status"
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

# Each run of pytest has a separate report folder, so that a later run does not overwrite the reports of an earlier one.
suite() { # name option...
  suite=$1
  shift
  reports=$results/$suite
  rm -f "$reports/failed.txt"
  HOPYARD_TEST_RESULTS=$reports
  export HOPYARD_TEST_RESULTS
  step "pytest, $suite" python -m pytest -q "$@"
  if [ ! -e "$reports/failed.txt" ]; then
    failed="$failed
  pytest, $suite, ended before its summary"
  elif [ -s "$reports/failed.txt" ]; then
    failed="$failed
$(sed 's/^/    /' "$reports/failed.txt")"
  fi
}

tests() { # name tiers workers
  # Tests start hundreds of processes: compile Hopyard once, even if PYTHONDONTWRITEBYTECODE is set.
  step "bytecode" python -m compileall -q sdk services policies
  suite "$1" -n "$3" --dist worksteal --tier "$2"
}

cores=$(nproc)
# Integration tests mostly wait for their processes: use one worker more than cores, at most four.
workers=$((cores < 3 ? cores + 1 : 4))
case $what in
  all)
    lint
    tests merge quick,merge "$workers"
    ;;
  lint) lint ;;
  quick) tests quick quick "$cores" ;;
  merge) tests merge quick,merge "$workers" ;;
  nightly)
    tests nightly nightly "$workers"
    step "golden record" python -m tests.golden
    step "fault simulation" python -m tests.simulation --schedules 6000 --seed 1000 --jobs "$cores"
    step "random searches" python benchmarks/fuzz.py --searches 5000 --seed 100000
    for seed in 2 3 4; do
      KILLS_SEED=$seed
      export KILLS_SEED
      suite "kills-$seed" tests/e2e/test_kills.py
    done
    ;;
esac

if [ -n "$failed" ]; then
  printf '\nfailed:%s\n' "$failed" >&2
  exit 1
fi
printf '\nall checks passed\n'
