// Runs a sketch on the host for the simulated time in milliseconds that is the first argument.
#include "Arduino.h"

void setup();
void loop();

int main(int, char **arguments) {
  setup();
  const unsigned long end_ms = strtoul(arguments[1], nullptr, 10);
  while (millis() < end_ms) loop();
}
