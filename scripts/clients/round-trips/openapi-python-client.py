"""A round trip with the client that openapi-python-client has generated."""

import base64
import os

from device_platform_management_interface_client import AuthenticatedClient, models
from device_platform_management_interface_client.api.deviceconfigs import (
    create_device_config,
    download_latest_device_config,
)
from device_platform_management_interface_client.api.devices import create_device, get_device, list_devices, update_device
from device_platform_management_interface_client.api.groups import create_group, list_groups
from device_platform_management_interface_client.api.projects import create_project, delete_project, list_projects
from device_platform_management_interface_client.api.services import create_service, list_services
from device_platform_management_interface_client.api.streams import create_streams_of_device, list_streams_of_device

NAME = "openapi-python-client"
client = AuthenticatedClient(
    base_url=os.environ["DEVICE_PLATFORM_URL"],
    token=os.environ["API_KEY"],
    prefix="",
    auth_header_name="service.apikey",
)


def only_id(answer):
    """Returns the identifier of the only object of a list."""
    assert answer.total_documents == 1 and len(answer.result) == 1, answer
    return answer.result[0].id_developer


def created(answer):
    assert isinstance(answer, models.Status) and answer.code == 2001, answer


created(create_project.sync(client=client, body=models.ProjectCreate(name=NAME, id_customer="example")))
project = only_id(list_projects.sync(client=client, name=NAME))
created(create_service.sync(client=client, body=models.ServiceCreate(name=NAME, id_project=project)))
service = only_id(list_services.sync(client=client, name=NAME))
created(create_group.sync(client=client, body=models.GroupCreate(name=NAME, id_service=service)))
group = only_id(list_groups.sync(client=client, name=NAME))
new = models.DeviceCreate.from_dict(
    {
        "name": "Bench 1/2",
        "type": "thermometer",
        "id_group": group,
        "properties": {"rows": 3},
        "lon": -3.7,
        "lat": 40.4,
    }
)
created(create_device.sync(client=client, body=new))
device = only_id(list_devices.sync(client=client, id_group=group, enabled=True))

sent = [
    models.StreamCreate.from_dict({"data": {"temperature": 21.5}, "at": 1700000000.25}),
    models.StreamCreate.from_dict({"data": {"battery": 97}, "_t": "sta"}),
]
created(create_streams_of_device.sync(device, client=client, body=sent))
listed = list_streams_of_device.sync(
    device,
    client=client,
    at_to=1700000001,
    sort=models.ListStreamsOfDeviceSort("at"),
    order=models.ListStreamsOfDeviceOrder(-1),
    max_=10,
)
assert listed.total_documents == 1, listed
assert listed.result[0].data.to_dict() == {"temperature": 21.5}, listed
assert listed.result[0].at == 1700000000.25, listed

content = bytes([0, 255, 104, 105])
config = models.DeviceConfigCreate(name="boot 1.cfg", version="1.0", file=base64.b64encode(content).decode())
uploaded = create_device_config.sync(device, client=client, body=config)
assert uploaded.details.size == len(content), uploaded
assert download_latest_device_config.sync(device, config.name, client=client).payload.read() == content

shown = get_device.sync(device, client=client)
assert (shown.status, shown.lat, shown.version) == ("ok", 40.4, 0), shown
first = models.DeviceUpdate(description="first", version=shown.version)
updated = update_device.sync(device, client=client, body=first)
assert isinstance(updated, models.DeviceUpdated) and updated.details.version == 1, updated
second = models.DeviceUpdate(description="second", version=shown.version)
refused = update_device.sync_detailed(device, client=client, body=second)
assert refused.status_code == 400 and isinstance(refused.parsed, models.Problem), refused
assert refused.parsed.code == 4005 and refused.parsed.details.to_dict() == {"version": 1}, refused

deleted = delete_project.sync(project, client=client)
assert deleted.code == 2004, deleted
gone = get_device.sync_detailed(device, client=client)
assert gone.status_code == 404 and gone.parsed.code == 4041, gone
