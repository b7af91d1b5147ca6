package netns_test

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"testing"

	"github.com/islet-edge/islet/net/netns"
	"github.com/islet-edge/islet/net/netns/netnstest"
)

func id(t *testing.T) string {
	t.Helper()
	is, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Error(err)
	}
	return is
}

func TestDoRunsThereAndComesBack(t *testing.T) {
	home := id(t)
	ns, path := netnstest.New(t)
	want, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			err := ns.Do(func() error {
				if got := id(t); got != want {
					t.Errorf("ran in %s, want %s", got, want)
				}
				return fs.ErrInvalid
			})
			if !errors.Is(err, fs.ErrInvalid) {
				t.Errorf("error is %v", err)
			}
			if got := id(t); got != home {
				t.Errorf("a thread was left in %s", got)
			}
		})
	}
	wg.Wait()
}

func TestDoHandsPanicToTheCaller(t *testing.T) {
	ns, _ := netnstest.New(t)
	defer func() {
		if r := recover(); r != "boom" {
			t.Errorf("recovered %v", r)
		}
	}()
	_ = ns.Do(func() error { panic("boom") })
	t.Error("no panic")
}

func TestGoneNamespace(t *testing.T) {
	ns := netns.At("/nowhere")
	if err := ns.Do(func() error { return nil }); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Do: %v", err)
	}
	if _, err := ns.Netlink(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Netlink: %v", err)
	}
	if err := netns.At("/etc/passwd").Do(func() error { return nil }); err == nil {
		t.Error("a file that is not a namespace was entered")
	}
}

func TestSet(t *testing.T) {
	ns, _ := netnstest.New(t)
	forward := netns.Sysctl{Name: "ipv4/ip_forward", Value: "1"}
	if err := ns.Set(forward, netns.Sysctl{Name: "ipv4/no_such", Value: "1", Optional: true}); err != nil {
		t.Fatal(err)
	}
	if err := ns.Set(netns.Sysctl{Name: "ipv4/no_such", Value: "1"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error is %v", err)
	}
	other, _ := netnstest.New(t) // a new namespace may inherit values from the host
	if err := other.Set(netns.Sysctl{Name: "ipv4/ip_forward", Value: "0"}); err != nil {
		t.Fatal(err)
	}
	for n, want := range map[netns.NS]string{ns: "1\n", other: "0\n"} {
		err := n.Do(func() error {
			got, err := os.ReadFile("/proc/sys/net/ipv4/ip_forward")
			if string(got) != want {
				t.Errorf("ip_forward is %q, want %q", got, want)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}
