package doctor

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	v1 "k8s.io/api/core/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/islet-edge/islet/agent/host/volatile"
	"github.com/islet-edge/islet/agent/pod/spec/portconflict"
	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/metrics/host"
)

// board returns the files of a healthy host that runs Debian with cgroup v2 and systemd.
func board() fstest.MapFS {
	f := fstest.MapFS{
		"proc/42/exe":      {Data: []byte("/usr/local/bin/islet"), Mode: fs.ModeSymlink},
		"proc/self/ns/net": {}, "proc/self/ns/ipc": {}, "proc/self/ns/pid": {}, "proc/self/ns/user": {},
		"sys/module/bridge": {Mode: fs.ModeDir}, "sys/module/veth": {Mode: fs.ModeDir},
		"sys/class/rtc/rtc0":                    {Mode: fs.ModeDir},
		"proc/sys/kernel/seccomp/actions_avail": {},
	}
	for name, text := range map[string]string{
		"proc/sys/kernel/osrelease":               "6.12.0-18-arm64",
		"proc/filesystems":                        "nodev\tsysfs\nnodev\toverlay\n\text4",
		"lib/modules/6.12.0-18-arm64/modules.dep": "kernel/net/netfilter/nf_tables.ko:\nkernel/net/netfilter/nft_nat.ko.xz:\nkernel/net/netfilter/nft_masq.ko:",
		"boot/config-6.12.0-18-arm64":             "CONFIG_CGROUP_BPF=y\nCONFIG_NF_TABLES=m\n# CONFIG_X is not set",
		"proc/self/status":                        "Name:\tx\nCapEff:\t000001ffffffffff\n",
		"proc/sys/fs/inotify/max_user_instances":  "128",
		"proc/sys/fs/inotify/max_user_watches":    "65536",
		"sys/fs/cgroup/cgroup.controllers":        "cpuset cpu io memory pids",
		"proc/mounts":                             "/dev/sda1 / ext4 rw,relatime 0 0\ntmpfs /run tmpfs rw,noexec 0 0\n",
		"proc/meminfo":                            "MemTotal:        1000000 kB\n",
		"proc/swaps":                              "Filename\tType\tSize",
		"proc/42/comm":                            "islet",
		"proc/net/tcp":                            "  sl local rem st\n   0: 0100007F:0016 00000000:0000 0A 0\n",
		"proc/net/route":                          "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\neth0\t00000000\t0100A8C0\t3\t0\t0\t0\t00000000\neth0\t0000A8C0\t00000000\t1\t0\t0\t0\t00FFFFFF\n",
		"etc/resolv.conf":                         "nameserver 192.168.0.1\n",
		"proc/sys/net/ipv4/ip_forward":            "1",
		"var/lib/islet/x":                         "",
	} {
		f[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return f
}

func input(f fstest.MapFS) Input {
	return Input{
		Externals: rooms(), Host: f, RootDir: "/var/lib/kubelet", StateDir: "/var/lib/islet", RunDir: "/run/islet", FailSwapOn: true,
		ResolvConf: "/etc/resolv.conf", Ports: []int{10250}, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24"), netip.MustParsePrefix("fd00:42::/64")},
		Bridge: "islet0", Self: 42, BuildTime: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC),
	}
}

// This helper returns the real Externals, except that device classes, shutdown times and logind are faked.
func rooms() Externals {
	return Externals{
		CheckClasses: func([]config.DeviceClass) ([]Complaint, error) { return nil, nil },
		HostPorts: func(host fs.FS) (func(*v1.Pod) []string, error) {
			sockets, err := portconflict.ListSockets(host)
			return func(pod *v1.Pod) []string { return portconflict.FindConflicts(pod, sockets) }, err
		},
		ShutdownTime:  func(*kubelet.KubeletConfiguration) time.Duration { return 0 },
		ShutdownDelay: func(context.Context) (time.Duration, error) { return 0, errors.New("no bus") },
		Volatile:      volatile.Source,
	}
}

func system() System {
	return System{
		Now: func() time.Time { return time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC) },
		Disk: func(context.Context, string) (host.Disk, error) {
			return host.Disk{Total: 1 << 30, Free: 1 << 29, Inodes: 100, InodesFree: 50}, nil
		},
		Find: func(name string) (string, error) {
			if name == "nft" {
				return "", errors.New("not found")
			}
			return "/usr/bin/" + name, nil
		},
		Output: func(_ context.Context, path string, _ ...string) (string, error) {
			if strings.HasSuffix(path, "runc") {
				return "runc version 1.3.3\ncommit: x\n", nil
			}
			return "crun version 1.8.1\n", nil
		},
		Watch: func() error { return nil },
		Users: func(program string) bool { return strings.HasSuffix(program, "runc") },
	}
}

