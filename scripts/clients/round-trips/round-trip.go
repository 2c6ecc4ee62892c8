// A round trip with the client that openapi-generator has generated for Go.
package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"os"

	openapi "github.com/GIT_USER_ID/GIT_REPO_ID"
)

const name = "openapi-generator go"

// must ends the program if err is set, with the body of the answer.
func must[T, R any](answer T, _ R, err error) T {
	if err != nil {
		var failure *openapi.GenericOpenAPIError
		if errors.As(err, &failure) {
			log.Fatal(err, string(failure.Body()))
		}
		log.Fatal(err)
	}
	return answer
}

func check(isTrue bool, what string, answer any) {
	if !isTrue {
		log.Fatalf("%s: %+v", what, answer)
	}
}

// problemOf returns the body of a refusal.
func problemOf(err error) openapi.Problem {
	var failure *openapi.GenericOpenAPIError
	if !errors.As(err, &failure) {
		log.Fatalf("not refused: %v", err)
	}
	problem, isProblem := failure.Model().(openapi.Problem)
	check(isProblem, "the model of the error", failure.Model())
	return problem
}

func main() {
	configuration := openapi.NewConfiguration()
	configuration.Servers[0].URL = os.Getenv("DEVICE_PLATFORM_URL")
	client := openapi.NewAPIClient(configuration)
	key := map[string]openapi.APIKey{"apikey": {Key: os.Getenv("API_KEY")}}
	ctx := context.WithValue(context.Background(), openapi.ContextAPIKeys, key)

	projectBody := *openapi.NewProjectCreate(name, "example")
	created := must(client.ProjectsAPI.CreateProject(ctx).ProjectCreate(projectBody).Execute())
	check(created.Code == 2001, "project", created)
	projects := must(client.ProjectsAPI.ListProjects(ctx).Name(name).Execute())
	check(projects.TotalDocuments == 1, "projects", projects)
	project := projects.Result[0].IdDeveloper
	serviceBody := *openapi.NewServiceCreate(name, project)
	must(client.ServicesAPI.CreateService(ctx).ServiceCreate(serviceBody).Execute())
	service := must(client.ServicesAPI.ListServices(ctx).Name(name).Execute()).Result[0].IdDeveloper
	groupBody := *openapi.NewGroupCreate(name, service)
	must(client.GroupsAPI.CreateGroup(ctx).GroupCreate(groupBody).Execute())
	group := must(client.GroupsAPI.ListGroups(ctx).Name(name).Execute()).Result[0].IdDeveloper
	deviceBody := openapi.NewDeviceCreate("thermometer", "Bench 1/2")
	deviceBody.SetIdGroup(group)
	deviceBody.SetProperties(map[string]any{"rows": 3})
	deviceBody.SetLon(-3.7)
	deviceBody.SetLat(40.4)
	must(client.DevicesAPI.CreateDevice(ctx).DeviceCreate(*deviceBody).Execute())
	devices := must(client.DevicesAPI.ListDevices(ctx).IdGroup(group).Execute())
	check(devices.TotalDocuments == 1, "devices", devices)
	device := devices.Result[0].IdDeveloper

	data := openapi.NewStreamCreate(map[string]any{"temperature": 21.5})
	data.SetAt(1700000000.25)
	status := openapi.NewStreamCreate(map[string]any{"battery": 97})
	status.SetT("sta")
	sent := []openapi.StreamCreate{*data, *status}
	must(client.StreamsAPI.CreateStreamsOfDevice(ctx, device).StreamCreate(sent).Execute())
	// not AtTo: this generator writes numbers of the query as float32, 1700000001 as 1.7e+09
	listing := client.StreamsAPI.ListStreamsOfDevice(ctx, device).T("str").Sort("at").Order(-1).Max(10)
	streams := must(listing.Execute())
	check(streams.TotalDocuments == 1, "streams", streams)
	check(streams.Result[0].Data["temperature"] == 21.5, "data", streams.Result[0])
	check(streams.Result[0].GetAt() == 1700000000.25, "at", streams.Result[0])

	content := []byte{0, 255, 104, 105}
	config := *openapi.NewDeviceConfigCreate("boot 1.cfg", "1.0", base64.StdEncoding.EncodeToString(content))
	uploaded := must(client.DeviceconfigsAPI.CreateDeviceConfig(ctx, device).DeviceConfigCreate(config).Execute())
	check(uploaded.Details.Size == int64(len(content)), "configuration file", uploaded)
	file := must(client.DeviceconfigsAPI.DownloadLatestDeviceConfig(ctx, device, "boot 1.cfg").Execute())
	downloaded, err := io.ReadAll(file)
	check(err == nil && bytes.Equal(downloaded, content), "download", downloaded)

	shown := must(client.DevicesAPI.GetDevice(ctx, device).Execute())
	check(shown.Status == "ok" && shown.GetLat() == 40.4 && shown.Version == 0, "device", shown)
	first := openapi.DeviceUpdate{}
	first.SetDescription("first")
	first.SetVersion(shown.Version)
	updated := must(client.DevicesAPI.UpdateDevice(ctx, device).DeviceUpdate(first).Execute())
	check(updated.Details.Version == 1, "updated", updated)
	second := first
	second.SetDescription("second")
	_, _, err = client.DevicesAPI.UpdateDevice(ctx, device).DeviceUpdate(second).Execute()
	conflict := problemOf(err)
	check(conflict.Code == 4005 && conflict.Details["version"] == 1.0, "conflict", conflict)

	deleted := must(client.ProjectsAPI.DeleteProject(ctx, project).Execute())
	check(deleted.Code == 2004, "deleted", deleted)
	_, _, err = client.DevicesAPI.GetDevice(ctx, device).Execute()
	check(problemOf(err).Code == 4041, "gone", err)
}
