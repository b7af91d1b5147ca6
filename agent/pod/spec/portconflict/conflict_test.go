package portconflict

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/podtest"
)

const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func pod(ip string, port int32, protocol v1.Protocol) *v1.Pod {
	ports := []v1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostIP: ip, HostPort: port, Protocol: protocol}}
	return podtest.New("web", podtest.Containers(v1.Container{Name: "other"}, v1.Container{Name: "c", Ports: ports}))
}

func TestTaken(t *testing.T) {
	host := fstest.MapFS{
		"proc/net/tcp": {Data: []byte(header +
			"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n" + // 127.0.0.1:8080
			"   1: 00000000:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n" + // 0.0.0.0:22
			"   2: 0200000A:2328 0100000A:C350 01 00000000:00000000 00:00000000 00000000     0        0 1 1\n" + // a connection
			"nonsense\n   3: XX:YY 00:00 0A\n   4: 00:16 x 0A\n")},
		"proc/net/tcp6": {Data: []byte(header + "   0: 00000000000000000000000000000000:0050 0:0 0A 0\n   1: 0000000000000000FFFF00000100000A:0051 0:0 0A 0\n")}, // [::]:80, 10.0.0.1:81
		"proc/net/udp":  {Data: []byte(header + "   0: 00000000:0035 00000000:0000 07 0\n")},
	}
	sockets, err := ListSockets(host)
	if err != nil || len(sockets) != 5 {
		t.Fatalf("%v, %v", sockets, err)
	}
	for _, c := range []struct {
		pod  *v1.Pod
		want string
	}{
		{pod("", 8080, ""), "host port 8080/TCP of container c is taken: a program of the host listens at 127.0.0.1:8080"},
		{pod("127.0.0.1", 8080, "TCP"), "127.0.0.1:8080"},
		{pod("192.0.2.1", 8080, "TCP"), ""},
		{pod("192.0.2.1", 22, "TCP"), "0.0.0.0:22"},
		{pod("", 9000, "TCP"), ""}, // the port belongs to a connection, not to a listener
		{pod("", 80, "TCP"), "[::]:80"},
		{pod("10.0.0.1", 81, "TCP"), "10.0.0.1:81"},
		{pod("", 53, "TCP"), ""},
		{pod("", 53, "UDP"), "host port 53/UDP"},
		{pod("", 0, "TCP"), ""},
	} {
		got := strings.Join(FindConflicts(c.pod, sockets), "; ")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.pod.Spec.Containers[1].Ports[1], got, c.want)
		}
	}
	early := pod("", 8080, "TCP")
	early.Spec.InitContainers, early.Spec.Containers = early.Spec.Containers, early.Spec.InitContainers
	if got := FindConflicts(early, sockets); got != nil || IsChecked(early) {
		t.Errorf("the host port of an init container is not open: %q", got)
	}
	if got := FindConflicts(&v1.Pod{}, sockets); got != nil {
		t.Error(got)
	}
}

// TestThisHost checks that the sockets of this host can be read from the kernel's tables.
func TestThisHost(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	sockets, err := ListSockets(os.DirFS("/"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*v1.Pod{pod("", int32(tcp.Addr().(*net.TCPAddr).Port), "TCP"), pod("", int32(udp.LocalAddr().(*net.UDPAddr).Port), "UDP")} {
		if len(FindConflicts(p, sockets)) != 1 {
			t.Errorf("%+v is not seen", p.Spec.Containers[1].Ports[1])
		}
	}
}

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "portconflict")) }

// A countingFS counts the opened files.
type countingFS struct {
	fs.FS
	opened int
}

func (c *countingFS) Open(name string) (fs.File, error) {
	c.opened++
	return c.FS.Open(name)
}

func TestHook(t *testing.T) {
	host := &countingFS{FS: fstest.MapFS{"proc/net/tcp": {Data: []byte(header + "   0: 00000000:1F90 00000000:0000 0A 0\n")}}}
	var told []string
	record := func(e eventtest.Event) { told = append(told, e.Type+" "+e.Reason+" "+e.Message) }
	h := Hook{Host: host, Events: eventtest.Sink(record), Log: slog.New(slog.DiscardHandler)}
	if err := h.Sandbox(t.Context(), pod("", 0, ""), nil); err != nil || host.opened != 0 {
		t.Errorf("a pod without host ports costs %d files, %v", host.opened, err)
	}
	if err := h.Sandbox(t.Context(), pod("", 8080, ""), nil); err != nil || len(told) != 1 ||
		!strings.HasPrefix(told[0], "Warning HostPortConflict host port 8080/TCP") {
		t.Errorf("%v, %q", err, told)
	}
	own := pod("", 8080, "")
	own.Spec.HostNetwork = true
	if err := h.Sandbox(t.Context(), own, nil); err != nil || len(told) != 1 {
		t.Errorf("a pod in the host's network, which listens at the port itself: %v, %q", err, told)
	}
	h.Host = brokenFS{}
	if err := h.Sandbox(t.Context(), pod("", 8080, ""), nil); err != nil || len(told) != 1 {
		t.Errorf("unreadable tables: %v, %q", err, told)
	}
}

type brokenFS struct{}

func (brokenFS) Open(string) (fs.File, error) { return brokenFile{}, nil }

type brokenFile struct{ fs.File }

func (brokenFile) Read([]byte) (int, error) { return 0, errors.New("input/output error") }
func (brokenFile) Close() error             { return nil }

func FuzzParse(f *testing.F) {
	f.Add(header + "   0: 0100007F:1F90 00000000:0000 0A 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		found, _ := parseTable(strings.NewReader(text), tcpListen)
		for _, a := range found {
			if !a.IsValid() || a.Port() == 0 {
				t.Error(fmt.Sprint(a))
			}
		}
	})
}
