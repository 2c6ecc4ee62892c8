// Answers the commands of a device over MQTT 5: to the response topic of each, with its correlation data. For an ESP32 with
// ESP-IDF 5, whose example component connects to the network. The device and its credentials must exist.
#include <stdlib.h>
#include <string.h>

#include "cJSON.h"
#include "config.h"
#include "esp_event.h"
#include "esp_log.h"
#include "esp_netif.h"
#include "mqtt_client.h"
#include "nvs_flash.h"
#include "protocol_examples_common.h"

static const char *tag = "commands";

// Runs a command and returns its result.
static const char *answer(const char *name) {
  if (strcmp(name, "identify") == 0) return "{\"status\":\"done\",\"data\":{\"runs\":\"esp-idf\"}}";
  return "{\"status\":\"failed\"}";
}

static void on_command(esp_mqtt_event_handle_t event) {
  const esp_mqtt5_event_property_t *sent = event->property;
  // one that is longer than the buffer of the client comes in pieces, and is not answered
  if (event->data_len < event->total_data_len || sent == NULL || sent->response_topic_len == 0) return;
  cJSON *command = cJSON_ParseWithLength(event->data, event->data_len);
  const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(command, "name"));
  char *topic = strndup(sent->response_topic, sent->response_topic_len);
  // the correlation data says which command it is, so that the result needs no id
  const esp_mqtt5_publish_property_config_t property = {
      .correlation_data = sent->correlation_data,
      .correlation_data_len = sent->correlation_data_len,
  };
  if (name != NULL && topic != NULL && esp_mqtt5_client_set_publish_property(event->client, &property) == ESP_OK)
    esp_mqtt_client_enqueue(event->client, topic, answer(name), 0, 1, 0, true);
  free(topic);
  cJSON_Delete(command);
}

static void on_event(void *argument, esp_event_base_t base, int32_t id, void *data) {
  esp_mqtt_event_handle_t event = data;
  if (id == MQTT_EVENT_CONNECTED) esp_mqtt_client_subscribe_single(event->client, COMMANDS_TOPIC, 1);
  if (id == MQTT_EVENT_DATA) on_command(event);
  if (id == MQTT_EVENT_ERROR) ESP_LOGW(tag, "reason code %d", event->error_handle->connect_return_code);
}

void app_main(void) {
  ESP_ERROR_CHECK(nvs_flash_init());
  ESP_ERROR_CHECK(esp_netif_init());
  ESP_ERROR_CHECK(esp_event_loop_create_default());
  ESP_ERROR_CHECK(example_connect());
  const esp_mqtt_client_config_t config = {
      .broker.address.uri = MQTT_URI,
      .credentials.username = MQTT_USERNAME,
      .credentials.authentication.password = MQTT_PASSWORD,
      .session.protocol_ver = MQTT_PROTOCOL_V_5,
  };
  esp_mqtt_client_handle_t client = esp_mqtt_client_init(&config);
  ESP_ERROR_CHECK(esp_mqtt_client_register_event(client, ESP_EVENT_ANY_ID, on_event, NULL));
  ESP_ERROR_CHECK(esp_mqtt_client_start(client));
}
