#!/usr/bin/env bash
# Resolves the pinned requirements (with hashes, without addresses) from pyproject.toml.
set -euo pipefail
cd "$(dirname "$0")/.."
pin() { # pin FILE WHAT...
  local file=$1
  shift
  .venv/bin/uv pip compile --quiet "$@" --generate-hashes --no-header --no-annotate \
    --universal --python-version 3.11 --output-file "constraints/$file.txt"
}
pin control-plane pyproject.toml --extra operator --extra router --extra otel
pin engine pyproject.toml --extra engine --extra s3 --extra otel
pin dev pyproject.toml --extra all --group dev
pin kernels --group pyproject.toml:kernels --constraint constraints/engine.txt
