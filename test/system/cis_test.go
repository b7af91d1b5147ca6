package system

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cis"
	"github.com/islet-edge/islet/test/machine"
)

// runBenchmark checks the node of a systemd unit with the worker section of the CIS benchmark. A pod must run.
func runBenchmark(t *testing.T, s *System, unit string) {
	t.Helper()
	n := &cis.Node{Root: s.At(""), Units: []string{strings.TrimSpace(s.Run("systemctl show -P FragmentPath " + unit))}}
	n.Args = strings.Fields(s.Run("tr '\\0' ' ' </proc/$(systemctl show -P MainPID " + unit + ")/cmdline"))[1:]
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		comm, _ := os.ReadFile(p + "/comm") // empty if the process has exited
		cgroup, _ := os.ReadFile(p + "/cgroup")
		if pid, err := strconv.Atoi(filepath.Base(p)); err == nil && string(comm) == "podtool\n" &&
			strings.Contains(string(cgroup), s.cgroup()+"/") {
			n.PodPids = cis.PidsLimit(t, pid, "/"+s.cgroup())
		}
	}
	n.Inspect(t, s.At("/run/islet/islet.sock"), func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = machine.InNetwork(s.Pid(), func() (err error) {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, err
	})
	n.CheckAll(t)
}
