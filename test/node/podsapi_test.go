package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// podsAPI calls a method of the pods API without arguments. The first returned function returns the next message. The second returned
// function returns the gRPC status.
func podsAPI(t *testing.T, m *machine.Machine, method string) (next func() ([]byte, error), end func() string) {
	t.Helper()
	c := &http.Transport{
		Protocols: new(http.Protocols),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", m.Disk+"/kubelet/pods-api/pods-api.sock")
		},
	}
	c.Protocols.SetUnencryptedHTTP2(true)
	ctx, stop := context.WithTimeout(t.Context(), machine.WaitTimeout)
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://pods/v1alpha1.Pods/"+method, bytes.NewReader(make([]byte, 5)))
	if err != nil {
		t.Fatal(err)
	}
	q.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
	r, err := c.RoundTrip(q)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		r.Body.Close()
		c.CloseIdleConnections()
	})
	next = func() ([]byte, error) {
		var head [5]byte
		if _, err := io.ReadFull(r.Body, head[:]); err != nil {
			return nil, err
		}
		message := make([]byte, binary.BigEndian.Uint32(head[1:]))
		_, err := io.ReadFull(r.Body, message)
		return message, err
	}
	end = func() string { return r.Header.Get("Grpc-Status") + r.Trailer.Get("Grpc-Status") }
	return next, end
}

// listed returns the response of ListPods and its gRPC status.
func listed(t *testing.T, m *machine.Machine) (pods []byte, code string) {
	t.Helper()
	next, end := podsAPI(t, m, "ListPods")
	pods, err := next()
	if err != nil && err != io.EOF {
		t.Fatal(err)
	}
	if _, err := next(); err != io.EOF {
		t.Fatal(err)
	}
	return pods, end()
}

// TestPodsAPI checks that the socket of the pods API lists and watches pods. After the agent is killed, the socket must list the pods
// again.
func TestPodsAPI(t *testing.T) {
	t.Parallel()
	m := bootMachine(t)
	m.Write("manifests/a.yaml", manifest("a", "", "sleep"))
	m.StartAgent()
	m.WaitReady("a-edge")
	next, _ := podsAPI(t, m, "WatchPods")
	// An encoded WatchPodsEvent begins with the byte 8 and the type of the event. The encoded pod follows and contains the pod's name.
	const added, deleted, synced = 1, 3, 4
	event := func(kind byte, name string) {
		t.Helper()
		for {
			e, err := next()
			if err != nil {
				t.Fatal(err)
			}
			if bytes.HasPrefix(e, []byte{8, kind}) && bytes.Contains(e, []byte(name)) {
				return
			}
			if !bytes.HasPrefix(e, []byte{8, 2}) {
				t.Fatalf("event %q, not %d of %q", e, kind, name)
			}
		}
	}
	event(added, "a-edge")
	event(synced, "")
	m.Write("manifests/b.yaml", manifest("b", "", "sleep"))
	event(added, "b-edge")
	m.WaitReady("a-edge", "b-edge")
	m.Remove("manifests/b.yaml")
	event(deleted, "b-edge")
	if pods, code := listed(t, m); code != "0" || !bytes.Contains(pods, []byte("a-edge")) || bytes.Contains(pods, []byte("b-edge")) {
		t.Errorf("code %s, pods %q", code, pods)
	}

	m.Kill()
	a := m.StartAgent()
	var pods []byte
	var code string
	m.Await("the pods API to list the pod", func() bool {
		pods, code = listed(t, m)
		return code != "9" // FailedPrecondition
	})
	if code != "0" || !bytes.Contains(pods, []byte("a-edge")) {
		t.Errorf("after the agent was killed: code %s, pods %q", code, pods)
	}
	want := fmt.Sprintf("kubelet_pod_requests_list_total{server_api_version=%q,status_code=%q} 1\n", "v1alpha1", "OK")
	if page := get(t, a, "/metrics"); !strings.Contains(page, want) {
		t.Errorf("/metrics does not contain %q", want)
	}
}
