#!/bin/bash
# Makes src/longca/report/assets/echarts.min.js.gz and its licences from npm: tools/echarts/build.sh
set -euo pipefail
ECHARTS=6.1.0 ESBUILD=0.28.2
here=$(cd "$(dirname "$0")" && pwd)
assets=$here/../../src/longca/report/assets
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$here/entry.js" "$work/"
cd "$work"
npm init -y > /dev/null
npm install --no-audit --no-fund --ignore-scripts "echarts@$ECHARTS" "esbuild@$ESBUILD"
banner="/*! Apache ECharts $ECHARTS, Apache-2.0, with zrender, BSD-3-Clause, and tslib, 0BSD: see echarts.LICENSE. Made by tools/echarts/build.sh. */"
node_modules/@esbuild/*/bin/esbuild entry.js --bundle --minify --format=iife --global-name=echarts --target=es2022 --legal-comments=none \
  --banner:js="$banner" --outfile=echarts.min.js
gzip -9nc echarts.min.js > "$assets/echarts.min.js.gz"
{
  echo "echarts.min.js.gz holds parts of three libraries, whose notices and licences follow."
  for part in echarts/NOTICE echarts/LICENSE echarts/licenses/LICENSE-d3 zrender/LICENSE tslib/LICENSE.txt; do
    printf '\n======== %s ========\n\n' "$part"
    cat "node_modules/$part"
  done
} > "$assets/echarts.LICENSE"
