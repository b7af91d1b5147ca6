package machine

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Processes returns the command lines of the agent and its shims. These are the processes in the
// machine's own PID namespace except init. The keys are PIDs in this process's namespace.
// Containers are not included, because they have their own PID namespaces.
func (m *Machine) Processes() map[int]string {
	m.t.Helper()
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", m.host.Pid()))
	if err != nil {
		m.t.Fatal(err)
	}
	found := map[int]string{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		m.t.Fatal(err)
	}
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		if ns, err := os.Readlink(d + "/ns/pid"); err != nil || ns != own || pid == m.host.Pid() {
			continue
		}
		if b, err := os.ReadFile(d + "/cmdline"); err == nil && len(b) > 0 {
			found[pid] = strings.ReplaceAll(strings.TrimRight(string(b), "\x00"), "\x00", " ")
		}
	}
	return found
}

// Mounts lists the mount points below the machine's disk and /run that were created since the
// machine was turned on. Earlier mounts are inherited from the test host, for example mounts of
// another node's pods.
func (m *Machine) Mounts() []string {
	m.t.Helper()
	var found []string
	for id, p := range m.mountInfo() {
		if m.born[id] != p && (strings.HasPrefix(p, m.Disk+"/") || strings.HasPrefix(p, "/run/")) {
			found = append(found, p)
		}
	}
	slices.Sort(found)
	return found
}

// mountInfo maps the ID of each mount in the machine to its mount point: proc_pid_mountinfo(5).
func (m *Machine) mountInfo() map[string]string {
	m.t.Helper()
	f, err := os.Open(fmt.Sprintf("/proc/%d/mountinfo", m.host.Pid()))
	if err != nil {
		m.t.Fatal(err)
	}
	defer f.Close()
	found := map[string]string{}
	s := bufio.NewScanner(f)
	for s.Scan() {
		fields := strings.Fields(s.Text())
		found[fields[0]] = fields[4]
	}
	if err := s.Err(); err != nil {
		m.t.Fatal(err)
	}
	return found
}

// Links lists the network interfaces of the machine except loopback.
func (m *Machine) Links() []string {
	m.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", m.host.Pid()))
	if err != nil {
		m.t.Fatal(err)
	}
	var found []string
	for _, line := range strings.Split(string(b), "\n")[2:] {
		if name, _, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name != "lo" && !slices.Contains(tunnels, name) {
			found = append(found, name)
		}
	}
	return found
}

// tunnels are the devices that a kernel with tunnel drivers creates in every new network namespace.
var tunnels = []string{"tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0"}

// Cgroups lists the cgroups of pods below the machine's root cgroup. A cgroup that exists in several hierarchies is listed once.
func (m *Machine) Cgroups() []string {
	m.t.Helper()
	found := map[string]bool{}
	tops, err := filepath.Glob("/sys/fs/cgroup/*" + m.Cgroup)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, top := range append(tops, "/sys/fs/cgroup"+m.Cgroup) {
		filepath.WalkDir(top, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.Contains(d.Name(), "pod") && !strings.HasPrefix(d.Name(), "kubepods") {
				found[strings.TrimPrefix(p, top)] = true
			}
			return nil
		})
	}
	var list []string
	for p := range found {
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

// Files returns the entries of a folder inside the machine. It returns nil if the folder does not
// exist.
func (m *Machine) Files(dir string) []string {
	if strings.HasPrefix(dir, "/run/") {
		dir = fmt.Sprintf("/proc/%d/root%s", m.host.Pid(), dir)
	}
	entries, _ := os.ReadDir(dir)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
