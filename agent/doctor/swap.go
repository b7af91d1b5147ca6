package doctor

import (
	"context"
	"strings"
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
	off := p.adviseSwapOff()
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

// adviseSwapOff returns how to turn swap off on this machine, or to allow it.
func (p *checkup) adviseSwapOff() string {
	how := "swapoff -a, and remove it from /etc/fstab (zram: remove zram-tools)"
	switch {
	case p.exists("etc/rpi/swap.conf") || p.exists("usr/lib/systemd/system-generators/rpi-swap-generator"): // it starts swap at each boot
		how = "write the lines [Main] and Mechanism=none into /etc/rpi/swap.conf.d/90-no-swap.conf, and reboot"
	case p.exists("etc/dphys-swapfile"):
		how = "systemctl disable --now dphys-swapfile"
	}
	return how + ", or set failSwapOn: false"
}
