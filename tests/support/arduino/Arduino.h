// The part of the Arduino core that the sketches of examples/ use, for a host compiler. Time passes only in delay().
#pragma once
#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

class String {
 public:
  String(const char *text = "") : value(text) {}
  explicit String(const std::string &text) : value(text) {}
  String &operator+=(char other) { value += other; return *this; }
  String &operator+=(const char *other) { value += other; return *this; }
  String operator+(const char *other) const { return String(value + other); }
  String operator+(const String &other) const { return String(value + other.value); }
  const char *c_str() const { return value.c_str(); }
  size_t length() const { return value.length(); }
  int indexOf(const String &text, size_t from = 0) const {
    const size_t at = value.find(text.value, from);
    return at == std::string::npos ? -1 : int(at);
  }
  String substring(size_t from, size_t to) const { return String(value.substr(from, to - from)); }
  bool operator==(const char *other) const { return value == other; }
  long toInt() const { return atol(value.c_str()); }

 private:
  std::string value;
};

struct SerialPort {
  void begin(unsigned long) {}
  void println(const char *text) { puts(text); }
  void printf(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vprintf(format, values);
    va_end(values);
  }
};

inline SerialPort Serial;
inline unsigned long elapsed_ms = 0;
inline unsigned long millis() { return elapsed_ms; }
inline void delay(unsigned long duration_ms) { elapsed_ms += duration_ms; }
inline int analogRead(int) { return 880; }
inline void configTime(long, int, const char *) {}
