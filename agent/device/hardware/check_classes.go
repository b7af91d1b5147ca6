package hardware

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/config"
)

// A Complaint describes a problem with the devices of a configuration.
type Complaint struct {
	Resource     string
	What, Advice string
	Absent       bool // the device is only missing on this machine, which may be intended
}

// CheckClasses compares a configuration with the host. The parameter root is the directory with the host's files. An
// empty root means the directory /. CheckClasses reports resources without a device, matching devices that are
// withheld, and devices that a program outside of pods has open.
func CheckClasses(classes []config.DeviceClass, root string) (out []Complaint, err error) {
	h := host{root}
	nodes, kept, f, err := h.findNodes(classes)
	if err != nil {
		return nil, err
	}
	open := map[number]string{}
	if len(classes) > 0 {
		open = h.openDevices()
	}
	for i := range classes {
		c := &classes[i]
		if _, err := h.groupID(c); err != nil {
			out = append(out, Complaint{Resource: c.Resource, What: err.Error(),
				Advice: "add the group with groupadd --system, or write its number"})
		}
		present := 0
		for _, n := range nodes[i] {
			if !f.locateNode(n) {
				continue
			}
			present++
			if program := open[n.number]; program != "" {
				out = append(out, Complaint{Resource: c.Resource,
					What: fmt.Sprintf("%s of %s is open in %s on the host", n.path, c.Resource,
						program), Advice: "stop that program: two users of one device interfere with each other"})
			}
		}
		given := present
		for _, k := range kept {
			if k.Resource == c.Resource {
				present++
				out = append(out, Complaint{Resource: c.Resource,
					What: fmt.Sprintf("%s matches %s, but no container gets it: it %s", k.Path, c.Resource,
						k.Why), Advice: "if that is intended, narrow the match"})
			}
		}
		if given == 0 && present == 0 {
			out = append(out, Complaint{Resource: c.Resource, What: "this machine currently has no device of " + c.Resource,
				Advice: "if it is plugged in, compare its match with islet devices --all", Absent: true})
		}
	}
	return out, nil
}

// openDevices returns the devices that programs on the host have open, and one such program for each. It skips
// programs of pods and programs that it may not inspect.
func (h host) openDevices() map[number]string {
	out := map[number]string{}
	processes, _ := listNames(h.absolutePath("/proc")) // if this fails, the list is empty
	for _, pid := range processes {
		if strings.Trim(pid, "0123456789") != "" {
			continue
		}
		dir := filepath.Join(h.absolutePath("/proc"), pid)
		files, _ := listNames(dir + "/fd")
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
