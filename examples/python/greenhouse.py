"""Creates a device, sends streams, lists them, updates the device against a conflict, and deletes everything again.

DEVICE_PLATFORM_URL=http://127.0.0.1:3000 API_KEY=… python3 greenhouse.py
"""

import json
import os
import time
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

URL = os.environ.get("DEVICE_PLATFORM_URL", "http://127.0.0.1:3000")
API_KEY = os.environ["API_KEY"]
CONFLICT = 4005


class PlatformError(Exception):
    """An answer other than success; `details` names the wrong fields."""

    def __init__(self, code, message, details):
        super().__init__(f"{code} {message} {details}")
        self.code = code
        self.details = details


def send(method, path, body=None):
    """Sends a request and returns the body of the answer."""
    headers = {"service.apikey": API_KEY, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(URL + path, data, headers, method=method), timeout=10) as response:
            return json.load(response)
    except HTTPError as error:
        answer = json.load(error)
        raise PlatformError(answer["code"], answer["message"], answer["details"]) from None


def path_of(kind, identifier):
    return f"/{kind}/{quote(identifier, safe='')}/"


def ensure(kind, identity, fields=None):
    """Returns the identifier of the object with this name and parent, which is created if there is none."""
    query = f"/{kind}/?{urlencode(identity)}"
    found = send("GET", query)["result"]
    if not found:
        send("POST", f"/{kind}/", {**identity, **(fields or {})})
        found = send("GET", query)["result"]
    return found[0]["id_developer"]


def update(path, current, change):
    """Applies `change` to the object as it is now; if another program was faster, to what that program has stored."""
    while True:
        try:
            return send("PUT", path, {**change(current), "version": current["version"]})["details"]
        except PlatformError as error:
            if error.code != CONFLICT:
                raise
            print(f"conflict: version {current['version']} is out of date")
            current = send("GET", path)


project = ensure("projects", {"name": "Greenhouse Python"}, {"id_customer": "example"})
service = ensure("services", {"name": "Climate Python", "id_project": project})
group = ensure("groups", {"name": "North Python", "id_service": service})
device = ensure("devices", {"name": "Bench 1", "id_group": group}, {"type": "thermometer"})
path = path_of("devices", device)
print(f"device {device}")

now = int(time.time())
send(
    "POST",
    f"{path}streams/",
    [{"at": now - 60, "data": {"temperature": 21.5}}, {"at": now, "data": {"temperature": 21.75}}],
)
send("POST", f"{path}streams/", {"_t": "sta", "data": {"battery": 97}})

for stream in send("GET", f"{path}streams/?_t=str&sort=at&order=-1&max=10")["result"]:
    print(f"stream {stream['at']} {json.dumps(stream['data'], separators=(',', ':'))}")

stale = send("GET", path)
send("PUT", path, {"description": "moved by somebody else", "version": stale["version"]})
updated = update(path, stale, lambda stored: {"firmware": "1.1.0"})
print(f"version {updated['version']}, firmware {updated['firmware']}, {updated['description']}")

send("DELETE", path_of("projects", project))
print("deleted")
