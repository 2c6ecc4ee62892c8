// Publishes a measurement every 10 s over MQTT at QoS 1: the acknowledgement means that it is stored. For ESP32 boards;
// library: MQTT by Joel Gaehwiler. The device and its credentials must exist.
#include <Arduino.h>
#include <MQTT.h>
#include <WiFi.h>
#include <time.h>

#include "config.h"

const unsigned long period_ms = 10000;

WiFiClient network;
MQTTClient client(512);
unsigned long nextMeasurement_ms = 0;

// The identifier with %, /, +, # and a $ at its beginning percent-encoded.
String topicOf(const char *device) {
  String topic = *device == '$' ? "%24" : "";
  if (*device == '$') device++;
  for (; *device != '\0'; device++) {
    switch (*device) {
      case '%': topic += "%25"; break;
      case '/': topic += "%2F"; break;
      case '+': topic += "%2B"; break;
      case '#': topic += "%23"; break;
      default: topic += *device;
    }
  }
  return topic + "/streams";
}

void connectToBroker() {
  while (!client.connect(MQTT_USERNAME, MQTT_USERNAME, MQTT_PASSWORD)) {
    // 4: wrong username or password; 5: the device is disabled; see the reference, chapter 11.4
    Serial.printf("refused: error %d, return code %d\n", client.lastError(), client.returnCode());
    delay(5000);
  }
}

void setup() {
  Serial.begin(115200);
  WiFi.begin(WIFI_SSID, WIFI_PASSWORD);
  while (WiFi.status() != WL_CONNECTED) delay(500);
  configTime(0, 0, "pool.ntp.org");
  while (time(nullptr) < 1700000000) delay(500);
  client.begin(MQTT_HOST, MQTT_PORT, network);
}

void loop() {
  client.loop();
  if (!client.connected()) connectToBroker();
  if ((long)(millis() - nextMeasurement_ms) >= 0) {
    char payload[80];
    snprintf(payload, sizeof payload, "{\"at\":%lld,\"data\":{\"temperature\":%.2f}}", (long long)time(nullptr),
             analogRead(34) * 100.0f / 4095);
    // after a failure the next round measures and tries again
    if (client.publish(topicOf(DEVICE), payload, false, 1)) {
      nextMeasurement_ms = millis() + period_ms;
      Serial.println("published");
    }
  }
  delay(100);
}
