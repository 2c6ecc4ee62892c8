"""Completes valid requests with what a schema cannot express: existing parents, unused names, ordered bounds, versions.

schemathesis calls `before_call` before each request. Valid requests refer to existing resources, so that they must succeed;
a resource that is changed or deleted is created for the purpose. Invalid requests are sent unchanged.
"""

import itertools
import os
import time
from functools import cache
from urllib.parse import quote, unquote

import requests
import schemathesis

URL = os.environ["SERVICE_URL"]
HEADERS = {"service.apikey": os.environ["SERVICE_APIKEY"]}
PARENTS = {"services": "id_project", "groups": "id_service", "assets": "id_group", "devices": "id_group"}
# identifiers of the examples in the document, which only a run of all of them in order would create
EXAMPLES = ("Factory@demo", "Cooling@demo", "Hall 1@demo", "Cold store@demo", "Pump P2@demo", "Pump@demo", "Thermometer@demo")
numbers = itertools.count(int(time.time() * 1000))


def post(path, body):
    response = requests.post(f"{URL}{path}", json=body, headers=HEADERS, timeout=10)
    response.raise_for_status()
    return response


def create(plural, **fields):
    body = {"name": f"created {next(numbers)}", **fields}
    if plural == "projects":
        body["id_customer"] = "c"
    if plural == "devices":
        body["type"] = "t"
    if plural in PARENTS and "id_asset" not in fields:
        body[PARENTS[plural]] = shared_id(PARENTS[plural])
    return unquote(post(f"/{plural}/", body).headers["Location"].split("/")[-2])


def plural_of(field):
    return field.removeprefix("id_").removesuffix("_id_developer") + "s"


def shared_id(field):
    return shared_resource(plural_of(field))


@cache
def shared_resource(plural):
    """Returns a resource that is never deleted. The device has a configuration file and credentials."""
    identifier = create(plural)
    if plural == "devices":
        path = quote(identifier, safe="")
        post(f"/devices/{path}/deviceconfigs/", {"name": "f", "version": "1", "file": "YQ=="})
        post(f"/mqttdevices/{path}/credentials/", {"username": f"u{next(numbers)}", "password": "password"})
    return identifier


@cache
def device_of_asset():
    return create("devices", id_asset=shared_id("id_asset"))


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.path == "/apikeys/{id}/":
        # otherwise the tests would revoke the key that they use
        case.path_parameters["id"] = post("/apikeys/", {"username": "u", "scope": "read"}).json()["details"]["id"]
    if case.meta is None or case.meta.generation.mode.is_negative:
        # the schema, of one type, leaves out that a boolean takes 0 and 1 too
        if isinstance(case.body, dict) and type(case.body.get("enabled")) is int:
            case.body["enabled"] = "neither"
        return
    if case.path.startswith("/external/"):
        case.path_parameters["provider"] = "local"
    for name, value in (case.path_parameters or {}).items():
        if name in ("file_name", "file_version"):
            case.path_parameters[name] = {"file_name": "f", "file_version": "1"}[name]
        elif name.endswith("_id_developer"):
            exists = value.endswith(("@demo", "%40demo")) and unquote(value) not in EXAMPLES and name != "stream_id_developer"
            # a generated device may be disabled or require checksums
            sends_streams = case.method == "POST" and case.path.endswith("/streams/")
            chosen = unquote(value) if exists and not sends_streams else identifier(case, name)
            # the schema of an identifier demands `@`
            case.path_parameters[name] = quote(chosen, safe="@")
    for body in case.body if isinstance(case.body, list) else [case.body]:
        if isinstance(body, dict):
            complete(body, case)
    if case.path.endswith("/series/"):
        fit_series(case.query)
    for name in list(case.query or {}):
        if name.endswith("_to") or name.startswith("geo_") or isinstance(case.body, dict) and name in case.body:
            del case.query[name]
    for name, value in (("If-Match", "*"), ("Range", "bytes=0-0")):
        if case.headers and name in case.headers:
            case.headers[name] = value


