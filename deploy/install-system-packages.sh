#!/bin/sh
# Install the Debian packages that Hopyard's tests use. Fast if all are already installed.
# Without root or apt it prints the missing packages and succeeds; the tests that need them are then skipped, by name.
set -eu

# One package per line, with its users. All other dependencies are Python wheels.
packages='
python3-venv   # make demo and make test make a virtual environment
nodejs   # the policy in JavaScript (examples/node_policy) and its tests
npm   # its packages
cmake   # the C++ library (sdk/cpp), its tests and its example
g++   # the same
libgrpc++-dev   # the same
libprotobuf-dev   # the same
pkg-config   # the client in C++ of docs/clients.md and its test
protobuf-compiler   # the same; the stubs of examples/ruby_client
protobuf-compiler-grpc   # the same
ruby   # the protocol of training programs in Ruby (examples/ruby_client) and its tests
ruby-grpc   # the same
iproute2   # tests of gangs on several hosts, which are network namespaces
dataset-fashion-mnist   # the Fashion-MNIST examples and their tests
'

missing=
list=$(printf '%s\n' "$packages" | sed 's/#.*//')
for package in $list; do
  case $package in
    python3-venv)
      # Interpreters that are not from Debian include the module.
      "${PYTHON:-python3}" -c 'import venv, ensurepip' 2>/dev/null && continue
      ;;
    nodejs | npm)
      # Packages of Node that are not from Debian include npm.
      command -v "${package%js}" >/dev/null 2>&1 && continue
      ;;
  esac
  state=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
  [ "$state" = "install ok installed" ] || missing="$missing $package"
done

[ -n "$missing" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "no apt-get here: please install what your system calls$missing" >&2
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "not root: please run  sudo apt-get install$missing" >&2
  exit 0
fi
echo "installing$missing"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
# shellcheck disable=SC2086  # a list of words
apt-get install -y -qq --no-install-recommends $missing >/dev/null
