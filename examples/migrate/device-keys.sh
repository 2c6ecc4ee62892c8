#!/bin/sh
# Issues a key of scope device for each device; writes device-keys.tsv. API_KEY has scope admin.
curl -sS -H "service.apikey: $API_KEY" "$DEVICE_PLATFORM_URL/devices/?fields=id_developer&format=ndjson" |
  jq -c '{username: "field", scope: "device", id_device: .id_developer}' |
  while IFS= read -r body; do
    curl -sS -H "service.apikey: $API_KEY" "$DEVICE_PLATFORM_URL/apikeys/" -d "$body" |
      jq -r --argjson wanted "$body" '[$wanted.id_device, .details.key] | @tsv'
  done > device-keys.tsv
