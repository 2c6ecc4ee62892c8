"""Creates a device with MQTT credentials, publishes a stream as that device, and reads it over HTTP.

Needs paho-mqtt 2: pip install paho-mqtt

DEVICE_PLATFORM_URL=http://127.0.0.1:3000 MQTT_URL=mqtt://127.0.0.1:1883 API_KEY=… python3 publish.py
"""

import json
import os
import re
import secrets
import time
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

import paho.mqtt.client as mqtt

URL = os.environ.get("DEVICE_PLATFORM_URL", "http://127.0.0.1:3000")
MQTT = urlsplit(os.environ.get("MQTT_URL", f"mqtt://{urlsplit(URL).hostname}:1883"))
API_KEY = os.environ["API_KEY"]


def send(method, path, body=None):
    """Sends a request and returns the body of the answer, which may be an error."""
    headers = {"service.apikey": API_KEY, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(URL + path, data, headers, method=method), timeout=10) as response:
            return json.load(response)
    except HTTPError as error:
        return json.load(error)


def ensure(kind, identity, fields=None):
    """Returns the identifier of the object with this name and parent, which is created if there is none."""
    query = f"/{kind}/?{urlencode(identity)}"
    answer = send("GET", query)
    if not answer["result"]:
        created = send("POST", f"/{kind}/", {**identity, **(fields or {})})
        if created["code"] != 2001:
            raise SystemExit(f"{kind}: {created}")
        answer = send("GET", query)
    return answer["result"][0]["id_developer"]


project = ensure("projects", {"name": "MQTT Python"}, {"id_customer": "example"})
service = ensure("services", {"name": "MQTT Python", "id_project": project})
group = ensure("groups", {"name": "MQTT Python", "id_service": service})
device = ensure("devices", {"name": "Bench 2", "id_group": group}, {"type": "thermometer"})

# a real device keeps its credentials; PUT replaces those of an earlier run
credentials = {"username": device, "password": secrets.token_urlsafe(16)}
credentials_path = f"/mqttdevices/{quote(device, safe='')}/credentials/"
if send("PUT", credentials_path, credentials)["code"] == 4041:
    created = send("POST", credentials_path, credentials)
    if created["code"] != 2001:
        raise SystemExit(created)

client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=device, protocol=mqtt.MQTTv311)
client.username_pw_set(**credentials)
client.connect(MQTT.hostname, MQTT.port or 1883)
client.loop_start()
# the identifier with %, /, + and # percent-encoded; others may stay as they are
topic = re.sub("[%/+#]", lambda found: quote(found[0], safe=""), device) + "/streams"
at = int(time.time())
# at QoS 1 the acknowledgement means that the stream is stored
publication = client.publish(topic, json.dumps({"at": at, "data": {"temperature": 20.5}}), qos=1)
publication.wait_for_publish(timeout=10)
client.disconnect()
client.loop_stop()
print(f"published to {topic}")

streams = send("GET", f"/devices/{quote(device, safe='')}/streams/?at={at}")
print(f"stored {streams['total_documents']}")
send("DELETE", f"/projects/{quote(project, safe='')}/")
print("deleted")
