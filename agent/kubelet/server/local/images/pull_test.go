package images_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/islet-edge/islet/agent/kubelet/server/servertest"
	"github.com/islet-edge/islet/internal/api"
)

func TestImport(t *testing.T) {
	n, _ := servertest.Start(t)
	// The response begins while the request's body is still being sent.
	r, w := io.Pipe()
	req, _ := http.NewRequest("POST", "http://islet"+api.PathImageImport+"?name=x.tar", r)
	resp, err := n.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	w.Write([]byte("localhost/x:1\n"))
	w.Close()
	data, _ := io.ReadAll(resp.Body)
	want := `{"ref":"x.tar","status":"unpacking","current":14,"total":14}` + "\n" + `{"done":true,"images":["localhost/x:1"]}` + "\n"
	if string(data) != want {
		t.Errorf("got %s", data)
	}
}
