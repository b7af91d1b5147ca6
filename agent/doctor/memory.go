package doctor

import (
	"context"
	"strconv"
	"strings"
)

func (p *checkup) checkMemory(context.Context) {
	var kib uint64
	for line := range strings.SplitSeq(p.readText("proc/meminfo"), "\n") {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, _ = strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 64)
		}
	}
	switch total := kib >> 10; {
	case kib == 0:
		p.add("memory", Info, "nothing, if the rest is in order", "cannot read the memory size")
	case total < 80: // a machine with 128 MiB has about 92 MiB for programs
		p.add("memory", Error, "use a machine with 256 MiB or more", "%d MiB of memory is too little", total)
	case total < 192:
		p.add("memory", Warning, "run nothing but a few small static programs here, or use a machine with 256 MiB or more",
			"%d MiB of memory is just enough", total)
	case total < 400:
		p.add("memory", Warning, "run few and small pods, each with a memory limit", "%d MiB of memory is tight", total)
	default:
		p.add("memory", OK, "", "%d MiB of memory", total)
	}
}
