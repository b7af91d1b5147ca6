package machine

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Pause is the reference of the image for containerd's sandboxes.
const Pause = "localhost/pause:test"

// Endpoint is the CRI socket of a Containerd.
const Endpoint = "unix:///run/containerd/containerd.sock"

// A Containerd is a distribution's containerd that runs inside a machine, with the machine's own
// images, cgroups and sockets. The CNI plugins of this containerd are links to islet, which
// contains the plugins. So the tests need no package of CNI plugins.
type Containerd struct {
	m       *Machine
	dir     string // the directory of the programs
	process *Process
}

// EachContainerd runs a test with every containerd in the folder $ISLET_CONTAINERD, which
// test/remote/programs.sh creates.
func EachContainerd(t *testing.T, test func(t *testing.T, dir string)) {
	root := os.Getenv("ISLET_CONTAINERD")
	found, err := filepath.Glob(filepath.Join(root, "*", "containerd"))
	if err != nil {
		t.Fatal(err)
	}
	if root == "" {
		t.Skip("make test-remote installs the runtimes and runs this test")
	}
	if len(found) == 0 {
		t.Fatalf("no containerd in %s", root)
	}
	for _, program := range found {
		dir := filepath.Dir(program)
		t.Run(filepath.Base(dir), func(t *testing.T) { test(t, dir) })
	}
}

// NewContainerd writes the configuration of a containerd whose programs are in dir.
func (m *Machine) NewContainerd(dir string) *Containerd {
	m.t.Helper()
	c := &Containerd{m: m, dir: dir}
	d := m.Disk
	plugins := filepath.Join(d, "cni-bin")
	for _, p := range []string{plugins, filepath.Join(d, "cni-conf")} {
		if err := os.MkdirAll(p, 0o755); err != nil {
			m.t.Fatal(err)
		}
	}
	for _, name := range []string{"bridge", "host-local", "loopback", "portmap"} {
		if err := os.Symlink(m.islet, filepath.Join(plugins, name)); err != nil && !os.IsExist(err) {
			m.t.Fatal(err)
		}
	}
	m.Write("cni-conf/10-test.conflist", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"test","plugins":[
		{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,
		"ipam":{"type":"host-local","ranges":[[{"subnet":"10.77.0.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}],"dataDir":"%s/cni-data"}},
		{"type":"portmap","capabilities":{"portMappings":true}}]}`, d))
	m.Write("containerd.toml", fmt.Sprintf(`version = 2
root = "%[1]s/containerd"
state = "/run/containerd"
[grpc]
address = %[2]q
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %[3]q
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "%[1]s/cni-bin"
conf_dir = "%[1]s/cni-conf"
`, d, strings.TrimPrefix(Endpoint, "unix://"), Pause))
	return c
}

// Start starts containerd, and waits until it responds.
func (c *Containerd) Start() {
	c.m.t.Helper()
	log, err := os.OpenFile(filepath.Join(c.m.Disk, "containerd.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		c.m.t.Fatal(err)
	}
	defer log.Close()
	cmd := c.m.Command(filepath.Join(c.dir, "containerd"), "--config", filepath.Join(c.m.Disk, "containerd.toml"))
	cmd.Env = append(os.Environ(), "PATH="+c.dir+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = log, log
	if c.process, err = StartProcess(cmd); err != nil {
		c.m.t.Fatal(err)
	}
	c.m.await("containerd to respond", c.process, func() bool { return c.ctr("version").Run() == nil })
}

func (c *Containerd) ctr(args ...string) *exec.Cmd {
	return c.m.Command(filepath.Join(c.dir, "ctr"), append([]string{"--address", strings.TrimPrefix(Endpoint, "unix://"), "-n",
		"k8s.io"}, args...)...)
}

// Import imports the images that tests use: podtool's image and the pause image.
func (c *Containerd) Import() {
	c.m.t.Helper()
	for _, archive := range []string{Archive(c.m.t), PauseArchive(c.m.t, c.m.Disk)} {
		if out, err := c.ctr("images", "import", archive).CombinedOutput(); err != nil {
			c.m.t.Fatalf("import %s: %v\n%s", archive, err, out)
		}
	}
}

// PauseArchive writes an archive of the image Pause into dir and returns its path. The image contains podtool as the program pause. If
// podtool is called by this name, it waits for a signal.
func PauseArchive(t testing.TB, dir string) string {
	t.Helper()
	tool, err := os.ReadFile(filepath.Join(filepath.Dir(Archive(t)), "podtool"))
	if err != nil {
		t.Fatal(err)
	}
	program, out := filepath.Join(dir, "pause"), filepath.Join(dir, "pause.tar")
	if err := WriteProgram(program, tool); err != nil {
		t.Fatal(err)
	}
	Pack(t, Pause, out, program)
	return out
}

// Kill ends containerd with SIGKILL. Its containers continue to run.
func (c *Containerd) Kill() { c.end(syscall.SIGKILL) }

// Stop ends containerd with SIGTERM. Its containers continue to run.
func (c *Containerd) Stop() { c.end(syscall.SIGTERM) }

func (c *Containerd) end(s syscall.Signal) {
	c.m.t.Helper()
	if err := syscall.Kill(c.process.Pid, s); err != nil {
		c.m.t.Fatal(err)
	}
	select {
	case <-c.process.Ended:
	case <-time.After(WaitTimeout):
		c.m.t.Fatal("containerd has not ended")
	}
}