func TestHealthyBoard(t *testing.T) {
	findings := Check(context.Background(), input(board()), system())
	for _, f := range findings {
		if f.Severity != OK || f.Advice != "" || f.What == "" {
			t.Errorf("%+v", f)
		}
	}
	if len(findings) < 25 || ExitCode(findings) != 0 {
		t.Errorf("%d findings", len(findings))
	}
}

// realTime returns a function that allows a scheduling policy to pods.
func realTime(policy string) func(*Input) {
	return func(i *Input) { i.RealTime.Pods = []config.RealTimePods{{Policies: []string{policy}}} }
}

// TestFindings checks each finding with a board that has one defect.
func TestFindings(t *testing.T) {
	type files = map[string]string
	const gone = "\x00gone"
	for _, c := range []struct {
		name  string
		files files
		in    func(*Input)
		sys   func(*System)
		want  string // severity and ID of the finding
		says  string // part of the finding's What or Advice
	}{
		{name: "old kernel", files: files{"proc/sys/kernel/osrelease": "4.9.0"}, want: "error kernel-version", says: "4.9.0"},
		{name: "no user namespaces", files: files{"proc/self/ns/user": gone}, want: "info user-namespaces", says: "CONFIG_USER_NS"},
		{name: "user namespaces are off", files: files{"proc/sys/user/max_user_namespaces": "0"}, want: "info user-namespaces", says: "max_user_namespaces"},
		{name: "a kernel without shifted overlays", files: files{"proc/sys/kernel/osrelease": "5.15.0"}, want: "info user-namespaces", says: "5.15"},
		{name: "a kernel without shifted tmpfs", files: files{"proc/sys/kernel/osrelease": "6.1.0"}, want: "info user-namespaces", says: "tmpfs"},
		{name: "an OCI runtime without idmapped mounts", sys: func(s *System) { s.Users = func(string) bool { return false } }, want: "info user-namespaces", says: "has no idmapped mounts"},
		{name: "volumes on NFS", files: files{"proc/mounts": "/dev/sda1 / ext4 rw 0 0\ntmpfs /run tmpfs rw,noexec 0 0\nserver:/x /var/lib/kubelet nfs4 rw 0 0\n"}, want: "info user-namespaces", says: "on nfs4"},
		{name: "real time without throttling", files: files{"proc/sys/kernel/sched_rt_runtime_us": "-1"}, in: realTime("FIFO"), want: "warning realtime-throttle", says: "allowUnthrottled"},
		{name: "real time, unthrottled on purpose", files: files{"proc/sys/kernel/sched_rt_runtime_us": "-1"}, in: func(i *Input) {
			realTime("RR")(i)
			i.RealTime.AllowUnthrottled = true
		}, want: "warning realtime-throttle", says: "can take all time"},
		{name: "real time is off", files: files{"proc/sys/kernel/sched_rt_runtime_us": "0"}, in: realTime("FIFO"), want: "warning realtime-throttle", says: "is 0"},
		{name: "real-time budgets without files", files: files{"boot/config-6.12.0-18-arm64": "CONFIG_RT_GROUP_SCHED=y\nCONFIG_CGROUP_BPF=y\nCONFIG_NF_TABLES=m"}, in: realTime("FIFO"), want: "warning realtime-budgets", says: "rt_group_sched=0"},
		{name: "real-time budgets", files: files{"sys/fs/cgroup/cpu/cpu.rt_runtime_us": "950000"}, in: realTime("FIFO"), want: "info realtime-budgets", says: "Guaranteed"},
		{name: "real time without PREEMPT_RT", in: realTime("DEADLINE"), want: "info realtime-preempt", says: "PREEMPT_RT"},
		{name: "no isolated CPUs", in: func(i *Input) { i.RealTime.Pods = []config.RealTimePods{{IsolatedCPUs: true}} }, want: "warning realtime-isolated", says: "isolcpus"},
		{name: "aging kernel", files: files{"proc/sys/kernel/osrelease": "5.4.0-1"}, want: "warning kernel-version"},
		{name: "no overlayfs", files: files{"proc/filesystems": "ext4", "boot/config-6.12.0-18-arm64": "CONFIG_A=y"}, want: "warning kernel-overlayfs", says: "CONFIG_OVERLAY_FS"},
		{name: "module not installed", files: files{"lib/modules/6.12.0-18-arm64/modules.dep": gone}, want: "error kernel-nftables", says: "nf_tables.ko"},
		{name: "nothing known", files: files{"lib/modules/6.12.0-18-arm64/modules.dep": gone, "boot/config-6.12.0-18-arm64": gone}, want: "info kernel-nft-masq", says: "CONFIG_NFT_MASQ"},
		{name: "foreign network needs no bridge", files: files{"sys/module/bridge": gone}, in: func(i *Input) { i.ForeignNetwork = true }, want: "info kernel-bridge"},
		{name: "no BPF", files: files{"boot/config-6.12.0-18-arm64": "CONFIG_A=y"}, want: "error kernel-cgroup-bpf"},
		{name: "confined root", files: files{"proc/self/status": "CapEff:\t000001fffeffffff"}, want: "warning cap-sys-resource"},
		{name: "not root", files: files{"proc/self/status": "CapEff:\t0000000000000000"}, want: "error cap-sys-admin"},
		{name: "few watches", files: files{"proc/sys/fs/inotify/max_user_watches": "100"}, want: "warning inotify-watches", says: "32768"},
		{name: "few inotify instances", files: files{"proc/sys/fs/inotify/max_user_instances": "16"}, want: "warning inotify-instances",
			says: "sysctl -w fs.inotify.max_user_instances=512"},
		{name: "few inotify instances: the agent", files: files{"proc/sys/fs/inotify/max_user_instances": "16"}, want: "warning inotify-instances",
			says: "the agent notices"},
		{name: "no inotify instance left", sys: func(s *System) { s.Watch = func() error { return syscall.EMFILE } }, want: "warning inotify-instances",
			says: "fs.inotify.max_user_instances is 128: too many open files: all of them are in use"},
		{name: "no inotify instance left: more", sys: func(s *System) { s.Watch = func() error { return syscall.EMFILE } }, want: "warning inotify-instances",
			says: "fs.inotify.max_user_instances=512, put it into /etc/sysctl.d, and restart islet"},
		{name: "no cgroups", files: files{"sys/fs/cgroup/cgroup.controllers": gone}, want: "error cgroup"},
		{name: "cgroup v1", files: files{"sys/fs/cgroup/cgroup.controllers": gone, "proc/mounts": "/dev/sda1 / ext4 rw 0 0\nx /c cgroup rw,cpu,memory 0 0"}, want: "info cgroup", says: "v1"},
		{name: "cgroup v1 refused", files: files{"sys/fs/cgroup/cgroup.controllers": gone, "proc/mounts": "x /c cgroup rw,cpu,memory 0 0"}, in: func(i *Input) { i.FailCgroupV1 = true }, want: "error cgroup", says: "failCgroupV1"},
		{name: "pids on v1", files: files{"sys/fs/cgroup/cgroup.controllers": gone, "proc/mounts": "x /c cgroup rw,cpu,memory 0 0"}, want: "warning cgroup-pids"},
		{name: "Raspberry Pi", files: files{"sys/fs/cgroup/cgroup.controllers": "cpu pids", "boot/firmware/cmdline.txt": "x"}, want: "error cgroup-memory", says: "/boot/firmware/cmdline.txt"},
		{name: "Raspberry Pi before its reboot", files: files{"sys/fs/cgroup/cgroup.controllers": "cpu pids", "boot/firmware/cmdline.txt": "x cgroup_enable=memory"}, want: "error cgroup-memory", says: "reboot: /boot/firmware/cmdline.txt"},
		{name: "driver without systemd", in: func(i *Input) { i.SystemdCgroup = true }, want: "error cgroup-driver"},
		{name: "cgroupfs next to systemd", files: files{"run/systemd/system": ""}, want: "info cgroup-driver"},
		{name: "no runtime", sys: func(s *System) { s.Find = func(string) (string, error) { return "", os.ErrNotExist } }, want: "error runtime", says: "apt install crun"},
		{name: "broken runtime", sys: func(s *System) {
			s.Output = func(context.Context, string, ...string) (string, error) { return "", errors.New("exec format error") }
		}, want: "warning runtime-crun", says: "exec format error"},
		{name: "old runtime", sys: func(s *System) {
			s.Output = func(context.Context, string, ...string) (string, error) { return "runc version 1.0.3", nil }
		}, want: "warning runtime-runc", says: "old"},
		{name: "crun on hybrid", files: files{"sys/fs/cgroup/cgroup.controllers": gone, "sys/fs/cgroup/unified/cgroup.controllers": "hugetlb", "proc/mounts": "x /c cgroup rw,cpu,memory 0 0\nx /u cgroup2 rw 0 0"}, want: "info runtime-crun", says: "hybrid"},
		{name: "islet's own crun on hybrid", files: files{"sys/fs/cgroup/cgroup.controllers": gone, "sys/fs/cgroup/unified/cgroup.controllers": "hugetlb", "proc/mounts": "x /c cgroup rw,cpu,memory 0 0\nx /u cgroup2 rw 0 0"},
			in: func(i *Input) { i.OCIRuntime = "/home/me/crun" }, sys: func(s *System) {
				s.Output = func(context.Context, string, ...string) (string, error) {
					return "crun version 1.27\ncommit: with islet's patches\n", nil
				}
			}, want: "ok runtime-crun"},
		{name: "named runtime", in: func(i *Input) { i.OCIRuntime = "/opt/youki" }, want: "ok runtime-youki"},
		{name: "noexec", files: files{"proc/mounts": "/dev/sda1 / ext4 rw 0 0\n/dev/sdb /var/lib/islet ext4 rw,noexec 0 0\ntmpfs /run tmpfs rw 0 0"}, want: "error state-noexec"},
		{name: "read-only", files: files{"proc/mounts": "/dev/sda1 / ext4 ro 0 0\ntmpfs /run tmpfs rw 0 0"}, want: "error state-ro", says: "card"},
		{name: "stopped by the kernel", files: files{"proc/mounts": "/dev/sda1 / ext4 rw,emergency_ro 0 0\ntmpfs /run tmpfs rw 0 0"}, want: "error state-ro", says: "fsck"},
		{name: "covered", files: files{"proc/mounts": "/dev/sda1 / ext4 ro 0 0\nislet-volatile /var/lib/islet overlay rw 0 0\ntmpfs /run tmpfs rw 0 0"}, want: "warning state-ro", says: "lost at the next boot"},
		{name: "nosuid", files: files{"proc/mounts": "/dev/sda1 / ext4 rw,nosuid 0 0"}, want: "warning state-nosuid"},
		{name: "FAT", files: files{"proc/mounts": "/dev/sda1 / vfat rw 0 0"}, want: "error state-fs"},
		{name: "overlay on overlay", files: files{"proc/mounts": "o / overlay rw 0 0"}, want: "warning state-fs"},
		{name: "network disk", files: files{"proc/mounts": "o / nfs4 rw 0 0"}, want: "error state-fs"},
		{name: "state in memory", files: files{"proc/mounts": "o / tmpfs rw 0 0"}, want: "warning state-fs"},
		{name: "run on disk", files: files{"proc/mounts": "/dev/sda1 / ext4 rw 0 0"}, want: "warning run-tmpfs"},
		{name: "no journal", files: files{"proc/mounts": "/dev/sda1 / ext2 rw 0 0"}, want: "warning state-journal", says: "tune2fs"},
		{name: "writeback", files: files{"proc/mounts": "/dev/sda1 / ext4 rw,data=writeback 0 0"}, want: "warning state-journal"},
		{name: "SD card", files: files{"proc/mounts": "/dev/mmcblk0p2 / ext4 rw,relatime 0 0"}, want: "info state-flash", says: "noatime"},
		{name: "a directory with a blank", files: files{"proc/mounts": `/dev/sda1 / ext4 rw 0 0` + "\n" + `x /a\040b vfat rw 0 0`}, in: func(i *Input) { i.StateDir = "/a b/c" }, want: "error state-fs"},
		{name: "not its neighbour's mount", files: files{"proc/mounts": "/dev/sda1 / ext4 rw 0 0\nx /var/lib/isl vfat rw 0 0"}, want: "ok state-fs"},
		{name: "full disk", sys: disk(host.Disk{Total: 1 << 30, Free: 50 << 20}), want: "error disk-space", says: "50 MiB"},
		{name: "nearly full", sys: disk(host.Disk{Total: 100 << 30, Free: 9 << 30}), want: "warning disk-space"},
		{name: "no inodes", sys: disk(host.Disk{Total: 1 << 30, Free: 1 << 29, Inodes: 1000, InodesFree: 10}), want: "warning disk-inodes"},
		{name: "tiny", files: files{"proc/meminfo": "MemTotal: 65536 kB"}, want: "error memory"},
		{name: "128 MiB", files: files{"proc/meminfo": "MemTotal: 94532 kB"}, want: "warning memory", says: "just enough"},
		{name: "small", files: files{"proc/meminfo": "MemTotal: 262144 kB"}, want: "warning memory"},
		{name: "swap", files: files{"proc/swaps": "Filename Type\n/dev/zram0 partition 1 0 1"}, want: "error swap", says: "/dev/zram0"},
		{name: "swap, and nobody asked", files: files{"proc/swaps": "Filename\tType\n/var/swap\tfile 1"}, in: func(i *Input) { i.FailSwapOn, i.SwapUnasked = false, true }, want: "warning swap", says: "(/var/swap)"},
		{name: "swap of Raspberry Pi OS 13", files: files{"proc/swaps": "Filename Type\n/dev/zram0 partition 1 0 1", "etc/rpi/swap.conf": "[Main]\n"}, want: "error swap", says: "/etc/rpi/swap.conf.d/"},
		{name: "swap of Raspberry Pi OS 12", files: files{"proc/swaps": "Filename Type\n/var/swap file 1 0 1", "etc/dphys-swapfile": ""}, want: "error swap", says: "disable --now dphys-swapfile"},
		{name: "swap allowed", files: files{"proc/swaps": "Filename\tType\n/swapfile\tfile 1"}, in: func(i *Input) { i.FailSwapOn = false }, want: "info swap", says: "(/swapfile)"},
		{name: "protected kernel", files: files{"proc/sys/kernel/panic": "0"}, in: func(i *Input) { i.KernelSettings = map[string]int{"kernel/panic": 10} }, want: "error kernel-setting", says: "sysctl -w kernel.panic=10"},
		{name: "clock never set", sys: at(1970), want: "warning clock", says: "1970"},
		{name: "clock before the build", sys: at(2025), want: "warning clock", says: "2026-11-01"},
		{name: "clock far off", sys: at(2077), want: "warning clock"},
		{name: "unknown build", sys: at(2025), in: func(i *Input) { i.BuildTime = time.Time{} }, want: "warning clock"},
		{name: "no RTC", files: files{"sys/class/rtc/rtc0": gone}, want: "info clock-rtc"},
		{name: "a kubelet", files: files{"proc/7/comm": "kubelet\n"}, want: "error other-kubelet", says: "process 7"},
		{name: "k3s", files: files{"proc/7/comm": "k3s-server\n"}, want: "warning other-node"},
		{name: "containerd", files: files{"proc/7/comm": "containerd\n"}, want: "info other-runtime"},
		{name: "port", files: files{"proc/net/tcp6": "h\n 0: 00000000000000000000000000000000:280A 0:0 0A 0\n"}, want: "warning port-in-use", says: "10250"},
		{name: "kubelet at boot", files: files{"etc/systemd/system/multi-user.target.wants/kubelet.service": ""}, want: "info kubelet-unit"},
		{name: "mounted volumes", files: files{"proc/mounts": "/dev/sda1 / ext4 rw 0 0\nx /var/lib/kubelet/pods/u/volumes/v tmpfs rw 0 0"}, want: "info leftover-volumes"},
		{name: "pins", files: files{"proc/mounts": "/dev/sda1 / ext4 rw 0 0\nx /run/islet/ns/a/net nsfs rw 0 0"}, want: "info leftover-pins"},
		{name: "cgroups", files: files{"sys/fs/cgroup/kubepods/burstable/podx/cgroup.procs": ""}, want: "info leftover-cgroups", says: "/sys/fs/cgroup/kubepods/burstable/podx"},
		{name: "stray pins", files: files{"run/islet/ns/a/net": "", "run/islet/ns/b/net": ""}, in: sandboxes("a"), want: "warning leftover-pins", says: "such as b"},
		{name: "stray veths", files: files{"sys/class/net/islet0/brif/v1": ""}, in: sandboxes(), want: "warning leftover-veths"},
		{name: "clean", in: sandboxes(), want: "ok leftovers"},
		{name: "pins of pods that run", files: files{"run/islet/ns/a/net": ""}, in: sandboxes("a"), want: "ok leftovers"},
		{name: "link", in: link(Link{State: "Up", Server: "10.0.0.1:6443"}), want: "ok link", says: "10.0.0.1:6443"},
		{name: "link not known yet", in: link(Link{State: "Connecting", Reason: "Unreachable"}), want: "info link"},
		{name: "no way", in: link(Link{Reason: "Unreachable", Message: "dial tcp: no route to host"}), want: "warning link", says: "no route to host"},
		{name: "another CA", in: link(Link{Reason: "ServerCertificateInvalid", Message: "unknown authority"}), want: "warning link", says: "replace /k/kubelet.conf with a kubeconfig with the cluster's CA"},
		{name: "a captive portal", in: link(Link{Reason: "NotAPIServer", Message: "it answers 200 with a web page"}), want: "warning link", says: "captive portal"},
		{name: "refused", in: link(Link{Reason: "Unauthorized"}), want: "warning link", says: "replace /k/kubelet.conf with a kubeconfig"},
		{name: "expired", in: link(Link{Reason: "ClientCertificateExpired"}), want: "warning link", says: "replace /k/kubelet.conf with a kubeconfig"},
		{name: "expired, bootstrap", in: link(Link{Reason: "ClientCertificateExpired", Bootstrap: "/k/bootstrap.conf"}), want: "warning link", says: "bootstrap kubeconfig at /k/bootstrap.conf"},
		{name: "no credentials", in: link(Link{Reason: "NoCredentials"}), want: "warning link", says: "replace /k/kubelet.conf with a kubeconfig"},
		{name: "the configuration lost its cluster", in: lostCluster, want: "warning link", says: "run islet accept"},
		{name: "not approved", in: link(Link{Reason: "Bootstrapping", Bootstrap: "/k/bootstrap.conf"}), want: "warning link", says: "approve"},
		{name: "firewall", sys: func(s *System) {
			s.Find = func(n string) (string, error) { return n, nil }
			s.Output = func(_ context.Context, path string, _ ...string) (string, error) {
				return map[string]string{"nft": "chain FORWARD { type filter hook forward priority 0; policy drop; }"}[path], nil
			}
		}, want: "warning forward-drop", says: "-i islet0"},
		{name: "Docker", files: files{"sys/class/net/docker0/x": ""}, want: "info forward-drop"},
		{name: "no forwarding", files: files{"proc/sys/net/ipv4/ip_forward": "0"}, in: func(i *Input) { i.ForeignNetwork = true }, want: "warning ip-forward"},
		{name: "k3s network", files: files{"proc/net/route": "h\ncni0\t00002A0A\t00000000\t1\t0\t0\t0\t0000FFFF\n"}, want: "warning pod-network", says: "10.42.0.0/16"},
		{name: "IPv6 clash", files: files{"proc/net/ipv6_route": "fd000042000000000000000000000000 30 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 wg0\n"}, want: "warning pod-network", says: "wg0"},
		{name: "its own route", files: files{"proc/net/route": "h\nislet0\t00002A0A\t00000000\t1\t0\t0\t0\t00FFFFFF\n"}, want: "ok pod-network"},
		{name: "loop", files: files{"etc/resolv.conf": "nameserver 127.0.0.53", "run/systemd/resolve/resolv.conf": "nameserver 9.9.9.9"}, want: "ok resolv-conf", says: "behind it"},
		{name: "local server", files: files{"etc/resolv.conf": "nameserver ::1"}, want: "warning resolv-conf", says: "::1"},
		{name: "no server", files: files{"etc/resolv.conf": gone}, want: "warning resolv-conf"},
		{name: "too many", files: files{"etc/resolv.conf": strings.Repeat("nameserver 9.9.9.9\n", 4)}, want: "info resolv-conf"},
		{name: "no DNS wanted", in: func(i *Input) { i.ResolvConf = "" }, want: "info resolv-conf"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, sys := board(), system()
			for name, text := range c.files {
				f[name] = (&fstest.MapFile{Data: []byte(text)})
				if text == gone {
					delete(f, name)
				}
			}
			in := input(f)
			if c.in != nil {
				c.in(&in)
			}
			if c.sys != nil {
				c.sys(&sys)
			}
			severity, id, _ := strings.Cut(c.want, " ")
			findings := Check(context.Background(), in, sys)
			for _, got := range findings {
				if got.ID == id && got.Severity.String() == severity && strings.Contains(got.What+" "+got.Advice, c.says) {
					if got.Severity > OK && got.Advice == "" {
						t.Error("a finding without advice")
					}
					if (got.Severity == Error) != (severity == "error") || severity == "error" && ExitCode(findings) != 1 {
						t.Error("the exit code of an error is 0")
					}
					return
				}
			}
			t.Errorf("want %s saying %q in %+v", c.want, c.says, findings)
		})
	}
}

