import java.io.IOException;
import java.net.URI;
import java.net.URLEncoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Creates a device, sends streams, lists them, updates the device against a conflict, and deletes everything again.
 *
 * <p>DEVICE_PLATFORM_URL=http://127.0.0.1:3000 API_KEY=… java Greenhouse.java
 *
 * <p>The standard library has no JSON parser, so bodies are templates and answers are read with patterns. A larger program
 * uses a JSON library.
 */
public class Greenhouse {
  static final String URL = System.getenv().getOrDefault("DEVICE_PLATFORM_URL", "http://127.0.0.1:3000");
  static final String API_KEY = System.getenv("API_KEY");
  static final HttpClient CLIENT = HttpClient.newHttpClient();
  static final int CONFLICT = 4005;

  /** An answer other than success; the message holds the whole body. */
  static class PlatformException extends IOException {
    final int code;

    PlatformException(String answer) {
      super(answer);
      code = Integer.parseInt(read(answer, "code"));
    }
  }

  /** Sends a request and returns the body of the answer. */
  static String send(String method, String path, String body) throws IOException, InterruptedException {
    var request =
        HttpRequest.newBuilder(URI.create(URL + path))
            .timeout(Duration.ofSeconds(10))
            .header("service.apikey", API_KEY)
            .header("Content-Type", "application/json")
            .method(method, body == null ? BodyPublishers.noBody() : BodyPublishers.ofString(body))
            .build();
    var response = CLIENT.send(request, BodyHandlers.ofString());
    if (response.statusCode() >= 400) throw new PlatformException(response.body());
    return response.body();
  }

  /** Returns the first value of a key, a text or a number, or null. */
  static String read(String json, String key) {
    Matcher found = Pattern.compile("\"" + key + "\":(?:\"((?:[^\"\\\\]|\\\\.)*)\"|([-\\d.eE+]+))").matcher(json);
    if (!found.find()) return null;
    return found.group(1) != null ? found.group(1) : found.group(2);
  }

  /** Percent-encodes a text for a path or a query. */
  static String encode(String text) {
    return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
  }

  /** Returns the identifier of the object with this name and parent, which is created if there is none. */
  static String ensure(String type, String name, String parentField, String parent, String otherFields)
      throws IOException, InterruptedException {
    var parentFilter = parent == null ? "" : "&%s=%s".formatted(parentField, encode(parent));
    var list = "/%s/?name=%s%s".formatted(type, encode(name), parentFilter);
    var found = read(send("GET", list, null), "id_developer");
    if (found != null) return found;
    var parentMember = parent == null ? "" : ", \"%s\": \"%s\"".formatted(parentField, parent);
    send("POST", "/%s/".formatted(type), "{\"name\": \"%s\"%s%s}".formatted(name, parentMember, otherFields));
    return read(send("GET", list, null), "id_developer");
  }

  /** Sets a field of the object as it is now; if another program was faster, of what that program has stored. */
  static String update(String path, String current, String field, String value)
      throws IOException, InterruptedException {
    while (true) {
      var version = read(current, "version");
      try {
        return send("PUT", path, "{\"%s\": \"%s\", \"version\": %s}".formatted(field, value, version));
      } catch (PlatformException error) {
        if (error.code != CONFLICT) throw error;
        System.out.printf("conflict: version %s is out of date%n", version);
        current = send("GET", path, null);
      }
    }
  }

  public static void main(String[] arguments) throws IOException, InterruptedException {
    var project = ensure("projects", "Greenhouse Java", null, null, ", \"id_customer\": \"example\"");
    var service = ensure("services", "Climate Java", "id_project", project, "");
    var group = ensure("groups", "North Java", "id_service", service, "");
    var device = ensure("devices", "Bench 1", "id_group", group, ", \"type\": \"thermometer\"");
    var path = "/devices/" + encode(device) + "/";
    System.out.println("device " + device);

    long now = Instant.now().getEpochSecond();
    send(
        "POST",
        path + "streams/",
        """
        [{"at": %d, "data": {"temperature": 21.5}}, {"at": %d, "data": {"temperature": 21.75}}]
        """
            .formatted(now - 60, now));
    send("POST", path + "streams/", "{\"_t\": \"sta\", \"data\": {\"battery\": 97}}");

    var streams = send("GET", path + "streams/?_t=str&sort=at&order=-1&max=10", null);
    Matcher entries = Pattern.compile("\"data\":(\\{[^}]*\\}),[^}]*\"at\":(\\d+)").matcher(streams);
    while (entries.find()) System.out.println("stream " + entries.group(2) + " " + entries.group(1));

    var stale = send("GET", path, null);
    send("PUT", path, "{\"description\": \"moved by somebody else\", \"version\": %s}".formatted(read(stale, "version")));
    var updated = update(path, stale, "firmware", "1.1.0");
    System.out.printf(
        "version %s, firmware %s, %s%n", read(updated, "version"), read(updated, "firmware"), read(updated, "description"));

    send("DELETE", "/projects/" + encode(project) + "/", null);
    System.out.println("deleted");
  }
}
