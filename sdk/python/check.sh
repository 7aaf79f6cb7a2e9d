#!/usr/bin/env bash
# Checks the Python client: lints, types, the built packages, and the tests against the installed wheel.
# Everything that it makes is below the target folder. PYTHON names another interpreter of version 3.10 or newer.
set -euo pipefail
cd "$(dirname "$0")"
python=${PYTHON:-python3}
target=${SEMEL_PYTHON_TARGET:-../../target/python}
mkdir -p "$target"
target=$(cd "$target" && pwd)
export PYTHONDONTWRITEBYTECODE=1 PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH PYTHONHOME VIRTUAL_ENV

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
  echo "The Python client needs Python 3.10 or newer: set PYTHON." >&2
  exit 1
}

# One check at a time: they share the folder.
exec 9>"$target/lock"
if command -v flock >/dev/null; then flock 9; fi

# Another list of packages, or another interpreter, is another environment.
version=$({ "$python" -VV; cat requirements-dev.txt; } | cksum | cut -d' ' -f1)
venv=$target/venv-$version
if [ ! -f "$venv/complete" ]; then
  echo "── python: installing tools into $venv"
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --no-deps --only-binary=:all: -r requirements-dev.txt
  touch "$venv/complete"
fi
# The name by which others find it.
ln -sfn "$venv" "$target/venv"
run() {
  echo "── python: $1"
  "$venv/bin/python" -m "${@:2}"
}

run "lint" ruff check --no-cache --quiet src tests
run "format" ruff format --no-cache --quiet --check src tests
run "types" mypy --cache-dir "$target/mypy" src tests

rm -rf "$target/dist"
run "build" build --no-isolation --outdir "$target/dist" . >"$target/build.log" 2>&1 || {
  cat "$target/build.log" >&2
  exit 1
}
run "install" pip install --quiet --no-deps --force-reinstall "$target"/dist/semel-*.whl
"$venv/bin/python" -m pip check >/dev/null

# From the folder of the tests, `semel` is the installed wheel.
(
  cd tests
  "$venv/bin/python" -c 'import semel, sys; sys.exit(not semel.__file__.startswith(sys.prefix))'
  run "tests" pytest -c ../pyproject.toml --rootdir .. -p no:cacheprovider .
)
