#!/usr/bin/env bash
# Runs schemathesis, which looks for requests whose responses differ from /openapi.json.
# Needs python3 and a package index. PORT must be free; further arguments are passed to `st run`.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
port=${PORT:-3390}
venv=$root/node_modules/.cache/schemathesis
work=$(mktemp -d)
key=$(head -c 24 /dev/urandom | base64 | tr '+/' '-_')
export SERVICE_URL="http://127.0.0.1:$port" SERVICE_APIKEY=$key

if [ ! -x "$venv/bin/st" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check schemathesis==4.32.0
fi

npm run --silent build
mkdir -p "$work/files/demo"
HOST=127.0.0.1 PORT=$port DATA_DIR=$work/data FILESTORE_LOCAL_ROOT=$work/files MQTT_PORT=off LOG_FORMAT=off BOOTSTRAP_API_KEY=$key \
  node dist/src/main.js >"$work/log" 2>&1 &
service=$!
stop() {
  kill "$service" 2>/dev/null || true
  wait "$service" || true
  rm -rf "$work"
}
trap stop EXIT

for _ in $(seq 120); do
  curl --fail --silent --output /dev/null "$SERVICE_URL/readyz" && break
  kill -0 "$service" 2>/dev/null || { cat "$work/log"; exit 1; }
  sleep 0.5
done

cd "$work"
export PYTHONPATH=$root/scripts PYTHONDONTWRITEBYTECODE=1 SCHEMATHESIS_HOOKS=schemathesis_hooks
"$venv/bin/st" --config-file "$root/scripts/schemathesis.toml" \
  run "$SERVICE_URL/openapi.json" -H "service.apikey: $key" --checks all --max-examples 50 --seed 1 "$@"
