#!/usr/bin/env bash
# Resolves the pinned requirements (with hashes, without addresses) from pyproject.toml.
set -euo pipefail
cd "$(dirname "$0")/.."
pin() { # pin FILE OPTION...
  local file=$1
  shift
  .venv/bin/uv pip compile --quiet pyproject.toml "$@" --generate-hashes --no-header --no-annotate \
    --universal --python-version 3.11 --output-file "constraints/$file.txt"
}
pin control-plane --extra operator --extra router
pin engine --extra engine
pin dev --extra all --group dev
.venv/bin/uv pip compile --quiet --group pyproject.toml:kernels --generate-hashes --no-header --no-annotate \
  --constraint constraints/engine.txt --universal --python-version 3.11 --output-file constraints/kernels.txt