func disk(d host.Disk) func(*System) {
	return func(s *System) { s.Disk = func(context.Context, string) (host.Disk, error) { return d, nil } }
}

// link makes the running agent report l as the state of its connection to the control plane.
func lostCluster(in *Input) {
	in.Link = func(context.Context) (Link, bool) { return Link{Reason: "NoCredentials"}, true }
}

func link(l Link) func(*Input) {
	l.Kubeconfig = "/k/kubelet.conf"
	return func(in *Input) { in.Link = func(context.Context) (Link, bool) { return l, true } }
}

// This helper makes the running agent report the given sandboxes.
func sandboxes(ids ...string) func(*Input) {
	return func(i *Input) { i.Sandboxes = func(context.Context) ([]string, bool) { return ids, true } }
}

func at(year int) func(*System) {
	return func(s *System) { s.Now = func() time.Time { return time.Date(year, 1, 2, 0, 0, 0, 0, time.UTC) } }
}

// TestIsletNamedKubelet checks that islet is not reported as a second kubelet when its program is installed under the name kubelet.
func TestIsletNamedKubelet(t *testing.T) {
	f := board()
	f["proc/7/comm"] = &fstest.MapFile{Data: []byte("kubelet")}
	f["proc/7/exe"] = f["proc/42/exe"]
	f["sys/fs/cgroup/kubepods/podx/cgroup.procs"] = &fstest.MapFile{}
	f["proc/net/tcp"] = &fstest.MapFile{Data: []byte("h\n 0: 00000000:280A 0:0 0A\n")}
	for _, got := range Check(context.Background(), input(f), system()) {
		if got.Severity != OK {
			t.Errorf("%+v", got)
		}
	}
}

