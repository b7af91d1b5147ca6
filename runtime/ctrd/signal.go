package ctrd

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stopSignal returns the stop signal of the container's configuration. If it has none, stopSignal
// returns the stop signal of the image, or SIGTERM. The caller holds Runtime.mu.
func stopSignal(c *container) unix.Signal {
	if s := c.config.GetStopSignal(); s != api.Signal_SIGNAL_RUNTIME_DEFAULT {
		if sig, ok := parseSignal(strings.TrimPrefix(s.String(), "SIGNAL_")); ok {
			return sig
		}
	}
	if sig, ok := parseSignal(c.rec.StopSignal); ok {
		return sig
	}
	return unix.SIGTERM
}

// criSignal converts a signal to the CRI's enum. The result is 0 if the CRI does not define the
// signal.
func criSignal(sig unix.Signal) api.Signal {
	name := unix.SignalName(sig)
	switch {
	case sig >= 34 && sig < 50:
		name = fmt.Sprintf("SIGRTMINPLUS%d", sig-34)
	case sig >= 50 && sig <= 64:
		name = fmt.Sprintf("SIGRTMAXMINUS%d", 64-sig)
	}
	name = strings.TrimSuffix(strings.TrimSuffix(name, "PLUS0"), "MINUS0")
	return api.Signal(api.Signal_value["SIGNAL_"+name])
}

// parseSignal parses the name or number of a signal: SIGTERM, TERM, 15, SIGRTMIN+3, or the CRI's
// SIGRTMINPLUS3.
func parseSignal(s string) (unix.Signal, bool) {
	s = strings.ToUpper(strings.TrimSpace(s))
	if n, err := strconv.Atoi(s); err == nil {
		return unix.Signal(n), n > 0 && n <= 64
	}
	s = strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(strings.TrimPrefix(s, "SIG"))
	for name, base := range map[string]int{"RTMIN": 34, "RTMAX": 64} {
		if rest, ok := strings.CutPrefix(s, name); ok {
			if rest == "" {
				return unix.Signal(base), true
			}
			n, err := strconv.Atoi(rest)
			return unix.Signal(base + n), err == nil && base+n >= 34 && base+n <= 64
		}
	}
	if other, ok := map[string]string{"POLL": "IO", "CLD": "CHLD", "IOT": "ABRT"}[s]; ok {
		s = other
	}
	sig := unix.SignalNum("SIG" + s)
	return sig, sig != 0
}
