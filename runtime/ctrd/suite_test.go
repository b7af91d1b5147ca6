package ctrd_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/runtime/cri"
	"github.com/islet-edge/islet/runtime/crisuite"
	"github.com/islet-edge/islet/runtime/ctrd"
)

var (
	_ cri.Runtime  = (*ctrd.Runtime)(nil)
	_ cri.Events   = (*ctrd.Runtime)(nil)
	_ cri.Streamer = (*ctrd.Runtime)(nil)
)

func TestContract(t *testing.T) {
	n := newNode(t, 16)
	crisuite.Run(t, crisuite.Subject{Runtime: n, Kernel: true, CDI: n.cdi(), CgroupParent: n.cgroup})
}

// short returns the names of the tests that a subject runs. With ISLET_TEST_LONG a subject runs all tests, as TestContract always does.
func short(names ...string) []string {
	if os.Getenv("ISLET_TEST_LONG") != "" {
		return nil
	}
	return names
}

// TestContractUsers runs the contract tests. Their pods have a user namespace.
func TestContractUsers(t *testing.T) {
	n := newUsersNode(t, 16)
	crisuite.Run(t, crisuite.Subject{Runtime: n, Kernel: true, CDI: n.cdi(), CgroupParent: n.cgroup, Users: crisuite.UserNamespace(3 << 16),
		OnlyTests: short("ContainerLife", "Users", "Mounts", "ImageMounts", "Devices", "UserNamespaces",
			"NoUserNamespaces", "ReadonlyTrees", "ReadonlyRoot", "Security", "Privileged", "Namespaces", "SharedProcesses",
			"HostProcesses", "Files", "Exec")})
}

// TestContractOverSocket runs the contract tests through a CRI socket. Without ISLET_TEST_LONG it runs only the tests of sandboxes,
// filters, errors, events and streams.
func TestContractOverSocket(t *testing.T) {
	n := newNode(t, 16)
	socket := filepath.Join(n.run, "cri.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- cri.Serve(ctx, l, n, nil) }()
	c, err := cri.Dial("unix://" + socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	crisuite.Run(t, crisuite.Subject{Runtime: c, Kernel: true, CDI: n.cdi(), CgroupParent: n.cgroup,
		OnlyTests: short("Status", "SandboxLife", "SandboxFilter", "ContainerLife", "ContainerFilter", "Ambiguous", "NotFound", "WrongState",
			"Events", "UpdatePod", "Checkpoint", "Verbose", "Refused", "LogRotation", "Exec", "ExecTimeout", "Terminal", "Attach",
			"Forward", "Update", "Stats", "Metrics")})
}
