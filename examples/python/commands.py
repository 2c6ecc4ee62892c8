"""A device that answers its commands over MQTT 5: to the response topic of each, with its correlation data.

Needs paho-mqtt 2: pip install paho-mqtt

npm run --silent keys -- create --account demo --user field --scope device --id-device 'Bench 2@demo'
MQTT_URL=mqtt://127.0.0.1:1883 DEVICE='Bench 2@demo' API_KEY=… python3 commands.py
"""

import json
import os
import re
from urllib.parse import quote, urlsplit

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

MQTT = urlsplit(os.environ.get("MQTT_URL", "mqtt://127.0.0.1:1883"))
DEVICE = os.environ["DEVICE"]


def answer(command):
    """Runs a command and returns its result."""
    if command["name"] == "identify":
        return {"status": "done", "data": {"runs": "commands.py"}}
    return {"status": "failed"}


def on_connect(client, _userdata, _flags, reason, _properties):
    print(f"connected: {reason}", flush=True)
    # the identifier with %, /, +, # and a $ at its beginning percent-encoded; others stay as they are
    first = re.sub(r"^\$|[%/+#]", lambda found: quote(found[0], safe=""), DEVICE)
    client.subscribe(f"{first}/commands", qos=1)


def on_message(client, _userdata, message):
    command = json.loads(message.payload)
    result = answer(command)
    properties = Properties(PacketTypes.PUBLISH)
    # says which command it is, so that the result needs no id
    properties.CorrelationData = message.properties.CorrelationData
    client.publish(message.properties.ResponseTopic, json.dumps(result), qos=1, properties=properties)
    print(f"{command['name']}: {result['status']}", flush=True)


client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=DEVICE, protocol=mqtt.MQTTv5)
# the key is the username; the password stays empty
client.username_pw_set(os.environ["API_KEY"], "")
client.on_connect = on_connect
client.on_message = on_message
client.connect(MQTT.hostname, MQTT.port or 1883)
client.loop_forever()
