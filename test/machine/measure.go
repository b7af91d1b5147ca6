package machine

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// cpuFolder returns the folder of the machine's cgroup that counts CPU time.
func (m *Machine) cpuFolder() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return "/sys/fs/cgroup" + m.Cgroup
	}
	return "/sys/fs/cgroup/cpuacct" + m.Cgroup
}

// MeasuredCommand is like Command, but the method CPU includes the CPU time of the command and
// its child processes.
func (m *Machine) MeasuredCommand(name string, args ...string) *exec.Cmd {
	group := m.cpuFolder() + "/node"
	if err := os.MkdirAll(group, 0o755); err != nil {
		m.t.Fatal(err)
	}
	script := `echo $$ >"$0" && exec "$@"`
	return m.Command("sh", append([]string{"-c", script, group + "/cgroup.procs", name}, args...)...)
}

// CPU returns the CPU time, in user and kernel mode, that the measured commands, their child
// processes and the pods have used so far.
func (m *Machine) CPU() time.Duration {
	m.t.Helper()
	return m.cpuUsed(m.cpuFolder())
}

// PodCPU returns the part of CPU that processes have used in the cgroups of pods. This part includes
// the last steps of the OCI runtime before a container's program, and pods that are gone.
func (m *Machine) PodCPU() time.Duration {
	m.t.Helper()
	return m.cpuUsed(m.cpuFolder() + "/kubepods")
}

// cpuUsed returns the CPU time of a cgroup and of the cgroups below it, or 0 if there is no such cgroup.
func (m *Machine) cpuUsed(folder string) time.Duration {
	m.t.Helper()
	if b, err := os.ReadFile(folder + "/cpuacct.usage"); err == nil {
		ns, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			m.t.Fatal(err)
		}
		return time.Duration(ns)
	}
	b, err := os.ReadFile(folder + "/cpu.stat")
	if err != nil {
		return 0 // no measured process has run yet
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "usage_usec "); ok {
			us, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			if err != nil {
				m.t.Fatal(err)
			}
			return time.Duration(us) * time.Microsecond
		}
	}
	m.t.Fatal("cpu.stat has no usage_usec")
	return 0
}

// ContainerProcesses returns the command lines of the processes in pods, by PID.
func (m *Machine) ContainerProcesses() map[int]string {
	m.t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		m.t.Fatal(err)
	}
	found := map[int]string{}
	for _, d := range dirs {
		b, err := os.ReadFile(d + "/cgroup")
		if err != nil || !strings.Contains(string(b), m.Cgroup+"/kubepods") {
			continue
		}
		cmd, err := os.ReadFile(d + "/cmdline")
		if err != nil {
			continue // ended meanwhile
		}
		pid, _ := strconv.Atoi(filepath.Base(d))
		found[pid] = strings.ReplaceAll(strings.TrimRight(string(cmd), "\x00"), "\x00", " ")
	}
	return found
}

// Containers returns the number of containers that have a cgroup. Unlike a request to the agent,
// the call needs almost no CPU time.
func (m *Machine) Containers() int {
	found, err := filepath.Glob(m.cpuFolder() + "/kubepods/besteffort/pod*/*/cgroup.procs")
	if err != nil {
		m.t.Fatal(err)
	}
	return len(found)
}

// A Part contains the number of processes and the memory of a part of the node stack.
type Part struct {
	What  string // agent, shims or other
	Count int    // processes
	MiB   float64
}

// PSS returns the proportional set size of each part of the node stack. The node stack consists of
// all processes in the machine except the processes of containers.
func (m *Machine) PSS() []Part {
	m.t.Helper()
	parts := []Part{{What: "agent"}, {What: "shims"}, {What: "other"}}
	for pid, cmd := range m.Processes() {
		kib, err := rollup(pid, "Pss")
		if err != nil {
			continue // ended meanwhile
		}
		i := 2
		switch {
		case strings.Contains(cmd, "islet-shim"):
			i = 1
		case strings.HasPrefix(cmd, m.islet):
			i = 0
		}
		parts[i].Count++
		parts[i].MiB += float64(kib) / 1024
	}
	if parts[2].Count == 0 {
		parts = parts[:2]
	}
	return parts
}

// TotalPSS returns the proportional set size of the whole node stack in MiB.
func (m *Machine) TotalPSS() (sum float64) {
	for _, p := range m.PSS() {
		sum += p.MiB
	}
	return sum
}

// rollup returns a field of a process's memory mappings, all together, in KiB.
func rollup(pid int, field string) (kib int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strconv.ParseInt(strings.Fields(v)[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("process %d has no %s", pid, field)
}

// WrittenBytes returns the number of bytes that the agent, its shims and their ended child processes
// have written to block devices.
func (m *Machine) WrittenBytes() (sum int64) {
	m.t.Helper()
	for pid := range m.Processes() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
		if err != nil {
			continue // ended meanwhile
		}
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "write_bytes: "); ok {
				n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
				sum += n
			}
		}
	}
	return sum
}

// ChangedFiles returns the files on the disk that were changed at or after the given time, with their times and sizes.
func (m *Machine) ChangedFiles(since time.Time) (changed []string) {
	m.t.Helper()
	err := filepath.WalkDir(m.Disk, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil // removed meanwhile, or a directory
		}
		info, err := e.Info()
		if err == nil && !info.ModTime().Before(since) {
			changed = append(changed, fmt.Sprintf("%s %d bytes at %s",
				strings.TrimPrefix(path, m.Disk+"/"), info.Size(), info.ModTime().UTC().Format("15:04:05.000")))
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return changed
}
