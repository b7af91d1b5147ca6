package top

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/islet-edge/islet/agent/cli/command"
	"github.com/islet-edge/islet/internal/api"
)

// TestTraffic checks that network rates are computed over the time between two measurements. There is no rate if only one measurement
// exists or if a counter was reset.
func TestTraffic(t *testing.T) {
	at := time.Unix(1000, 0)
	network := func(after time.Duration, in, out uint64) *stats.NetworkStats {
		return &stats.NetworkStats{Time: metav1.NewTime(at.Add(after)), InterfaceStats: stats.InterfaceStats{RxBytes: &in, TxBytes: &out}}
	}
	links := func(after time.Duration, in map[string]uint64) *stats.NetworkStats {
		out := uint64(0)
		n := network(after, in["eth0"], out)
		for _, name := range []string{"eth0", "islet0", "wlan0", "wwan0"} {
			if in, ok := in[name]; ok {
				n.Interfaces = append(n.Interfaces, stats.InterfaceStats{Name: name, RxBytes: &in, TxBytes: &out})
			}
		}
		return n
	}
	c := &topCommand{output: "wide"}
	sum := &stats.Summary{Pods: []stats.PodStats{{PodRef: stats.PodReference{UID: "a"}, Network: network(0, 1000, 500)}}}
	sum.Node.Network = links(0, map[string]uint64{"eth0": 7, "islet0": 0, "wlan0": 500})
	if !c.storeCounters(sum) || (&topCommand{output: "json"}).storeCounters(sum) {
		t.Error("rates does not request a second measurement only when it is needed")
	}
	for _, x := range []struct {
		uid  string
		n    *stats.NetworkStats
		want []string
	}{
		{"a", network(2*time.Second, 1000+4096, 700), []string{"2.0KiB", "100B"}},
		{"a", network(0, 1000, 500), []string{"-", "-"}}, {"a", network(time.Second, 1, 500), []string{"-", "-"}}, {"b", network(time.Second, 1, 1), []string{"-", "-"}}, {"a", nil, []string{"-", "-"}},
	} {
		if got := c.podTraffic(&stats.PodStats{PodRef: stats.PodReference{UID: x.uid}, Network: x.n}); !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, want %q", x.uid, got, x.want)
		}
	}
	hardware := []string{"eth0", "wlan0", "wwan0"}
	for _, x := range []struct {
		what  string
		n     *stats.NetworkStats
		links []string
		want  []string
	}{
		{"eth0 is unplugged", links(2*time.Second, map[string]uint64{"eth0": 7, "islet0": 9000, "wlan0": 500 + 2048}), hardware, []string{"1.0KiB", "0B"}},
		{"two at once", links(time.Second, map[string]uint64{"eth0": 7 + 1024, "wlan0": 500 + 1024}), hardware, []string{"2.0KiB", "0B"}},
		{"a modem that is new", links(time.Second, map[string]uint64{"eth0": 7 + 10, "wlan0": 500, "wwan0": 7000}), hardware, []string{"10B", "0B"}},
		{"none", links(time.Second, nil), hardware, []string{"-", "-"}}, {"none leads out", links(time.Second, map[string]uint64{"eth0": 8}), nil, []string{"-", "-"}}, {"not measured", nil, hardware, []string{"-", "-"}},
	} {
		if got := c.nodeTraffic(x.n, x.links); !slices.Equal(got, x.want) {
			t.Errorf("%s: %q, want %q", x.what, got, x.want)
		}
	}
	c.rememberLinks(links(time.Second, map[string]uint64{"wwan0": 7000}))
	if got := c.nodeTraffic(links(2*time.Second, map[string]uint64{"wwan0": 8024}), hardware); !slices.Equal(got, []string{"1.0KiB", "0B"}) {
		t.Errorf("the next time: %q", got)
	}
}

func TestBoardLines(t *testing.T) {
	got := boardLines(api.Board{Temperatures: []api.Temperature{{Name: "cpu-thermal", Celsius: 61.234}}, Power: []string{"under-voltage"}, PowerSinceBoot: []string{"under-voltage", "throttled"}, MHz: 600, MaxMHz: 1800})
	want := []string{"temperature: cpu-thermal 61.2°C", "frequency:   600 MHz of 1800", "power:       under-voltage now", "since boot:  under-voltage, throttled"}
	if !slices.Equal(got, want) || len(boardLines(api.Board{})) != 0 {
		t.Errorf("%q", got)
	}
}

