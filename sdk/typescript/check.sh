#!/usr/bin/env bash
# Checks the TypeScript client: format, types, lint, the packed file, and the tests against the installed package.
# Everything that it makes is below the target folder, in a copy of the sources.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
root=$(cd ../.. && pwd)
target=${SEMEL_TYPESCRIPT_TARGET:-$root/target/typescript}
mkdir -p "$target"
target=$(cd "$target" && pwd)
export npm_config_update_notifier=false

node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' && command -v npm >/dev/null || {
  echo "The TypeScript client needs Node 20 or newer, with npm." >&2
  exit 1
}

# One check at a time: they share the folder.
exec 9>"$target/lock"
if command -v flock >/dev/null; then flock 9; fi

cd "$target"
rm -rf src tests dist ./*.tgz
for name in src tests README.md LICENSE-APACHE LICENSE-MIT package.json package-lock.json .npmrc .prettierrc.json \
  .prettierignore eslint.config.js tsconfig.base.json tsconfig.json tsconfig.node.json; do
  cp -R "$here/$name" .
done

# The packages stay as long as their list does.
if ! cmp -s package-lock.json installed-lock.json; then
  echo "── typescript: installing packages into $target"
  rm -f installed-lock.json
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
  cp package-lock.json installed-lock.json
fi
bin=$target/node_modules/.bin

echo "── typescript: format"
"$bin/prettier" --check --log-level warn .
echo "── typescript: types and package"
"$bin/tsc" -p tsconfig.json
"$bin/tsc" -p tsconfig.node.json
# The page of the payments example serves a copy of the compiled client.
copy=$root/examples/payments/src/service/page/client
for file in "$copy"/*.js; do
  compiled=dist/$(basename "$file")
  if [ "${SEMEL_SNAPSHOTS:-}" = rewrite ]; then cp "$compiled" "$file"; fi
  cmp "$compiled" "$file" || {
    echo "The copy in $copy is out of date: SEMEL_SNAPSHOTS=rewrite bash sdk/typescript/check.sh makes it anew." >&2
    exit 1
  }
done
npm pack --silent --ignore-scripts >/dev/null
# The tests see the package as its users do: installed from the packed file.
(cd tests && npm install --silent --no-save --no-package-lock --ignore-scripts --offline ../semel-client-*.tgz)
# The page of the payments example is run with the tests.
cp -R "$(dirname "$copy")" tests/page
# The README's examples are compiled and run with the tests.
node tests/readme.mjs README.md tests/readme
"$bin/tsc" -p tests/tsconfig.json
echo "── typescript: lint"
"$bin/eslint" --max-warnings 0 src tests
echo "── typescript: tests"
export SEMEL_CASES=$root/sdk/cases SEMEL_PROBLEMS=$root/docs/src/reference/problems.md
# The bound ends a test that hangs; no test waits for time.
node --test --test-timeout=120000 --test-reporter=spec tests/built/*.test.js >tests.log || {
  sed -n '/failing tests/,$p' tests.log >&2
  exit 1
}
grep -E '^. (tests|pass|duration_ms) ' tests.log
