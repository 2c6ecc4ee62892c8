// Copy to config.h and fill in. The credentials are those of POST /mqttdevices/{id}/credentials/.
#pragma once

#define MQTT_URI "mqtt://192.168.1.10:1883"
#define MQTT_USERNAME "bench-1"
#define MQTT_PASSWORD "open sesame"
// The identifier of the device with %, /, +, # and a $ at its beginning percent-encoded.
#define COMMANDS_TOPIC "Bench 1@demo/commands"
