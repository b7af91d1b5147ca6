package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/islet-edge/islet/internal/clock"
)

func (p *checkup) checkSwap(context.Context) {
	lines := strings.Split(p.readText("proc/swaps"), "\n")
	if len(lines) < 2 {
		p.add("swap", OK, "", "swap is off")
		return
	}
	device, _, _ := strings.Cut(lines[1], " ")
	device, _, _ = strings.Cut(device, "\t")
	if major, minor, ok := kernelVersion(p.readText("proc/sys/kernel/osrelease")); ok && (major < 6 || major == 6 && minor < 4) {
		p.add("memory-volumes", Warning, "turn swap off, encrypt it, or upgrade the kernel to 6.4 or later",
			"this kernel cannot keep memory volumes out of swap, which is on (%s): Secrets and tokens of pods may be written to it", device)
	}
	const off = "swapoff -a, and remove it from /etc/fstab (Raspberry Pi: systemctl disable --now dphys-swapfile; zram: remove " +
		"zram-tools), or set failSwapOn: false"
	if p.FailSwapOn {
		p.add("swap", Error, off, "swap is on (%s), and failSwapOn is set, as it is by default on a node with a control plane", device)
		return
	}
	if p.SwapUnasked {
		p.add("swap", Warning, off, "swap is on (%s): islet starts, but swapping may slow the system down and wear out the card", device)
		return
	}
	p.add("swap", Info, "nothing: failSwapOn: false allows it", "swap is on (%s)", device)
}

func (p *checkup) checkKernelSettings(context.Context) {
	for _, path := range slices.Sorted(maps.Keys(p.KernelSettings)) {
		want := p.KernelSettings[path]
		have, err := strconv.Atoi(p.readText("proc/sys/" + path))
		if err == nil && have != want {
			name := strings.ReplaceAll(path, "/", ".")
			p.add("kernel-setting", Error,
				fmt.Sprintf("sysctl -w %s=%d, and put it into /etc/sysctl.d; or set protectKernelDefaults: false",
					name, want), "%s is %d, and protectKernelDefaults is set", name, have)
		}
	}
}

// checkClock reports a clock that is certainly wrong. Certificates and leases need a correct clock. Pods start even if the
// clock is wrong.
func (p *checkup) checkClock(context.Context) {
	const sync = "set it, and enable time synchronisation: timedatectl set-ntp true"
	now, built := p.sys.Now(), p.BuildTime
	if !clock.IsSet(built) {
		built = clock.EarliestTime()
	}
	switch {
	case now.Year() < 1971:
		p.add("clock", Warning, sync, "the clock is at %s: it was never set", now.UTC().Format(time.DateOnly))
	case now.Before(built.Add(-24 * time.Hour)):
		p.add("clock", Warning, sync, "the clock is at %s, before this program was built (%s)", now.UTC().Format(time.DateOnly),
			built.UTC().Format(time.DateOnly))
	case now.After(built.AddDate(20, 0, 0)):
		p.add("clock", Warning, sync, "the clock is at %s, decades after this program was built", now.UTC().Format(time.DateOnly))
	default:
		p.add("clock", OK, "", "the clock is at %s", now.UTC().Format(time.DateTime))
	}
	if !p.exists("sys/class/rtc/rtc0") {
		p.add("clock-rtc", Info, "nothing: pods start anyway; with a clock module or fake-hwclock the times in early logs are right",
			"there is no real-time clock: after a power cut the time is wrong until the network is up")
	}
}

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

// checkNeighbours reports other kubelets and container runtimes on the host.
func (p *checkup) checkNeighbours(context.Context) {
	for _, proc := range p.listProcesses() {
		if proc.sameProgram {
			p.agentRuns = true // the name of islet's process is kubelet if islet is installed as kubelet
			continue
		}
		where := fmt.Sprintf("%s is running (process %d)", proc.name, proc.pid)
		switch proc.name {
		case "kubelet":
			p.add("other-kubelet", Error, "systemctl disable --now kubelet: two kubelets cannot share pods, cgroups and ports",
				"%s", where)
		case "k3s", "k3s-agent", "k3s-server", "k0s", "rke2", "edgecore", "microk8s":
			p.add("other-node", Warning, "stop it (for k3s: k3s-killall.sh): it contains a kubelet, and uses the same cgroups, ports "+
				"and networks", "%s", where)
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
