#!/usr/bin/env bash
# Builds the wheel and tries it in a new virtual environment, from an empty folder. Dependencies come from the environment of $PYTHON,
# so that torch is not installed twice; the package itself comes from the wheel.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset PYTHONPATH
"$python" -m hatchling build -t wheel -d "$folder/dist"
"$python" -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install -q --no-deps --no-index "$folder"/dist/longca-*.whl
"$python" - "$folder/venv" <<'PATHS'
import site, sys
from pathlib import Path
target = next(Path(sys.argv[1]).glob("lib/python*/site-packages"))
(target / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
PATHS
mkdir "$folder/empty"
cd "$folder/empty"
"$folder/venv/bin/python" -c "import longca, sys; assert longca.__file__.startswith(sys.prefix), longca.__file__"
"$folder/venv/bin/longca" --version
"$folder/venv/bin/longca" ls masks
"$folder/venv/bin/longca" verify --kernels torch --masks causal --seqlens 128
"$folder/venv/bin/longca" recommend --mask causal_document --seqlen 32K  # from the results in the wheel
