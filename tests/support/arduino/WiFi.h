// A network that is always there: TCP connections of the host.
#pragma once
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "Arduino.h"

enum { WL_CONNECTED = 3 };

struct WiFiNetwork {
  void begin(const char *, const char *) {}
  int status() { return WL_CONNECTED; }
};

inline WiFiNetwork WiFi;

class WiFiClient {
 public:
  bool connect(const char *host, int port) {
    stop();
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, std::to_string(port).c_str(), &hints, &found) != 0) return false;
    descriptor = socket(found->ai_family, SOCK_STREAM, 0);
    const bool isOpen = ::connect(descriptor, found->ai_addr, found->ai_addrlen) == 0;
    freeaddrinfo(found);
    if (!isOpen) stop();
    return isOpen;
  }
  void stop() {
    if (descriptor >= 0) close(descriptor);
    descriptor = -1;
  }
  void write(const std::string &bytes) { send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL); }
  /** Reads up to `max_bytes`; nothing at the end of the connection. */
  std::string read(size_t max_bytes) {
    std::string bytes(max_bytes, '\0');
    const ssize_t count = recv(descriptor, bytes.data(), max_bytes, 0);
    bytes.resize(count > 0 ? count : 0);
    return bytes;
  }

 private:
  int descriptor = -1;
};
