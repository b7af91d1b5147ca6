package doctor

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

// A feature is an option of the kernel's build configuration that pods need.
type feature struct {
	id, what  string
	config    string                // CONFIG_ symbol
	module    string                // name of the kernel module; empty if the feature cannot be a module
	isPresent func(p *checkup) bool // reports whether the running kernel has the feature; may be nil
	severity  Severity              // severity if the feature is missing
	lossText  string                // description of the problems without the feature
}

func features(p *checkup) []feature {
	exists := func(path string) func(*checkup) bool {
		return func(p *checkup) bool { return p.exists(path) }
	}
	network := Error
	if p.ForeignNetwork {
		network = Info // set if the built-in network is not used
	}
	list := []feature{
		{"kernel-overlayfs", "overlayfs", "OVERLAY_FS", "overlay", (*checkup).hasOverlay, Warning,
			"images are copied instead of stacked, which takes space and time"},
		{"kernel-netns", "network namespaces", "NET_NS", "", exists("proc/self/ns/net"), Error, "pods cannot have a network of their own"},
		{"kernel-ipcns", "IPC namespaces", "IPC_NS", "", exists("proc/self/ns/ipc"), Error, "pods cannot be kept apart"},
		{"kernel-pidns", "PID namespaces", "PID_NS", "", exists("proc/self/ns/pid"), Error, "pods cannot be kept apart"},
		{"kernel-bridge", "bridges", "BRIDGE", "bridge", exists("sys/module/bridge"), network, "pods cannot be connected"},
		{"kernel-veth", "veth pairs", "VETH", "veth", exists("sys/module/veth"), network, "pods cannot be connected"},
		{"kernel-nftables", "nftables", "NF_TABLES", "nf_tables", exists("sys/module/nf_tables"), network,
			"masquerading and host ports do not work"},
		{"kernel-nft-nat", "nftables NAT", "NFT_NAT", "nft_nat", exists("sys/module/nft_nat"), network, "host ports do not work"},
		{"kernel-nft-masq", "nftables masquerade", "NFT_MASQ", "nft_masq", exists("sys/module/nft_masq"), network,
			"pods reach nothing outside of the node"},
		{"kernel-seccomp", "seccomp filters", "SECCOMP_FILTER", "", exists("proc/sys/kernel/seccomp/actions_avail"), Warning,
			"pods with a seccomp profile do not start"},
	}
	if p.cgroupMode() == cgroupV2 {
		list = append(list, feature{"kernel-cgroup-bpf", "BPF on cgroups", "CGROUP_BPF", "", nil, Error,
			"containers' devices cannot be restricted, and OCI runtimes refuse to start them"})
	}
	return list
}

func (p *checkup) checkKernel(context.Context) {
	release := p.readText("proc/sys/kernel/osrelease")
	major, minor, ok := kernelVersion(release)
	switch {
	case !ok:
		p.add("kernel-version", Info, "nothing, if the rest is in order", "cannot read the kernel's version")
	case major < 4 || major == 4 && minor < 19:
		p.add("kernel-version", Error, "upgrade to 5.10 or later", "kernel %s is too old (at least 4.19 is required)", release)
	case major == 4 || major == 5 && minor < 10:
		p.add("kernel-version", Warning, "upgrade to 5.10 or later when you can",
			"kernel %s is old: parts of cgroup v2, pidfd and nftables are missing", release)
	default:
		p.add("kernel-version", OK, "", "kernel %s", release)
	}
	config := p.kernelConfig(release)
	modules := p.readText("lib/modules/"+release+"/modules.dep") + "\n" + p.readText("lib/modules/"+release+"/modules.builtin")
	for _, f := range features(p) {
		loadable := f.module != "" && strings.Contains(modules, "/"+f.module+".ko")
		switch set := config["CONFIG_"+f.config]; {
		case f.isPresent != nil && f.isPresent(p), set == "y", loadable:
			p.add(f.id, OK, "", "the kernel has %s", f.what)
		case set == "m":
			p.add(f.id, f.severity,
				fmt.Sprintf("install the kernel's module package (%s.ko), or boot the kernel whose modules are installed", f.module),
				"the kernel's module for %s is not installed: %s", f.what, f.lossText)
		case len(config) > 0:
			p.add(f.id, f.severity, fmt.Sprintf("use a kernel with CONFIG_%s", f.config), "the kernel is built without %s: %s", f.what,
				f.lossText)
		default:
			p.add(f.id, Info, fmt.Sprintf("if pods fail, look for CONFIG_%s in the kernel's configuration", f.config),
				"cannot find out whether the kernel has %s", f.what)
		}
	}
}