def fit_series(query):
    """Sets what the descriptions state: paths, known aggregates, not too many buckets and devices."""
    query["fields"] = "bar,/temperature"
    # the shared group has more than 100 devices
    for name in ("every", "at_from", "at_to", "by"):
        query.pop(name, None)
    if "aggregate" in query:
        query["aggregate"] = "avg,max"


def create_stream():
    path = f"/devices/{quote(shared_id('id_device'), safe='')}/streams/"
    protocol = f"p{next(numbers)}"
    post(path, {"data": {}, "protocol": protocol})
    response = requests.get(f"{URL}{path}", params={"protocol": protocol}, headers=HEADERS, timeout=10)
    return response.json()["result"][0]["id_developer"]


def identifier(case, name):
    if name == "stream_id_developer":
        return create_stream()
    if case.path.endswith("/credentials/") and case.method == "POST":
        return create("devices")
    if case.method in ("PUT", "DELETE") and not case.path.startswith("/mqttdevices/"):
        return create(plural_of(name))
    if case.path.startswith("/assets/{") and name == "device_id_developer":
        return device_of_asset()
    return shared_id(name)


def prune(value, levels=4):
    """Removes levels that exceed the allowed nesting, and NUL."""
    if isinstance(value, dict):
        pruned = {prune(key): prune(inner, levels - 1) for key, inner in value.items()}
        return pruned if levels > 0 else None
    if isinstance(value, list):
        return [prune(inner, levels - 1) for inner in value] if levels > 0 else None
    return value.replace("\0", "") if isinstance(value, str) else value


def fit_device(body, case):
    """Sets what the description of a device states: one parent, a place or none, networking by its type."""
    for field in [field for field in ("id_group", "id_asset", "lon", "lat") if body.get(field, 0) is None]:
        del body[field]
    if case.method == "POST" and not ("id_group" in body or "id_asset" in body):
        body["id_group"] = shared_id("id_group")
    if "id_group" in body and "id_asset" in body:
        del body["id_asset"]
    if case.method == "PUT" or not ("lon" in body and "lat" in body):
        body.pop("lon", None)
        body.pop("lat", None)
    if "time_zone" in body:
        body["time_zone"] = "UTC"
    networking = body.get("networking")
    if isinstance(networking, dict):
        others = ["conn_address"] if networking.get("type") == "gprs" else ["sim_card", "telephone_number", "carrier"]
        for field in others:
            networking.pop(field, None)
        if "conn_address" in networking:
            networking["conn_address"] = "192.0.2.7"


def complete(body, case):
    """Sets values whose validity depends on the database, the clock or a calculation."""
    body.pop("id_assets", None)
    for field in [field for field in body if field.startswith("id_") and field != "id_customer"]:
        if isinstance(body[field], str):
            body[field] = shared_id(field)
        elif case.method == "PUT":
            del body[field]
    if isinstance(body.get("name"), str):
        is_topic = case.path.endswith("/topics/")
        body["name"] = f"n{next(numbers)}{'/' if is_topic else ' '}{body['name'].strip()}"[:50].strip()
        if case.method == "DELETE":
            post(f"/mqttdevices/{case.path_parameters['device_id_developer']}/topics/", body)
    if "password" in body:
        body["username"] = f"u{next(numbers)}"
    if "data" in body:
        body.pop("checksum", None)
        body["data"] = prune(body["data"])
        if "device" in body:
            body["device"] = shared_id("device_id_developer")
    if "properties" in body:
        body["properties"] = prune(body["properties"])
    if case.path.startswith("/devices/") and ("type" in body or case.method == "PUT"):
        fit_device(body, case)
    if case.method == "PUT":
        body.pop("version", None)
    if case.path.startswith("/external/"):
        body.clear()
        body["path"] = "."
    for field in [field for field in body if case.method == "DELETE" and field.endswith("_to")]:
        del body[field]
    if body.get("expires_at") is not None:
        body["expires_at"] = time.time() + 1000
