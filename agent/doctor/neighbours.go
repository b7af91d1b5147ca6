package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// A process is an entry of the host's /proc.
type process struct {
	pid         int
	name        string
	sameProgram bool // set if the process runs the same executable as this one
}

func (p *checkup) listProcesses() []process {
	entries, err := fs.ReadDir(p.Host, "proc")
	if err != nil {
		return nil
	}
	self, _ := fs.ReadLink(p.Host, fmt.Sprintf("proc/%d/exe", p.Self))
	var list []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		name := p.readText("proc/" + e.Name() + "/comm")
		if err != nil || name == "" || pid == p.Self {
			continue
		}
		exe, _ := fs.ReadLink(p.Host, "proc/"+e.Name()+"/exe")
		list = append(list, process{pid, name, self != "" && exe == self})
	}
	return list
}

// checkNeighbours reports other kubelets and container runtimes on the host. It ignores kubelets and runtimes in containers.
func (p *checkup) checkNeighbours(context.Context) {
	own := p.pidNamespace(p.Self)
	for _, proc := range p.listProcesses() {
		if proc.sameProgram {
			p.agentRuns = true // the name of islet's process is kubelet if islet is installed as kubelet
			continue
		}
		if ns := p.pidNamespace(proc.pid); ns != "" && own != "" && ns != own {
			continue // it runs in a container, such as a node of kind
		}
		where := fmt.Sprintf("%s is running (process %d)", proc.name, proc.pid)
		switch proc.name {
		case "kubelet":
			p.add("other-kubelet", Error, "systemctl disable --now kubelet: two kubelets cannot share pods, cgroups and ports",
				"%s", where)
		case "k3s", "k3s-agent", "k3s-server", "k0s", "rke2", "edgecore", "kubelite", "microk8s":
			p.add("other-node", Warning, "disable its service, and reboot, or see islet doctor --migrate; "+keepVolumes,
				"%s: it contains a kubelet, and uses the same cgroups, ports and networks", where)
		case "containerd", "dockerd", "crio":
			p.add("other-runtime", Info, "nothing: islet uses its own directories and does not touch the other runtime", "%s", where)
		}
	}
	for _, port := range p.Ports {
		if !p.agentRuns && p.isListening(port) {
			p.add("port-in-use", Warning, fmt.Sprintf("find the process: ss -ltnp sport = :%d; stop it or choose another port", port),
				"another process listens on TCP port %d, which is configured for islet", port)
		}
	}
	if unit := "etc/systemd/system/multi-user.target.wants/kubelet.service"; p.exists(unit) {
		p.add("kubelet-unit", Info, "systemctl disable kubelet, unless the unit starts islet",
			"kubelet.service starts at boot")
	}
}

// pidNamespace identifies the PID namespace of a process. It returns "" if the process has ended, or belongs to
// another user and doctor does not run as root.
func (p *checkup) pidNamespace(pid int) string {
	name, _ := fs.ReadLink(p.Host, fmt.Sprintf("proc/%d/ns/pid", pid))
	return name
}

// isListening reports whether a process listens on a TCP port of the host.
func (p *checkup) isListening(port int) bool {
	want := fmt.Sprintf(":%04X", port)
	for _, file := range []string{"proc/net/tcp", "proc/net/tcp6"} {
		for line := range strings.SplitSeq(p.readText(file), "\n") {
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], want) && f[3] == "0A" {
				return true
			}
		}
	}
	return false
}
