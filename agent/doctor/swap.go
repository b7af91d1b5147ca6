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
