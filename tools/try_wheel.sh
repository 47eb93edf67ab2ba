#!/usr/bin/env bash
# Builds the wheel and tries it in a new virtual environment, from an empty folder. The dependencies are those that `make` installed with
# constraints.txt for $PYTHON, so that torch is not installed twice; only the package itself comes from the wheel.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
unset PYTHONPATH
"$python" -m hatchling build -t wheel -d "$folder/dist"
"$python" -m venv "$folder/venv"
"$python" - "$folder/venv" <<'PATHS'
import site, sys
from pathlib import Path
target = next(Path(sys.argv[1]).glob("lib/python*/site-packages"))
(target / "dependencies.pth").write_text("\n".join(site.getsitepackages()) + "\n")
PATHS
cd "$(mktemp -d -p "$folder")"
"$folder/venv/bin/python" -m pip install -q --no-index --no-deps "$folder"/dist/longca-*.whl
"$folder/venv/bin/python" -c "import longca, sys; assert longca.__file__.startswith(sys.prefix), longca.__file__"
"$folder/venv/bin/longca" --version
"$folder/venv/bin/longca" ls masks
"$folder/venv/bin/longca" verify --kernels torch --masks causal --seqlens 128
"$folder/venv/bin/longca" recommend --mask causal_document --seqlen 32K  # from the results in the wheel
