#!/bin/sh
# Writes the stubs of hopyard.rb: generate.sh [PROTOS [FOLDER]], where PROTOS is the folder that holds hopyard/v1/application.proto.
set -eu
here=$(dirname "$0")
protos=${1:-$here/../../protos}
stubs=${2:-$here/stubs}
mkdir -p "$stubs"
protoc -I "$protos" --plugin=protoc-gen-grpc="$(command -v grpc_ruby_plugin)" --ruby_out="$stubs" --grpc_out="$stubs" \
  hopyard/v1/application.proto hopyard/v1/resource_manager.proto hopyard/v1/common.proto
