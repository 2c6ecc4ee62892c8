#!/bin/sh
# Compares the numbers of objects on both sides; the variables are those of migrate.mjs.
for type in projects services groups assets devices models; do
  before=$(curl -sS -H "${OLD_HEADER:-carriots.apikey}: $OLD_KEY" "$OLD_URL/$type/?max=1" | jq .total_documents)
  after=$(curl -sS -H "service.apikey: $API_KEY" "$DEVICE_PLATFORM_URL/$type/?max=1" | jq .total_documents)
  echo "$type: $before before, $after now"
done