// TestTopWide checks the columns of islet top -o wide. Pods have all columns. Containers have no network traffic, because the containers of
// a pod share the network.
func TestTopWide(t *testing.T) {
	n := func(v uint64) *stats.FsStats { return &stats.FsStats{UsedBytes: &v} }
	psi := func(v float64) *stats.PSIStats { return &stats.PSIStats{Some: stats.PSIData{Avg10: v, Avg60: 99}} }
	pods := []stats.PodStats{{PodRef: stats.PodReference{Name: "web", UID: "u"}, EphemeralStorage: n(4096), CPU: &stats.CPUStats{PSI: psi(12.3)}, Memory: &stats.MemoryStats{PSI: psi(0)}, IO: &stats.IOStats{PSI: psi(99.7)},
		Containers: []stats.ContainerStats{{Name: "b", Rootfs: n(1 << 20), Logs: n(2 << 20), CPU: &stats.CPUStats{PSI: psi(7)}, Memory: &stats.MemoryStats{}}, {Name: "a", Logs: n(512), IO: &stats.IOStats{PSI: psi(3)}}, {Name: "c"}}}}
	for _, x := range []struct {
		containers bool
		want       []string
	}{
		{true, []string{
			"NAME CONTAINER CPU(cores) MEMORY(bytes) DISK READ/s WRITE/s CPU WAIT MEM WAIT IO WAIT",
			"web a - - 512B 1.0KiB 0B - - 3%", "web b - - 3.0MiB - - 7% - -", "web c - - - - - - - -"}},
		{false, []string{"NAME CPU(cores) MEMORY(bytes) DISK READ/s WRITE/s IN/s OUT/s CPU WAIT MEM WAIT IO WAIT", "web - - 4.0KiB 2.0KiB 50B - - 12% 0% 100%"}},
	} {
		var out strings.Builder
		at := time.Unix(1000, 0)
		c := &topCommand{Tool: &command.Tool{Out: &out}, containers: x.containers, output: "wide",
			lastDisks: map[string]traffic{"u/": {at, 1000, 500}, "u/a": {at, 7, 8}, "u/b": {at, 9, 0}},
			disks:     map[string]traffic{"u/": {at.Add(2 * time.Second), 1000 + 4096, 600}, "u/a": {at.Add(time.Second), 7 + 1024, 8}, "u/b": {at.Add(time.Second), 1, 0}, "u/c": {at, 1, 1}}}
		c.addPodRows(pods)
		if c.lastDisks["u/a"].inBytes != 7+1024 {
			t.Errorf("the next time is since %v", c.lastDisks)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
		if !slices.Equal(got, x.want) {
			t.Errorf("containers %v: %q", x.containers, got)
		}
	}
}

// TestTopDisks checks that only the wide output requests disk I/O. The rates are computed over the time between two responses. The columns
// are empty if the agent does not support the request.
func TestTopDisks(t *testing.T) {
	for _, x := range []struct {
		output string
		has    bool
		want   string
		asked  int
	}{{"wide", true, "web 0m 0Mi - 2.0KiB 10B - - - - -", 2}, {"wide", false, "web 0m 0Mi - - - - - - - -", 0}, {"", true, "web 0m 0Mi", 0}} {
		ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		asked := 0
		answers := http.NewServeMux()
		answers.HandleFunc(api.PathStats, func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, `{"pods": [{"podRef": {"name": "web", "namespace": "default", "uid": "u"}, "cpu": {"usageNanoCores": 0, "usageCoreNanoSeconds": 0}, "memory": {"workingSetBytes": 0}}]}`)
		})
		if x.has {
			answers.HandleFunc(api.PathIO, func(w http.ResponseWriter, _ *http.Request) {
				asked++
				json.NewEncoder(w).Encode([]api.DiskIO{{UID: "u", At: time.Unix(int64(asked), 0), Read: uint64(asked) * 2048, Written: uint64(asked) * 10}})
			})
		}
		server := http.Server{Handler: answers}
		go server.Serve(ln)
		defer server.Close()
		var out strings.Builder
		c := &topCommand{Tool: &command.Tool{Out: &out, Socket: ln.Addr().String()}, output: x.output, noHeaders: true}
		err = c.printOnce(t.Context(), false, nil)
		if err != nil || strings.Join(strings.Fields(out.String()), " ") != x.want || asked != x.asked {
			t.Errorf("%q, counted %v: %v, %d requests: %q, want %q", x.output, x.has, err, asked, out.String(), x.want)
		}
	}
}
