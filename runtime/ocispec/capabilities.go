package ocispec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerCaps returns the capabilities of a container: the default ones with the changes of the security context. ALL means all
// capabilities. Capabilities that the host lacks are omitted.
func containerCaps(sec *api.LinuxContainerSecurityContext, host []string) (*specs.LinuxCapabilities, error) {
	set := DefaultCapabilities
	add, drop := sec.GetCapabilities().GetAddCapabilities(), sec.GetCapabilities().GetDropCapabilities()
	if sec.GetPrivileged() {
		set, add, drop = host, nil, nil
	}
	if hasAll(add) {
		set = host
	}
	if hasAll(drop) {
		set = nil
	}
	set = slices.Clone(set)
	for _, c := range add {
		if n := capName(c); n != "CAP_ALL" && !slices.Contains(set, n) {
			if !isCapability(n) {
				return nil, fmt.Errorf("unknown capability %q", c)
			}
			set = append(set, n)
		}
	}
	for _, c := range drop {
		set = slices.DeleteFunc(set, func(s string) bool { return s == capName(c) })
	}
	set = slices.DeleteFunc(set, func(s string) bool { return len(host) > 0 && !slices.Contains(host, s) })
	slices.Sort(set)
	out := &specs.LinuxCapabilities{Bounding: set, Effective: set, Permitted: set}
	for _, c := range sec.GetCapabilities().GetAddAmbientCapabilities() {
		out.Inheritable = append(out.Inheritable, capName(c))
		out.Ambient = append(out.Ambient, capName(c))
	}
	return out, nil
}

func capName(c string) string {
	c = strings.ToUpper(c)
	if !strings.HasPrefix(c, "CAP_") {
		c = "CAP_" + c
	}
	return c
}

func hasAll(caps []string) bool {
	return slices.ContainsFunc(caps, func(c string) bool { return capName(c) == "CAP_ALL" })
}

// capabilityNames contains the names of capabilities by their number in linux/capability.h.
var capabilityNames = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID",
	"CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_IPC_LOCK",
	"CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE", "CAP_SYS_PACCT", "CAP_SYS_ADMIN",
	"CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE", "CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE",
	"CAP_AUDIT_CONTROL", "CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG", "CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND",
	"CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
}

func isCapability(name string) bool { return slices.Contains(capabilityNames, name) }

// ParseCapabilities returns the effective capabilities of a process from the content of /proc/<pid>/status.
func ParseCapabilities(status string) []string {
	for line := range strings.Lines(status) {
		hex, ok := strings.CutPrefix(line, "CapEff:")
		if !ok {
			continue
		}
		bits, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		if err != nil {
			return nil
		}
		var out []string
		for i, n := range capabilityNames {
			if bits&(1<<i) != 0 {
				out = append(out, n)
			}
		}
		return out
	}
	return nil
}
