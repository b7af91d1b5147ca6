package doctor

import (
	"context"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/podtest"
)

func TestRunDirs(t *testing.T) {
	host := fstest.MapFS{}
	process := func(pid, exe, line string) {
		host["proc/"+pid+"/exe"] = &fstest.MapFile{Data: []byte(exe), Mode: fs.ModeSymlink}
		host["proc/"+pid+"/cmdline"] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(line, " ", "\x00") + "\x00")}
	}
	process("7", "/usr/local/bin/islet", "islet doctor")
	process("10", "/usr/local/bin/islet", "/usr/local/bin/islet --pod-manifest-path=/m")
	process("11", "/usr/local/bin/islet (deleted)", "islet --run-dir=/run/two --v=2")
	process("12", "/usr/local/bin/islet", "islet agent --run_dir /run/three")
	process("13", "/usr/local/bin/islet", "islet logs -f web --run-dir=/run/no")
	process("14", "/usr/bin/sleep", "sleep --run-dir=/run/no")
	process("17", "/usr/local/bin/islet", "islet "+strings.Repeat("x ", 1<<20)+"--run-dir=/run/no")
	process("15", "/usr/local/bin/islet", "islet --run-dir=relative")
	host["proc/16/cmdline"] = &fstest.MapFile{}
	if got := RunDirs(host, 7, "/run/islet"); !slices.Equal(got, []string{"/run/islet", "/run/two", "/run/three"}) {
		t.Errorf("got %q", got)
	}
	if got := RunDirs(fstest.MapFS{}, 7, "/run/islet"); got != nil {
		t.Errorf("of no processes: %q", got)
	}
}

// TestBridges checks that the bridge of another agent on this host is not reported as a conflict.
func TestBridges(t *testing.T) {
	board := board()
	board["proc/net/route"] = &fstest.MapFile{Data: []byte("Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\nislet-demo0\t00002A0A\t00000000\t1\t0\t0\t0\t00FFFFFF\n")}
	for _, own := range [][]string{nil, {"islet-demo0"}} {
		p := &checkup{Input: input(board)}
		p.Bridges = own
		p.checkAddresses(t.Context())
		if clash := p.findings[0].Severity != OK; clash != (own == nil) {
			t.Errorf("bridges %q: %+v", own, p.findings)
		}
	}
}

func TestHostPorts(t *testing.T) {
	board := board() // a process listens on TCP port 22 of 127.0.0.1
	pod := podtest.New("web", podtest.Containers(v1.Container{Name: "c", Ports: []v1.ContainerPort{{HostPort: 22}}}))
	for _, c := range []struct {
		change func(*v1.Pod)
		want   Severity
	}{
		{func(*v1.Pod) {}, Warning},
		{func(p *v1.Pod) { p.Spec.HostNetwork = true }, OK}, // the pod itself listens on the port
		{func(p *v1.Pod) { p.Spec.Containers[0].Ports[0].HostPort = 23 }, OK},
	} {
		this := *pod.DeepCopy()
		c.change(&this)
		p := &checkup{Input: input(board)}
		p.Pods = func(context.Context) ([]v1.Pod, bool) { return []v1.Pod{this}, true }
		p.checkHostPorts(t.Context())
		if len(p.findings) != 1 || p.findings[0].Severity != c.want || p.findings[0].ID != "host-port" ||
			c.want == Warning && !strings.Contains(p.findings[0].What, "pod default/web: host port 22/TCP") {
			t.Errorf("%+v", p.findings)
		}
	}
}
