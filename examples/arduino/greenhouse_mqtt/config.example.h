// Copy to config.h and fill in. The credentials are those of POST /mqttdevices/{id}/credentials/.
#pragma once

#define WIFI_SSID "network"
#define WIFI_PASSWORD "secret"
#define MQTT_HOST "192.168.1.10"
#define MQTT_PORT 1883
#define MQTT_USERNAME "bench-1"
#define MQTT_PASSWORD "open sesame"
#define DEVICE "Bench 1@demo"
