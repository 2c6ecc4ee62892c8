"""A round trip with the client that openapi-generator has generated for Python."""

import base64
import json
import os

import openapi_client as api

NAME = "openapi-generator python"
configuration = api.Configuration(host=os.environ["DEVICE_PLATFORM_URL"], api_key={"apikey": os.environ["API_KEY"]})


def only_id(answer):
    """Returns the identifier of the only object of a list."""
    assert answer.total_documents == 1 and len(answer.result) == 1, answer
    return answer.result[0].id_developer


with api.ApiClient(configuration) as client:
    projects, services, groups = api.ProjectsApi(client), api.ServicesApi(client), api.GroupsApi(client)
    devices, streams = api.DevicesApi(client), api.StreamsApi(client)

    assert projects.create_project(api.ProjectCreate(name=NAME, id_customer="example")).code == 2001
    project = only_id(projects.list_projects(name=NAME))
    assert services.create_service(api.ServiceCreate(name=NAME, id_project=project)).code == 2001
    service = only_id(services.list_services(name=NAME))
    assert groups.create_group(api.GroupCreate(name=NAME, id_service=service)).code == 2001
    group = only_id(groups.list_groups(name=NAME))
    new = api.DeviceCreate(
        name="Bench 1/2", type="thermometer", id_group=group, properties={"rows": 3}, lon=-3.7, lat=40.4
    )
    assert devices.create_device(new).code == 2001
    device = only_id(devices.list_devices(id_group=group, enabled=True))

    sent = [
        api.StreamCreate(data={"temperature": 21.5}, at=1700000000.25),
        api.StreamCreate.from_dict({"data": {"battery": 97}, "_t": "sta"}),
    ]
    assert streams.create_streams_of_device(device, sent).code == 2001
    listed = streams.list_streams_of_device(device, at_to=1700000001, sort="at", order=-1, max=10)
    assert listed.total_documents == 1, listed
    assert listed.result[0].data == {"temperature": 21.5}, listed
    assert listed.result[0].at == 1700000000.25, listed

    content = bytes([0, 255, 104, 105])
    config = api.DeviceConfigCreate(name="boot 1.cfg", version="1.0", file=base64.b64encode(content).decode())
    files = api.DeviceconfigsApi(client)
    assert files.create_device_config(device, config).details.size == len(content)
    assert files.download_latest_device_config(device, config.name) == content

    shown = devices.get_device(device)
    assert (shown.status, shown.lat, shown.version) == ("ok", 40.4, 0), shown
    updated = devices.update_device(device, api.DeviceUpdate(description="first", version=shown.version))
    assert updated.details.version == 1, updated
    try:
        devices.update_device(device, api.DeviceUpdate(description="second", version=shown.version))
        raise AssertionError("the update of an old version succeeded")
    except api.ApiException as error:
        problem = json.loads(error.body)
        assert error.status == 400 and problem["code"] == 4005 and problem["details"] == {"version": 1}, problem
        assert error.data.code == 4005, error.data

    assert projects.delete_project(project).code == 2004
    try:
        devices.get_device(device)
        raise AssertionError("the device outlives its project")
    except api.exceptions.NotFoundException as error:
        assert json.loads(error.body)["code"] == 4041, error.body
