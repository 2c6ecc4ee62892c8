// Creates a device, sends streams, lists them, updates the device against a conflict, and deletes everything again.
//
//	DEVICE_PLATFORM_URL=http://127.0.0.1:3000 API_KEY=… go run greenhouse.go
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"time"
)

const conflict = 4005

var (
	baseURL = environment("DEVICE_PLATFORM_URL", "http://127.0.0.1:3000")
	apiKey  = os.Getenv("API_KEY")
	client  = http.Client{Timeout: 10 * time.Second}
)

type fields map[string]any

type object struct {
	Identifier  string `json:"id_developer"`
	Version     int    `json:"version"`
	Firmware    string `json:"firmware"`
	Description string `json:"description"`
}

type stream struct {
	At   float64         `json:"at"`
	Data json.RawMessage `json:"data"`
}

type list[T any] struct {
	Total  int `json:"total_documents"`
	Result []T `json:"result"`
}

// platformError is an answer other than success; Details names the wrong fields.
type platformError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Details json.RawMessage `json:"details"`
}

func (e *platformError) Error() string { return fmt.Sprintf("%d %s %s", e.Code, e.Message, e.Details) }

func environment(name, fallback string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return fallback
}

// send sends a request and decodes the body of the answer.
func send[T any](method, path string, body any) (answer T, err error) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return answer, err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequest(method, baseURL+path, content)
	if err != nil {
		return answer, err
	}
	request.Header.Set("service.apikey", apiKey)
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	if response.StatusCode >= 400 {
		failure := &platformError{}
		if err := json.NewDecoder(response.Body).Decode(failure); err != nil {
			return answer, err
		}
		return answer, failure
	}
	return answer, json.NewDecoder(response.Body).Decode(&answer)
}

// must ends the program if err is set.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func pathOf(kind, identifier string) string {
	return "/" + kind + "/" + url.PathEscape(identifier) + "/"
}

// ensure returns the identifier of the object with this name and parent, which is created if there is none.
func ensure(kind string, identity map[string]string, others fields) string {
	query, body := url.Values{}, fields{}
	for name, value := range identity {
		query.Set(name, value)
		body[name] = value
	}
	for name, value := range others {
		body[name] = value
	}
	path := "/" + kind + "/?" + query.Encode()
	found := must(send[list[object]]("GET", path, nil)).Result
	if len(found) == 0 {
		must(send[any]("POST", "/"+kind+"/", body))
		found = must(send[list[object]]("GET", path, nil)).Result
	}
	return found[0].Identifier
}

// update applies change to the object as it is now; if another program was faster, to what that program has stored.
func update(path string, current object, change func(object) fields) object {
	for {
		body := change(current)
		body["version"] = current.Version
		answer, err := send[struct{ Details object }]("PUT", path, body)
		var failure *platformError
		if !errors.As(err, &failure) || failure.Code != conflict {
			return must(answer, err).Details
		}
		fmt.Printf("conflict: version %d is out of date\n", current.Version)
		current = must(send[object]("GET", path, nil))
	}
}

func main() {
	project := ensure("projects", map[string]string{"name": "Greenhouse Go"}, fields{"id_customer": "example"})
	service := ensure("services", map[string]string{"name": "Climate Go", "id_project": project}, nil)
	group := ensure("groups", map[string]string{"name": "North Go", "id_service": service}, nil)
	device := ensure("devices", map[string]string{"name": "Bench 1", "id_group": group}, fields{"type": "thermometer"})
	path := pathOf("devices", device)
	fmt.Println("device", device)

	now := time.Now().Unix()
	must(send[any]("POST", path+"streams/", []fields{
		{"at": now - 60, "data": fields{"temperature": 21.5}},
		{"at": now, "data": fields{"temperature": 21.75}},
	}))
	must(send[any]("POST", path+"streams/", fields{"_t": "sta", "data": fields{"battery": 97}}))

	streams := must(send[list[stream]]("GET", path+"streams/?_t=str&sort=at&order=-1&max=10", nil))
	for _, entry := range streams.Result {
		fmt.Printf("stream %.0f %s\n", entry.At, entry.Data)
	}

	stale := must(send[object]("GET", path, nil))
	must(send[any]("PUT", path, fields{"description": "moved by somebody else", "version": stale.Version}))
	updated := update(path, stale, func(object) fields { return fields{"firmware": "1.1.0"} })
	fmt.Printf("version %d, firmware %s, %s\n", updated.Version, updated.Firmware, updated.Description)

	must(send[any]("DELETE", pathOf("projects", project), nil))
	fmt.Println("deleted")
}
