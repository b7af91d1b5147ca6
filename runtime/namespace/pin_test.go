package namespace

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPin(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := filepath.Join(t.TempDir(), "sandbox")
	c := Config{Net: true, IPC: true, UTS: true, Hostname: "web-0", Sysctls: map[string]string{"net.ipv4.ip_unprivileged_port_start": "0", "kernel/shm_rmid_forced": "1"}}
	t.Cleanup(func() { Unpin(dir) })
	for range 2 { // the second one replaces the first
		if err := Pin(dir, c); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []string{Net, IPC, UTS} {
		if !Pinned(filepath.Join(dir, n)) {
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
		t.Errorf("directory is left: %v", err)
	}
	if err := Pin(dir, Config{UTS: true, Net: true, Sysctls: map[string]string{"net.no.such": "1"}}); err == nil {
		t.Error("a sysctl that does not exist was set")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a failure left something: %v", err)
	}
}

// A sysctl that is not in a namespace of the sandbox's own is the host's.
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
