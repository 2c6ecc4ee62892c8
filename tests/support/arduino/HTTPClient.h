// HTTP/1.1 with one request per connection.
#pragma once
#include "WiFi.h"

class HTTPClient {
 public:
  void begin(const String &url) {
    std::string rest = std::string(url.c_str()).substr(strlen("http://"));
    path = rest.substr(rest.find('/'));
    host = rest.substr(0, rest.find('/'));
  }
  void addHeader(const char *name, const char *value) { headers += std::string(name) + ": " + value + "\r\n"; }
  void collectHeaders(const char **, size_t) {}
  int GET() { return send("GET", ""); }
  int POST(const String &body) { return send("POST", body); }
  int PATCH(const String &body) { return send("PATCH", body); }
  String header(const char *name) {
    const std::string line = std::string("\r\n") + name + ": ";
    const size_t start = answer.find(line);
    if (start == std::string::npos) return String();
    const size_t value = start + line.length();
    return String(answer.substr(value, answer.find("\r\n", value) - value));
  }
  String getString() { return String(answer.substr(answer.find("\r\n\r\n") + 4)); }
  void end() { headers.clear(); }

 private:
  int send(const std::string &method, const String &body) {
    WiFiClient client;
    const size_t colon = host.find(':');
    if (!client.connect(host.substr(0, colon).c_str(), atoi(host.c_str() + colon + 1))) return -1;
    client.write(method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n" + headers +
                 "Content-Length: " + std::to_string(body.length()) + "\r\n\r\n" + body.c_str());
    answer.clear();
    for (std::string part = client.read(4096); !part.empty(); part = client.read(4096)) answer += part;
    client.stop();
    return answer.empty() ? -1 : atoi(answer.c_str() + strlen("HTTP/1.1 "));
  }

  std::string host, path, headers, answer;
};
