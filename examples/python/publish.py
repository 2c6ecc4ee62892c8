"""A device with its own key: stores the configuration files that it shall have, answers its commands, and publishes a
stream over MQTT.

Needs paho-mqtt 2: pip install paho-mqtt

npm run --silent keys -- create --account demo --user field --scope device --id-device 'Bench 2@demo'
DEVICE_PLATFORM_URL=http://127.0.0.1:3000 MQTT_URL=mqtt://127.0.0.1:1883 API_KEY=… python3 publish.py
"""

import hashlib
import json
import os
import re
import time
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

import paho.mqtt.client as mqtt

URL = os.environ.get("DEVICE_PLATFORM_URL", "http://127.0.0.1:3000")
MQTT = urlsplit(os.environ.get("MQTT_URL", f"mqtt://{urlsplit(URL).hostname}:1883"))
API_KEY = os.environ["API_KEY"]


def send(path, method="GET", body=None):
    """Sends a request and returns the bytes of its success."""
    headers = {"service.apikey": API_KEY, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(URL + path, data, headers, method=method), timeout=10) as response:
        return response.read()


# the key says which device this is
device = json.loads(send("/self/"))["id_device"]
path = f"/devices/{quote(device, safe='')}/"

delta = json.loads(send(f"{path}state/"))["delta"]
for name, wanted in delta.get("configs", {}).items():
    file = send(f"{path}deviceconfigs/{quote(name, safe='')}/{quote(wanted['version'], safe='')}/")
    report = {"version": wanted["version"]}
    if hashlib.sha1(file).hexdigest() == wanted["checksum"]:
        Path(name).write_bytes(file)
    else:
        report["error"] = "was damaged on the way"
    send(f"{path}state/reported/", "PATCH", {"configs": {name: report}})
    print(f"{name} {wanted['version']}: {len(file)} bytes")

# with this request the commands are sent
for command in json.loads(send(f"{path}commands/?status=queued"))["result"]:
    answer = {"status": "failed"}
    if command["name"] == "identify":
        answer = {"status": "done", "data": {"runs": "publish.py"}}
    send(f"{path}commands/{command['id']}/result/", "POST", answer)
    print(f"{command['name']}: {answer['status']}")

client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=device, protocol=mqtt.MQTTv311)
# the key is the username; the password stays empty
client.username_pw_set(API_KEY, "")
client.connect(MQTT.hostname, MQTT.port or 1883)
client.loop_start()
# the identifier with %, /, +, # and a $ at its beginning percent-encoded; others stay as they are
topic = re.sub(r"^\$|[%/+#]", lambda found: quote(found[0], safe=""), device) + "/streams"
# at QoS 1 the acknowledgement means that the stream is stored
publication = client.publish(topic, json.dumps({"at": int(time.time()), "data": {"temperature": 20.5}}), qos=1)
publication.wait_for_publish(timeout=10)
client.disconnect()
client.loop_stop()
print(f"published to {topic}")
