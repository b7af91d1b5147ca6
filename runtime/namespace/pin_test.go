package namespace

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPin(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := filepath.Join(t.TempDir(), "sandbox")
	c := Config{Net: true, IPC: true, UTS: true, Hostname: "web-0", Sysctls: map[string]string{"net.ipv4.ip_unprivileged_port_start": "0", "kernel/shm_rmid_forced": "1"}}
	t.Cleanup(func() { Unpin(dir) })
	for range 2 { // the second call replaces the result of the first
		if err := Pin(dir, c); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []string{Net, IPC, UTS} {
		if !IsPinned(filepath.Join(dir, n)) {
			t.Errorf("%s is not pinned", n)
		}
	}
	err := Do(filepath.Join(dir, Net), func() error {
		links, err := net.Interfaces()
		if err != nil {
			return err
		}
		if len(links) != 1 || links[0].Flags&net.FlagUp == 0 {
			t.Errorf("links in the new namespace: %v", links)
		}
		b, err := os.ReadFile("/proc/sys/net/ipv4/ip_unprivileged_port_start")
		if strings.TrimSpace(string(b)) != "0" {
			t.Errorf("sysctl is %q", b)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := Unpin(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was not removed: %v", err)
	}
	if err := Pin(dir, Config{UTS: true, Net: true, Sysctls: map[string]string{"net.no.such": "1"}}); err == nil {
		t.Error("a sysctl that does not exist was set")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was not removed after a failure: %v", err)
	}
}

// TestPinUsers checks that the user namespace owns the other namespaces of a sandbox. The settings of these namespaces are applied.
func TestPinUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := filepath.Join(t.TempDir(), "sandbox")
	c := Config{Net: true, IPC: true, UTS: true, Hostname: "web-0", Users: &Users{UIDs: IDs{131072, 65536}, GIDs: IDs{196608, 65536}},
		Sysctls: map[string]string{"net.ipv4.ip_unprivileged_port_start": "0", "net.ipv4.ping_group_range": "0 2147483647", "kernel.shm_rmid_forced": "1", "fs.mqueue.msg_max": "20"}}
	t.Cleanup(func() { Unpin(dir) })
	for range 2 {
		if err := Pin(dir, c); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(c.Names(), " "); got != "user net ipc uts" {
		t.Errorf("namespaces %q", got)
	}
	users, err := os.Open(filepath.Join(dir, User))
	if err != nil {
		t.Fatal(err)
	}
	defer users.Close()
	want, err := users.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []string{Net, IPC, UTS} {
		ns, err := os.Open(filepath.Join(dir, n))
		if err != nil {
			t.Fatal(err)
		}
		defer ns.Close()
		fd, err := unix.IoctlRetInt(int(ns.Fd()), unix.NS_GET_USERNS)
		if err != nil {
			t.Fatalf("owner of %s: %v", n, err)
		}
		owner := os.NewFile(uintptr(fd), "owner")
		if got, err := owner.Stat(); err != nil || !os.SameFile(got, want) {
			t.Errorf("%s belongs to another user namespace: %v", n, err)
		}
		owner.Close()
	}
	out, err := exec.Command("nsenter", "--user="+users.Name(), "--net="+filepath.Join(dir, Net), "--ipc="+filepath.Join(dir, IPC),
		"--uts="+filepath.Join(dir, UTS), "sh", "-c",
		"cat /proc/self/uid_map /proc/self/gid_map /proc/self/setgroups /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shm_rmid_forced /proc/sys/fs/mqueue/msg_max; hostname").CombinedOutput()
	if got := strings.Join(strings.Fields(string(out)), " "); err != nil || got != "0 131072 65536 0 196608 65536 allow 0 1 20 web-0" {
		t.Errorf("inside: %q, %v", got, err)
	}
	if err := Unpin(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory was not removed: %v", err)
	}
	c.Users.UIDs.First = 4294967295 // invalid
	if err := Pin(dir, c); err == nil || !strings.Contains(err.Error(), "create a user namespace") {
		t.Errorf("invalid IDs: %v", err)
	}
}

// TestHostSysctls checks that a sysctl is rejected if it would be set for the host.
func TestHostSysctls(t *testing.T) {
	all, none := Config{Net: true, IPC: true, UTS: true}, Config{}
	for name, c := range map[string]struct {
		Config
		ok bool
	}{
		"net.ipv4.tcp_syncookies":    {all, true},
		"net/ipv4/tcp_syncookies":    {all, true},
		"net/ipv4/conf/eth0.1/x":     {all, true},
		"kernel.msgmax":              {all, true},
		"fs.mqueue.msg_max":          {Config{IPC: true}, true},
		"net.core.somaxconn":         {Config{IPC: true}, false},
		"kernel.sem":                 {Config{Net: true}, false},
		"kernel.domainname":          {Config{UTS: true}, true},
		"kernel/domainname":          {Config{Net: true, IPC: true}, false},
		"user.max_net_namespaces":    {all, false},
		"net.core.wmem_max":          {none, false},
		"kernel.core_pattern":        {all, false},
		"vm.overcommit_memory":       {all, false},
		"net/../kernel/core_pattern": {all, false},
		"net.core/../../kernel.sem":  {all, false},
		"net/./../kernel/x":          {all, false},
		"kernel":                     {all, false},
		"":                           {all, false},
		"fs/mqueue/../../kernel/x":   {all, false},
	} {
		c.Sysctls = map[string]string{name: "1"}
		if err := c.check(); (err == nil) != c.ok {
			t.Errorf("%q with net %v, ipc %v: %v", name, c.Net, c.IPC, err)
		}
	}
	if got := sysctlPath("net.ipv4.conf.eth0/1.x"); got != "/proc/sys/net/ipv4/conf/eth0.1/x" || got != sysctlPath("net/ipv4/conf/eth0.1/x") {
		t.Errorf("path %s", got)
	}
}

// TestSysfs checks the sysfs of a pinned network namespace. Its superblock stays writable when a container mounts it read-only.
func TestSysfs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, at := filepath.Join(t.TempDir(), "sandbox"), t.TempDir()
	t.Cleanup(func() { Unpin(dir); unix.Unmount(at, unix.MNT_DETACH) })
	for name, c := range map[string]Config{
		"users of the host": {Net: true, IPC: true, UTS: true},
		"users of its own":  {Net: true, IPC: true, UTS: true, Users: &Users{UIDs: IDs{131072, 65536}, GIDs: IDs{131072, 65536}}},
	} {
		if err := Pin(dir, c); err != nil {
			t.Fatal(err)
		}
		for range 2 { // without the pin, each container's mount would be the first one
			err := Do(filepath.Join(dir, Net), func() error { return unix.Mount("sysfs", at, "sysfs", unix.MS_RDONLY, "") })
			if err != nil {
				t.Fatal(err)
			}
			if got := superblock(t, at); got != "rw" {
				t.Errorf("%s: the superblock is %s", name, got)
			}
			if err := unix.Unmount(at, 0); err != nil {
				t.Fatal(err)
			}
		}
		if entries, err := os.ReadDir(filepath.Join(dir, sysfsDir)); err != nil || len(entries) > 0 {
			t.Errorf("%s: %d entries are visible, %v", name, len(entries), err)
		}
		if err := Unpin(dir); err != nil {
			t.Fatal(err)
		}
		table, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil || strings.Contains(string(table), " "+dir+"/") {
			t.Errorf("%s: a mount remains after Unpin, %v", name, err)
		}
	}
}

// TestUnpinHalf checks that Unpin removes the mounts that an interrupted call of Pin has left.
func TestUnpinHalf(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := filepath.Join(t.TempDir(), "sandbox")
	t.Cleanup(func() { Unpin(dir) })
	for mounted := range 3 {
		if err := os.MkdirAll(filepath.Join(dir, sysfsDir), 0o700); err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, sysfsDir)
		for _, m := range []struct {
			source, kind string
			flags        uintptr
		}{{"sysfs", "sysfs", 0}, {filepath.Join(at, "fs/cgroup"), "", unix.MS_BIND}}[:mounted] {
			if err := unix.Mount(m.source, at, m.kind, m.flags, ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := Unpin(dir); err != nil {
			t.Errorf("%d mounts: %v", mounted, err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%d mounts: the directory was not removed, %v", mounted, err)
		}
	}
}

// superblock returns ro or rw: the first option of the superblock at a mount point.
func superblock(t *testing.T, path string) string {
	t.Helper()
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); f[4] == path {
			options, _, _ := strings.Cut(f[len(f)-1], ",")
			return options
		}
	}
	t.Fatalf("nothing is mounted at %s", path)
	return ""
}
