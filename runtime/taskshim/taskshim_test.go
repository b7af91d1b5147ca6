package taskshim

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	eventsapi "github.com/containerd/containerd/api/events"
	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/services/ttrpc/events/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runc/options"
	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/runtime/shim/wire"
)

func TestParseStart(t *testing.T) {
	encode := func(version int32, protocol, address string) string {
		b, err := proto.Marshal(&bootapi.BootstrapResult{Version: version, Protocol: protocol, Address: address})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, c := range []struct {
		out, address string
		version      int
	}{
		{encode(3, "ttrpc", "unix:///run/x"), "unix:///run/x", 3}, // as containerd 2.3 prints it
		{`{"version":3,"address":"unix:///run/x","protocol":"ttrpc"}`, "unix:///run/x", 3},
		{`{"version":2,"address":"unix:///run/x","protocol":"TTRPC"}` + "\n", "unix:///run/x", 2},
		{"unix:///run/x\n", "unix:///run/x", 2}, // as gVisor and Kata print it
	} {
		address, version, err := parseStart([]byte(c.out))
		if err != nil || address != c.address || version != c.version {
			t.Errorf("%q: %q, %d, %v", c.out, address, version, err)
		}
	}
	for _, bad := range []string{
		"", "started", "{", `{"version":4,"address":"unix:///x","protocol":"ttrpc"}`, `{"version":1,"address":"unix:///x","protocol":"ttrpc"}`,
		encode(3, "grpc", "unix:///x"), encode(3, "ttrpc", "vsock://3:1024"), encode(3, "ttrpc", "unix://x"),
		"unix:///" + strings.Repeat("x", 200), "unix://../x", "\x00/containerd-shim/x.sock",
	} {
		if address, version, err := parseStart([]byte(bad)); err == nil {
			t.Errorf("%.60q: %q, %d", bad, address, version)
		}
	}
}

func FuzzParseStart(f *testing.F) {
	f.Add([]byte("unix:///run/x"))
	f.Add([]byte(`{"version":2,"address":"unix:///run/x","protocol":"ttrpc"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		address, version, err := parseStart(b)
		if err != nil {
			return
		}
		if path, err := socketPath(address); err != nil || !filepath.IsAbs(path) || version < 2 || version > 3 {
			t.Errorf("%q, %d: %v", address, version, err)
		}
	})
}

// TestOptions checks the options of a containerd shim. containerd-shim-runc gets the OCI runtime. Any other shim gets the path of its
// configuration file.
func TestOptions(t *testing.T) {
	oci := wire.OCI{Path: "/usr/bin/crun", Root: "/run/x", Systemd: true}
	for program, kind := range map[string]string{"/opt/containerd-shim-kata-v2": "io.containerd.kata.v2.options", "/bin/containerd-shim-runsc-v1": "io.containerd.runsc.v1.options"} {
		any := New(Config{Program: program, ConfigFile: "/etc/its.toml", OCI: oci}).runtimeOptions()
		var o runtimeoptions.Options
		if err := proto.Unmarshal(any.Value, &o); err != nil || any.TypeUrl != "runtimeoptions.v1.Options" || o.TypeUrl != kind ||
			o.ConfigPath != "/etc/its.toml" {
			t.Errorf("%s: %v, %v", program, any, err)
		}
	}
	any := New(Config{Program: "/bin/containerd-shim-runc-v2", OCI: oci}).runtimeOptions()
	var o options.Options
	if err := proto.Unmarshal(any.Value, &o); err != nil || any.TypeUrl != "containerd.runc.v1.Options" || o.BinaryName != oci.Path ||
		o.Root != oci.Root || !o.SystemdCgroup {
		t.Errorf("runc: %v, %v", any, err)
	}
}

func TestFigures(t *testing.T) {
	encode := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	one := encode(&v1.Metrics{
		CPU:    &v1.CPUStat{Usage: &v1.CPUUsage{Total: 5e9}},
		Memory: &v1.MemoryStat{Usage: &v1.MemoryEntry{Usage: 100, Limit: 1<<63 - 4096}, Swap: &v1.MemoryEntry{Usage: 130}, TotalInactiveFile: 20, TotalRSS: 40, PgFault: 7, PgMajFault: 2},
		Pids:   &v1.PidsStat{Current: 3},
	})
	two := encode(&v2.Metrics{
		CPU:    &v2.CPUStat{UsageUsec: 5e6},
		Memory: &v2.MemoryStat{Usage: 100, UsageLimit: 1<<64 - 1, SwapUsage: 30, InactiveFile: 20, Anon: 40, Pgfault: 7, Pgmajfault: 2},
		Pids:   &v2.PidsStat{Current: 3},
	})
	want := cgroup.Figures{CPU: 5 * time.Second, Memory: 100, WorkingSet: 80, RSS: 40, Swap: 30, PageFaults: 7, MajorFault: 2, PIDs: 3}
	for kind, value := range map[string][]byte{"io.containerd.cgroups.v1.Metrics": one, "io.containerd.cgroups.v2.Metrics": two} {
		f, err := decodeFigures(kind, value)
		if f.At.IsZero() {
			t.Error(kind, "has no time")
		}
		f.At = time.Time{}
		if err != nil || f != want {
			t.Errorf("%s: %+v, %v", kind, f, err)
		}
		if _, err := decodeFigures(kind, []byte("\xff\xff")); err == nil {
			t.Errorf("%s: invalid metrics are accepted", kind)
		}
	}
	// A value that is out of range does not overflow.
	f, err := decodeFigures("io.containerd.cgroups.v2.Metrics", encode(&v2.Metrics{CPU: &v2.CPUStat{UsageUsec: 1 << 63}, Memory: &v2.MemoryStat{Usage: 1, InactiveFile: 2}}))
	if err != nil || f.CPU < 0 || f.WorkingSet != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := decodeFigures("other", nil); err == nil {
		t.Error("metrics of an unknown type are accepted")
	}
}

// TestEvents checks that an out-of-memory event stores the ID of its container. The number of stored IDs is at most maxOOM.
func TestEvents(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	e, err := ServeEvents(socket)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	c := ttrpc.NewClient(conn)
	t.Cleanup(func() { c.Close(); e.Close() })
	send := func(topic, id string) error {
		_, err := events.NewTTRPCEventsClient(c).Forward(context.Background(), &events.ForwardRequest{Envelope: &types.Envelope{
			Topic: topic, Namespace: Namespace, Event: encodeAny(&eventsapi.TaskOOM{ContainerID: id}),
		}})
		return err
	}
	for topic, id := range map[string]string{"/tasks/oom": "a", "/tasks/exit": "b"} {
		if err := send(topic, id); err != nil {
			t.Fatal(err)
		}
	}
	if e.OOM("b") || !e.OOM("a") || e.OOM("a") {
		t.Error("OOM must return true once for a, and false for b")
	}
	for i := range maxOOM + 10 {
		if err := send("/tasks/oom", strings.Repeat("x", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if len(e.oom) != maxOOM {
		t.Errorf("%d IDs are stored", len(e.oom))
	}
}

// TestKillByCommandLine checks that kill ends a process only if its command line contains the ID of the sandbox. A process with a command
// line of more than 64 KiB is not killed.
func TestKillByCommandLine(t *testing.T) {
	for more, killed := range map[string]bool{"the-id": true, "another": false, "the-id " + strings.Repeat("x", 100<<10): false} {
		cmd := exec.Command("sh", "-c", "echo; read x", more)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Read(make([]byte, 1)); err != nil { // waits until the shell was executed
			t.Fatal(err)
		}
		s := &Shim{c: Config{ID: "the-id", Logger: slog.New(slog.DiscardHandler)}, pid: cmd.Process.Pid}
		s.kill()
		_ = in.Close() // ends the process if it was not killed
		if err := cmd.Wait(); strings.Contains(fmt.Sprint(err), "killed") != killed {
			t.Errorf("%.20s: ended with %v", more, err)
		}
	}
}
