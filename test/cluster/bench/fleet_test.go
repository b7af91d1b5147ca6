package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
	"github.com/islet-edge/islet/test/figures"
)

// TestFleet starts a thousand nodes, cuts their connection to this control plane and restores it. The nodes are real except for the
// runtime. They run in a test program of package edge/link, which is in another module. The program runs on the control plane's host.
func TestFleet(t *testing.T) {
	figures.SkipUnlessBench(t)
	c := cluster.Start(t)
	top, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "fleet")
	build := exec.Command("go", "test", "-c", "-o", program, "./edge/link")
	build.Dir, build.Env = strings.TrimSpace(string(top)), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the fleet: %v\n%s", err, out)
	}
	nodes := os.Getenv("ISLET_FLEET")
	if nodes == "" {
		nodes = "1000"
	}
	out, err := c.RunAsAdmin("ISLET_FLEET_KUBECONFIG", "ISLET_FLEET="+nodes, program, "-test.run=TestFleetOfAServer", "-test.v",
		"-test.timeout=30m")
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
