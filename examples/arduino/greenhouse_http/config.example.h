// Copy to config.h and fill in. Give the device its own key, of scope `device`: it reaches this device and nothing else.
#pragma once

#define WIFI_SSID "network"
#define WIFI_PASSWORD "secret"
#define DEVICE_PLATFORM_URL "http://192.168.1.10:3000"
#define API_KEY "…"
#define DEVICE "Bench 1@demo"