// kernelVersion parses the first two numbers of a kernel release such as 6.1.0-18-arm64.
func kernelVersion(release string) (major, minor int, ok bool) {
	n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor)
	return major, minor, n == 2
}

func (p *checkup) hasOverlay() bool {
	for line := range strings.SplitSeq(p.readText("proc/filesystems"), "\n") {
		if strings.TrimSpace(strings.TrimPrefix(line, "nodev")) == "overlay" {
			return true
		}
	}
	return p.exists("sys/module/overlay")
}

// kernelConfig returns the kernel's build configuration, or nil if the host has no file with it.
func (p *checkup) kernelConfig(release string) map[string]string {
	for _, path := range []string{"proc/config.gz", "boot/config-" + release, "lib/modules/" + release + "/config"} {
		f, err := p.Host.Open(path)
		if err != nil {
			continue
		}
		config, err := readKernelConfig(f, strings.HasSuffix(path, ".gz"))
		f.Close()
		if err == nil && len(config) > 0 {
			return config
		}
	}
	return nil
}

func readKernelConfig(f fs.File, zipped bool) (map[string]string, error) {
	var r io.Reader = f
	if zipped {
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, err
		}
		r = z
	}
	config := map[string]string{}
	lines := bufio.NewScanner(io.LimitReader(r, 4<<20))
	for lines.Scan() {
		if k, v, ok := strings.Cut(lines.Text(), "="); ok && strings.HasPrefix(k, "CONFIG_") {
			config[k] = v
		}
	}
	return config, lines.Err()
}

// checkCapabilities checks which capabilities this process has. An agent that is started in the same way has the same
// capabilities.
func (p *checkup) checkCapabilities(context.Context) {
	var mask uint64
	for line := range strings.SplitSeq(p.readText("proc/self/status"), "\n") {
		if hex, ok := strings.CutPrefix(line, "CapEff:"); ok {
			mask, _ = strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		}
	}
	for _, c := range []struct {
		bit      int
		name, id string
		severity Severity
		loss     string
	}{
		{21, "CAP_SYS_ADMIN", "cap-sys-admin", Error, "namespaces and mounts cannot be created"},
		{12, "CAP_NET_ADMIN", "cap-net-admin", Error, "the pod network cannot be created"},
		{24, "CAP_SYS_RESOURCE", "cap-sys-resource", Warning,
			"oom_score_adj cannot be lowered, so islet and Guaranteed pods are not protected from the OOM killer; islet uses the " +
				"lowest possible value"},
	} {
		if mask&(1<<c.bit) != 0 {
			p.add(c.id, OK, "", "the process has %s", c.name)
			continue
		}
		p.add(c.id, c.severity, "run as root; in a container or sandbox, grant root this capability", "%s is missing: %s",
			c.name, c.loss)
	}
}

// withoutInotify describes what fails if a user's inotify instances are exhausted.
const withoutInotify = "pods that watch files fail with \"too many open files\", and the agent notices changes late: it looks for " +
	"manifests, CNI configurations, credentials, plugins and new lines of logs at intervals, and for DNS servers only when an " +
	"address changes, and does not replace a removed socket of its own until an instance is free"

func (p *checkup) checkInotify(context.Context) {
	left := p.sys.Watch()
	for _, limit := range []struct {
		name, loss string
		least      int
	}{
		{"max_user_instances", "if all of them are in use, " + withoutInotify, 128},
		{"max_user_watches", "pods that watch files fail with \"no space left on device\", and the agent may notice changed files " +
			"late", 8192},
	} {
		have, err := strconv.Atoi(p.readText("proc/sys/fs/inotify/" + limit.name))
		advice := fmt.Sprintf("sysctl -w fs.inotify.%s=%d, put it into /etc/sysctl.d, and restart islet", limit.name,
			max(have, limit.least)*4)
		switch id := "inotify-" + strings.ReplaceAll(strings.TrimPrefix(limit.name, "max_user_"), "_", "-"); {
		case err != nil:
			p.add(id, Info, "nothing, unless pods use inotify", "cannot read fs.inotify.%s", limit.name)
		case limit.name == "max_user_instances" && left != nil:
			p.add(id, Warning, advice, "fs.inotify.%s is %d: %v: all of them are in use, so %s", limit.name, have, left, withoutInotify)
		case have < limit.least:
			p.add(id, Warning, advice, "fs.inotify.%s is %d: %s", limit.name, have, limit.loss)
		default:
			p.add(id, OK, "", "fs.inotify.%s is %d", limit.name, have)
		}
	}
}