func TestZippedKernelConfig(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte("CONFIG_CGROUP_BPF=y\nCONFIG_NFT_NAT=y\n")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	p := &checkup{Input: Input{Host: fstest.MapFS{"proc/config.gz": {Data: b.Bytes()}}}}
	if c := p.kernelConfig("x"); c["CONFIG_NFT_NAT"] != "y" {
		t.Errorf("got %v", c)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if f := Check(ctx, input(board()), system()); len(f) != 1 || f[0].ID != "interrupted" {
		t.Errorf("got %+v", f)
	}
}

// TestWriteHostileText checks the output of findings and remedies that quote other programs or servers. The quoted text can neither change
// the terminal nor add lines.
func TestWriteHostileText(t *testing.T) {
	const bad = "\x1b[2J\u009b\u202e\x07\nerror fake"
	findings := []Finding{{ID: "link", Severity: Warning, What: bad, Advice: bad, remedy: &remedy{bad, func() error { return errors.New(bad) }}}}
	var b strings.Builder
	err := Write(&b, findings, false)
	Fix(&b, findings, true)
	Fix(&b, findings, false)
	findings[0].remedy.remove = func() error { return nil }
	Fix(&b, findings, false)
	if err != nil || strings.ContainsAny(b.String(), "\x1b\u009b\u202e\x07") || strings.Count(b.String(), "\n") != 6 {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestWrite(t *testing.T) {
	findings := []Finding{{ID: "a", Severity: OK, What: "fine"}, {ID: "b", Severity: Error, What: "broken", Advice: "mend it"}}
	var short, long strings.Builder
	if err := errors.Join(Write(&short, findings, false), Write(&long, findings, true)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(short.String(), "fine") || !strings.Contains(long.String(), "fine") ||
		!strings.Contains(short.String(), "-> mend it") {
		t.Errorf("%s\n%s", short.String(), long.String())
	}
	if data, err := json.Marshal(findings[1]); err != nil || !strings.Contains(string(data), `"severity":"error"`) {
		t.Errorf("%s %v", data, err)
	}
}

// TestThisMachine checks that the doctor completes on the machine that runs the test.
func TestThisMachine(t *testing.T) {
	in := input(nil)
	in.Host, in.Self = os.DirFS("/"), os.Getpid()
	findings := Check(context.Background(), in, NewSystem())
	if len(findings) < 20 {
		t.Errorf("only %d findings", len(findings))
	}
	var b strings.Builder
	if err := Write(&b, findings, true); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + b.String())
}

func TestDevices(t *testing.T) {
	for _, c := range []struct {
		found []Complaint
		err   error
		want  Severity
	}{
		{nil, nil, OK}, {[]Complaint{{What: "none", Absent: true}}, nil, Info}, {[]Complaint{{What: "open"}}, nil, Warning}, {nil, errors.New("no /sys"), Warning},
	} {
		p := &checkup{Input: Input{Devices: func() ([]Complaint, error) { return c.found, c.err }}}
		p.checkDevices(t.Context())
		if len(p.findings) != 1 || p.findings[0].ID != "devices" || p.findings[0].Severity != c.want {
			t.Errorf("%+v: %+v", c, p.findings)
		}
	}
	p := &checkup{}
	if p.checkDevices(t.Context()); len(p.findings) > 0 {
		t.Errorf("without devices: %+v", p.findings)
	}
}

// TestShippedRuntime checks findings on a host with a vulnerable runc. The doctor reports the vulnerabilities only if the OCI runtime that
// islet ships does not work.
func TestShippedRuntime(t *testing.T) {
	sys, in := system(), input(board())
	in.ShippedOCI = "/usr/lib/islet/crun"
	works := true
	sys.Output = func(_ context.Context, path string, _ ...string) (string, error) {
		switch {
		case strings.HasSuffix(path, "runc"):
			return "runc version 1.1.11\n", nil
		case path == in.ShippedOCI && !works:
			return "", errors.New("exec format error")
		}
		return "crun version 1.21\n", nil
	}
	sys.Find = func(name string) (string, error) {
		if name == "crun" {
			return "", errors.New("not found")
		}
		return "/" + strings.TrimPrefix(name, "/"), nil
	}
	of := func(id string) (found []Finding) {
		for _, f := range Check(context.Background(), in, sys) {
			if f.ID == id {
				found = append(found, f)
			}
		}
		return found
	}
	if f := of("runtime-shipped"); len(f) != 1 || f[0].Severity != OK || !strings.Contains(f[0].What, in.ShippedOCI) {
		t.Errorf("%+v", f)
	}
	if f := of("runtime-escapes"); len(f) != 0 {
		t.Errorf("runc is not used: %+v", f)
	}
	works = false
	if f := of("runtime-shipped"); len(f) != 1 || f[0].Severity != Warning {
		t.Errorf("%+v", f)
	}
	if f := of("runtime-escapes"); len(f) != 1 || f[0].Severity != Warning {
		t.Errorf("runc is used: %+v", f)
	}
}
