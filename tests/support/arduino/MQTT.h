// MQTT 3.1.1: CONNECT, and PUBLISH at QoS 1, in packets of less than 128 bytes or two length bytes.
#pragma once
#include "WiFi.h"

class MQTTClient {
 public:
  explicit MQTTClient(int) {}
  void begin(const char *server, int port_number, WiFiClient &client) {
    host = server;
    port = port_number;
    network = &client;
  }
  bool connect(const char *clientId, const char *username, const char *password) {
    if (!network->connect(host.c_str(), port)) return false;
    sendPacket('\x10', text("MQTT") + std::string("\x04\xC2\x00\x3C", 4) + text(clientId) + text(username) + text(password));
    const std::string acknowledgement = network->read(4);
    code = acknowledgement.size() == 4 ? acknowledgement[3] : -1;
    isConnected = code == 0;
    return isConnected;
  }
  bool publish(const String &topic, const char *payload, bool, int) {
    sendPacket('\x32', text(topic.c_str()) + std::string("\x00\x01", 2) + payload);
    const std::string acknowledgement = network->read(4);
    isConnected = acknowledgement.size() == 4 && acknowledgement[0] == '\x40';
    return isConnected;
  }
  bool connected() { return isConnected; }
  void loop() {}
  int lastError() { return isConnected ? 0 : -1; }
  int returnCode() { return code; }

 private:
  static std::string text(const std::string &value) {
    return std::string{char(value.size() >> 8), char(value.size() & 255)} + value;
  }
  void sendPacket(char type, const std::string &body) {
    std::string length(1, char(body.size() & 127));
    if (body.size() > 127) length = std::string{char((body.size() & 127) | 128), char(body.size() >> 7)};
    network->write(type + length + body);
  }

  std::string host;
  int port = 0;
  int code = 0;
  bool isConnected = false;
  WiFiClient *network = nullptr;
};
