package hardware

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/config"
)

// A Complaint is what a person should know of the devices in a configuration.
type Complaint struct {
	Resource     string
	What, Advice string
	Absent       bool // only that there is none, which may be meant
}

// Examine looks whether a configuration fits the host whose files are below root (empty: /):
// which resources have no device, which devices are not given, or are open in a program that
// is no pod's.
func Examine(classes []config.DeviceClass, root string) (out []Complaint, err error) {
	h := host{root}
	nodes, kept, f, err := h.find(classes)
	if err != nil {
		return nil, err
	}
	open := map[number]string{}
	if len(classes) > 0 {
		open = h.open()
	}
	for i := range classes {
		c := &classes[i]
		if _, err := h.group(c); err != nil {
			out = append(out, Complaint{Resource: c.Resource, What: err.Error(),
				Advice: "add the group with groupadd --system, or write its number"})
		}
		there := 0
		for _, n := range nodes[i] {
			if !f.locate(n) {
				continue
			}
			there++
			if program := open[n.number]; program != "" {
				out = append(out, Complaint{Resource: c.Resource,
					What: fmt.Sprintf("%s of %s is open in %s on the host", n.path, c.Resource,
						program), Advice: "stop that program: two that use one device disturb each other"})
			}
		}
		given := there
		for _, k := range kept {
			if k.Resource == c.Resource {
				there++
				out = append(out, Complaint{Resource: c.Resource,
					What: fmt.Sprintf("%s matches %s, and no container gets it: it %s", k.Path, c.Resource,
						k.Why), Advice: "narrow the match, if that is meant"})
			}
		}
		if given == 0 && there == 0 {
			out = append(out, Complaint{Resource: c.Resource, What: "this machine has no device of " + c.Resource + " now",
				Advice: "if it is plugged in, compare its match with islet devices --all", Absent: true})
		}
	}
	return out, nil
}

// open finds the devices that programs of the host have open. Programs that it may not look
// at, and those of pods, do not count.
func (h host) open() map[number]string {
	out := map[number]string{}
	processes, _ := list(h.at("/proc")) // none: nothing is known
	for _, pid := range processes {
		if strings.Trim(pid, "0123456789") != "" {
			continue
		}
		dir := filepath.Join(h.at("/proc"), pid)
		files, _ := list(dir + "/fd")
		inPod := -1
		for _, fd := range files {
			var st unix.Stat_t
			if unix.Stat(dir+"/fd/"+fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR && st.Mode&unix.S_IFMT != unix.S_IFBLK {
				continue
			}
			if inPod < 0 {
				inPod = 0
				if groups, err := os.ReadFile(dir + "/cgroup"); err != nil || strings.Contains(string(groups), "kubepods") {
					inPod = 1
				}
			}
			if inPod == 0 {
				name, _ := os.ReadFile(dir + "/comm")
				n := number{st.Mode&unix.S_IFMT == unix.S_IFBLK, unix.Major(uint64(st.Rdev)), unix.Minor(uint64(st.Rdev))}
				out[n] = fmt.Sprintf("%s (process %s)", strings.TrimSpace(string(name)), pid)
			}
		}
	}
	return out
}
