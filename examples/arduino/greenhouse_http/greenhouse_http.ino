// Measures every 10 s, or as its configuration file says, and sends the readings over HTTP, at most once a minute; then it takes
// a new version of the file and answers its commands. Readings that could not be sent wait in memory. For ESP32 boards;
// libraries: WiFi and HTTPClient of the board package. The device must exist.
#include <Arduino.h>
#include <HTTPClient.h>
#include <WiFi.h>
#include <time.h>

#include "config.h"

struct Reading {
  time_t at;
  float temperature;
};

// This file has the seconds between two measurements, as in `10`.
const char *config_file = "period.txt";
unsigned long measure_period_ms = 10000;
const unsigned long send_period_ms = 60000;
const size_t max_readings = 300;

Reading readings[max_readings];
size_t readingCount = 0;
unsigned long nextMeasurement_ms = 0;
unsigned long nextSending_ms = 0;

String percentEncode(const char *text) {
  const char *digits = "0123456789ABCDEF";
  String encoded;
  for (; *text != '\0'; text++) {
    const unsigned char byte = *text;
    if (isalnum(byte) || strchr("-._~", byte) != nullptr) {
      encoded += *text;
    } else {
      encoded += '%';
      encoded += digits[byte >> 4];
      encoded += digits[byte & 15];
    }
  }
  return encoded;
}

void measure() {
  // the oldest reading makes room for the newest
  if (readingCount == max_readings) {
    memmove(readings, readings + 1, (max_readings - 1) * sizeof(Reading));
    readingCount--;
  }
  readings[readingCount++] = {time(nullptr), analogRead(34) * 100.0f / 4095};
}

// One array per request: the service stores all of it or nothing.
String encodeReadings() {
  String body = "[";
  for (size_t index = 0; index < readingCount; index++) {
    char entry[80];
    const Reading &reading = readings[index];
    snprintf(entry, sizeof entry, "%s{\"at\":%lld,\"data\":{\"temperature\":%.2f}}", index == 0 ? "" : ",",
             (long long)reading.at, reading.temperature);
    body += entry;
  }
  body += "]";
  return body;
}

void begin(HTTPClient &http, const String &path) {
  http.begin(String(DEVICE_PLATFORM_URL) + "/devices/" + percentEncode(DEVICE) + path);
  http.addHeader("service.apikey", API_KEY);
  http.addHeader("Content-Type", "application/json");
}

// Returns the first text under a key; the ids, names and versions hold no quotes.
String textUnder(const char *key, const String &json) {
  const String before = String("\"") + key + "\":\"";
  const int at = json.indexOf(before);
  if (at < 0) return "";
  const int start = at + before.length();
  return json.substring(start, json.indexOf("\"", start));
}

// Takes the version of the file that the device shall have, unless it has it, and reports the outcome.
void applyConfig() {
  HTTPClient http;
  begin(http, "/state/");
  const int status = http.GET();
  const String state = http.getString();
  http.end();
  // the delta comes after both sides
  const int at = state.indexOf(String("\"") + config_file + "\":", state.indexOf("\"delta\":"));
  if (status != 200 || at < 0) return;
  const String version = textUnder("version", state.substring(at, state.length()));
  begin(http, String("/deviceconfigs/") + config_file + "/" + percentEncode(version.c_str()) + "/");
  if (http.GET() != 200) return http.end();
  const long period_s = http.getString().toInt();
  http.end();
  const bool isValid = period_s >= 1 && period_s <= 3600;
  if (isValid) measure_period_ms = period_s * 1000;
  // null removes the error of an earlier version
  const String report = String("{\"configs\":{\"") + config_file + "\":{\"version\":\"" + version + "\",\"error\":" +
                        (isValid ? "null" : "\"no number of seconds\"") + "}}}";
  begin(http, "/state/reported/");
  Serial.printf("%s %s: status %d\n", config_file, version.c_str(), http.PATCH(report));
  http.end();
}

// With the first request a command is sent, and comes with no other one.
void answerCommands() {
  for (;;) {
    HTTPClient http;
    begin(http, "/commands/?status=queued&max=1&fields=id,name");
    const int status = http.GET();
    const String id = textUnder("id", http.getString());
    const String name = textUnder("name", http.getString());
    http.end();
    if (status != 200 || id.length() == 0) return;
    char answer[80] = "{\"status\":\"failed\"}";
    if (name == "identify")
      snprintf(answer, sizeof answer, "{\"status\":\"done\",\"data\":{\"readings\":%u}}", (unsigned)readingCount);
    begin(http, String("/commands/") + id + "/result/");
    Serial.printf("%s: status %d\n", name.c_str(), http.POST(answer));
    http.end();
  }
}

// Returns the milliseconds to wait before the next attempt.
unsigned long sendReadings() {
  HTTPClient http;
  begin(http, "/streams/");
  const char *headers[] = {"Retry-After"};
  http.collectHeaders(headers, 1);
  const int status = http.POST(encodeReadings());
  unsigned long wait_ms = send_period_ms;
  if (status == 200) {
    Serial.printf("sent %u readings\n", (unsigned)readingCount);
    readingCount = 0;
  } else if (status == 429 || status == 503) {
    // overloaded or without its database: the readings are kept
    const long retry_after_s = http.header("Retry-After").toInt();
    if (retry_after_s > 0) wait_ms = retry_after_s * 1000;
    Serial.printf("status %d, again in %lu ms\n", status, wait_ms);
  } else if (status > 0) {
    // the request is wrong or refused, so repeating it would not help
    Serial.printf("status %d: %s\n", status, http.getString().c_str());
    readingCount = 0;
  } else {
    Serial.println("no connection");
  }
  http.end();
  return wait_ms;
}

void setup() {
  Serial.begin(115200);
  WiFi.begin(WIFI_SSID, WIFI_PASSWORD);
  while (WiFi.status() != WL_CONNECTED) delay(500);
  configTime(0, 0, "pool.ntp.org");
  // without the time of day, readings would be dated 1970
  while (time(nullptr) < 1700000000) delay(500);
}

void loop() {
  if ((long)(millis() - nextMeasurement_ms) >= 0) {
    nextMeasurement_ms = millis() + measure_period_ms;
    measure();
  }
  if ((long)(millis() - nextSending_ms) >= 0) {
    nextSending_ms = millis() + sendReadings();
    applyConfig();
    answerCommands();
  }
  delay(100);
}
