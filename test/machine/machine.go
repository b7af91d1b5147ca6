// Package machine provides a simulated machine for a test: PID, mount, network, UTS and IPC
// namespaces with an init, a tmpfs as /run, and a disk. The disk is a folder that stays when the
// machine is off. A power cut kills all processes at once, and removes the mounts and network
// namespaces, as on hardware.
//
//	New --> Boot --> StartAgent, Islet ... --> PowerOff --> Boot ...
//
// PowerOff removes the cgroups, which are not part of a namespace.
package machine

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// A Machine is a simulated machine. It is not safe for concurrent use.
type Machine struct {
	Disk   string // the directory whose files stay when the machine is off
	Name   string // host name
	Cgroup string // the root of its pods' cgroups in every hierarchy

	MeasureCPU bool // whether the method CPU includes the agent's CPU time
	OddUmask   int  // if OddUmask is not zero, the agent inherits this umask and other unusual process state

	Env []string // additional environment variables of the agent and of commands

	// OnBoot is called at the end of every Boot with the PID of the machine's init, for example to
	// connect a cable.
	OnBoot func(pid int) error

	t     testing.TB
	islet string // the binary under test
	host  *Host
	born  map[string]string // the mounts at the end of the last boot, by ID
	agent *Agent

	mu  sync.Mutex
	ran map[string]bool // the containers that Pods has returned, by ID; true if the power was cut since then
}

// New returns a machine that is off. The binary under test is $ISLET_BIN. If this variable is not
// set, it is bin/islet of this checkout. The machine is turned off when the test ends.
func New(t testing.TB, name string) *Machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("machines need root")
	}
	bin := os.Getenv("ISLET_BIN")
	if bin == "" {
		bin = filepath.Join(Root(t), "bin/islet")
	}
	if _, err := os.Stat(bin); err != nil {
		t.Fatalf("no binary to test: %v (make build)", err)
	}
	disk, err := os.MkdirTemp("", "islet-")
	if err != nil {
		t.Fatal(err)
	}
	m := &Machine{Disk: disk, Name: name, Cgroup: "/" + filepath.Base(disk), t: t, islet: bin, ran: map[string]bool{}}
	t.Cleanup(func() {
		m.PowerOff()
		if t.Failed() {
			t.Logf("end of the agent's log:\n%s", m.AgentLog(8<<10))
		}
		if err := os.RemoveAll(disk); err != nil {
			t.Errorf("remove the machine's disk: %v", err)
		}
	})
	return m
}

// In returns the running machine for a subtest. Failures then count for the subtest. Several subtests may use the machine at the
// same time, if none of them boots it or starts or ends its agent.
func (m *Machine) In(t testing.TB) *Machine {
	return &Machine{Disk: m.Disk, Name: m.Name, Cgroup: m.Cgroup, Env: m.Env, t: t, islet: m.islet, host: m.host, born: m.born,
		agent: m.agent, ran: map[string]bool{}}
}

// Binary returns the path of the binary under test.
func (m *Machine) Binary() string { return m.islet }

// OwnProgram gives the machine its own copy of the binary, which the agent may replace. Call it
// before the agent is started.
func (m *Machine) OwnProgram() {
	m.t.Helper()
	b, err := os.ReadFile(m.islet)
	if err != nil {
		m.t.Fatal(err)
	}
	dir := filepath.Join(m.Disk, "bin")
	if err := errors.Join(os.Mkdir(dir, 0o755), WriteProgram(filepath.Join(dir, "islet"), b)); err != nil {
		m.t.Fatal(err)
	}
	m.islet = filepath.Join(dir, "islet")
}

// Root returns the root directory of the checkout.
func Root(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err == nil {
		return strings.TrimSpace(string(out))
	}
	dir, err := os.Getwd()
	for err == nil && dir != "/" {
		if _, e := os.Stat(filepath.Join(dir, "layers_test.go")); e == nil {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	t.Fatal("not inside a checkout of islet")
	return ""
}

// Boot turns the machine on and waits until its init is ready.
func (m *Machine) Boot() {
	m.t.Helper()
	host, err := BootHost(m.Name)
	if err != nil {
		m.t.Fatal(err)
	}
	m.host = host
	m.born = m.mountInfo()
	if m.OnBoot == nil {
		return
	}
	if err := m.OnBoot(host.Pid()); err != nil {
		m.t.Fatalf("boot: %v", err)
	}
}

// PowerOff kills all processes in the machine at once. It has no effect on a machine that is off.
func (m *Machine) PowerOff() {
	m.t.Helper()
	if m.host == nil {
		return
	}
	if err := m.host.Halt(); err != nil {
		m.t.Errorf("power off: %v", err)
	}
	m.host = nil
	m.mu.Lock()
	for id := range m.ran {
		m.ran[id] = true
	}
	m.mu.Unlock()
	if m.agent != nil {
		<-m.agent.Ended
		m.agent = nil
	}
	m.removeCgroups()
}

// Command returns a command that runs inside the machine.
func (m *Machine) Command(name string, args ...string) *exec.Cmd {
	cmd := m.host.Command(name, args...)
	cmd.Env = append(os.Environ(), m.Env...)
	return cmd
}

// Run runs a command inside the machine and returns its output.
func (m *Machine) Run(name string, args ...string) string {
	m.t.Helper()
	out, err := m.Command(name, args...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (m *Machine) removeCgroups() {
	mounts, err := filepath.Glob("/sys/fs/cgroup/*" + m.Cgroup)
	if err != nil {
		m.t.Error(err)
	}
	for _, top := range append(mounts, "/sys/fs/cgroup"+m.Cgroup) {
		var dirs []string
		filepath.WalkDir(top, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, p)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			if err := syscall.Rmdir(dirs[i]); err != nil {
				m.t.Errorf("remove cgroup %s: %v", dirs[i], err)
			}
		}
	}
}

// OwnDirs mounts an overlay over directories of the file system. Files that the machine writes to these directories are not visible
// outside the machine, and are lost when the machine is turned off.
func (m *Machine) OwnDirs(dirs ...string) {
	m.t.Helper()
	for _, dir := range dirs {
		layer := "/run/layers" + dir
		m.Run("mkdir", "-p", layer+"/upper", layer+"/work")
		m.Run("mount", "-t", "overlay", "overlay", "-o", "lowerdir="+dir+",upperdir="+layer+"/upper,workdir="+layer+"/work", dir)
	}
}

// Write writes a file on the disk atomically.
func (m *Machine) Write(path, content string) {
	m.t.Helper()
	full := filepath.Join(m.Disk, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		m.t.Fatal(err)
	}
	tmp := filepath.Join(filepath.Dir(full), "."+filepath.Base(full))
	if err := os.WriteFile(tmp, []byte(content), 0o644); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(tmp, full); err != nil {
		m.t.Fatal(err)
	}
}

// Edit replaces the content of a file on the disk. The file must exist.
func (m *Machine) Edit(path string, edit func(content string) string) {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.Disk, path))
	if err != nil {
		m.t.Fatal(err)
	}
	m.Write(path, edit(string(b)))
}

// Remove removes a file from the disk.
func (m *Machine) Remove(path string) {
	m.t.Helper()
	if err := os.Remove(filepath.Join(m.Disk, path)); err != nil {
		m.t.Fatal(err)
	}
}

// AgentLog returns the end of the agent's log. The log contains all starts of the agent.
func (m *Machine) AgentLog(most int) string {
	b, err := os.ReadFile(filepath.Join(m.Disk, "agent.log"))
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(b[max(0, len(b)-most):])
}
