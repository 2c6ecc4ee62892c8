import java.lang.reflect.InvocationTargetException;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Base64;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.DeviceconfigsApi;
import org.openapitools.client.api.DevicesApi;
import org.openapitools.client.api.GroupsApi;
import org.openapitools.client.api.ProjectsApi;
import org.openapitools.client.api.ServicesApi;
import org.openapitools.client.api.StreamsApi;
import org.openapitools.client.model.Device;
import org.openapitools.client.model.DeviceConfigCreate;
import org.openapitools.client.model.DeviceCreate;
import org.openapitools.client.model.DeviceList;
import org.openapitools.client.model.DeviceUpdate;
import org.openapitools.client.model.GroupCreate;
import org.openapitools.client.model.GroupList;
import org.openapitools.client.model.ProjectCreate;
import org.openapitools.client.model.ProjectList;
import org.openapitools.client.model.ServiceCreate;
import org.openapitools.client.model.ServiceList;
import org.openapitools.client.model.StreamCreate;
import org.openapitools.client.model.StreamList;

/** A round trip with the client that openapi-generator has generated for Java with the library native. */
public class RoundTrip {
  static final String NAME = "openapi-generator java";

  static void check(boolean isTrue, Object answer) {
    if (!isTrue) throw new AssertionError(String.valueOf(answer));
  }

  /**
   * Calls a list operation with the given first arguments and without its other parameters: their number and order change
   * whenever the document gets a parameter.
   */
  static <T> T list(Object api, Class<T> type, String name, Object... first) throws Exception {
    var shortest =
        Arrays.stream(api.getClass().getMethods())
            .filter((method) -> method.getName().equals(name))
            .min(Comparator.comparingInt((method) -> method.getParameterCount()))
            .orElseThrow();
    try {
      return type.cast(shortest.invoke(api, Arrays.copyOf(first, shortest.getParameterCount())));
    } catch (InvocationTargetException error) {
      throw (Exception) error.getCause();
    }
  }

  public static void main(String[] arguments) throws Exception {
    var client = new ApiClient();
    client.updateBaseUri(System.getenv("DEVICE_PLATFORM_URL"));
    client.setRequestInterceptor((request) -> request.header("service.apikey", System.getenv("API_KEY")));
    var projects = new ProjectsApi(client);
    var devices = new DevicesApi(client);
    var streams = new StreamsApi(client);

    var project = new ProjectCreate().name(NAME).idCustomer("example");
    check(projects.createProject(project).getCode() == 2001, project);
    var projectId = list(projects, ProjectList.class, "listProjects").getResult().get(0).getIdDeveloper();
    var services = new ServicesApi(client);
    var service = new ServiceCreate().name(NAME).idProject(projectId);
    check(services.createService(service).getCode() == 2001, service);
    var serviceId = list(services, ServiceList.class, "listServices").getResult().get(0).getIdDeveloper();
    var groups = new GroupsApi(client);
    var group = new GroupCreate().name(NAME).idService(serviceId);
    check(groups.createGroup(group).getCode() == 2001, group);
    var groupId = list(groups, GroupList.class, "listGroups").getResult().get(0).getIdDeveloper();
    var device =
        new DeviceCreate()
            .name("Bench 1/2")
            .type("thermometer")
            .idGroup(groupId)
            .properties(Map.of("rows", 3))
            .lon(-3.7)
            .lat(40.4);
    check(devices.createDevice(device).getCode() == 2001, device);
    var listed = list(devices, DeviceList.class, "listDevices");
    check(listed.getTotalDocuments() == 1, listed);
    var id = listed.getResult().get(0).getIdDeveloper();

    var sent =
        List.of(
            new StreamCreate().data(Map.of("temperature", 21.5)).at(1700000000.25),
            new StreamCreate().data(Map.of("battery", 97)).t(StreamCreate.TEnum.STA).at(1700000001.0));
    check(streams.createStreamsOfDevice(id, sent).getCode() == 2001, sent);
    var found = list(streams, StreamList.class, "listStreamsOfDevice", id);
    check(found.getTotalDocuments() == 2, found);
    check(found.getResult().get(0).getData().equals(Map.of("temperature", 21.5)), found);
    check(found.getResult().get(0).getAt() == 1700000000.25, found);

    byte[] content = {0, -1, 104, 105};
    var files = new DeviceconfigsApi(client);
    var file = Base64.getEncoder().encodeToString(content);
    var config = new DeviceConfigCreate().name("boot 1.cfg").version("1.0")._file(file);
    check(files.createDeviceConfig(id, config).getDetails().getSize() == content.length, config);
    var downloaded = Files.readAllBytes(files.downloadLatestDeviceConfig(id, "boot 1.cfg", null, null).toPath());
    check(Arrays.equals(downloaded, content), Arrays.toString(downloaded));

    Device shown = devices.getDevice(id, null, null);
    check(shown.getStatus() == Device.StatusEnum.OK && shown.getLat() == 40.4 && shown.getVersion() == 0, shown);
    var first = new DeviceUpdate().description("first").version(shown.getVersion());
    check(devices.updateDevice(id, first, null).getDetails().getVersion() == 1, first);
    var second = new DeviceUpdate().description("second").version(shown.getVersion());
    try {
      devices.updateDevice(id, second, null);
      throw new AssertionError("the update of an old version succeeded");
    } catch (ApiException error) {
      check(error.getCode() == 400 && error.getResponseBody().contains("\"code\":4005"), error);
    }

    check(projects.deleteProject(projectId, null).getCode() == 2004, projectId);
    try {
      devices.getDevice(id, null, null);
      throw new AssertionError("the device outlives its project");
    } catch (ApiException error) {
      check(error.getCode() == 404, error);
    }
  }
}
