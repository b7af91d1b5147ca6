package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

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
