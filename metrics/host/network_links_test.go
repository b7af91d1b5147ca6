package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/islet-edge/islet/metrics/host"
)

// TestNetworkLinks checks the state of interfaces with and without a cable, of a wireless one, of the loopback interface with its
// addresses, and of one that no longer exists.
func TestNetworkLinks(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"eth0/operstate": "up\n", "eth0/speed": "1000\n", "eth1/operstate": "down\n", "eth1/speed": "-1\n",
		"wlan0/operstate": "dormant\n", "wlan0/phy80211/index": "0\n", "lo/operstate": "unknown\n",
	} {
		file := filepath.Join(root, "sys/class/net", name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := host.New(host.Config{Root: root}).NetworkLinks([]string{"eth0", "eth1", "wlan0", "lo", "gone-for-good"})
	if len(got) != 5 || got[0].State != "up" || got[0].Mbit != 1000 || got[0].Radio || got[1].State != "down" || got[1].Mbit != 0 ||
		got[2].State != "dormant" || !got[2].Radio || len(got[3].Addresses) == 0 || got[3].Addresses[0] != "127.0.0.1/8" ||
		got[4].State != "" || len(got[4].Addresses) != 0 {
		t.Errorf("%+v", got)
	}
	for _, l := range got {
		if l.Addresses == nil {
			t.Errorf("%s: the addresses are null in JSON", l.Name)
		}
	}
}

// TestClockSync checks that the state of the clock is one of the known ones, and that reading it does not change it.
func TestClockSync(t *testing.T) {
	first := host.ReadClockSync()
	if first != host.ClockSynchronized && first != host.ClockUnsynchronized && first != host.ClockUnknown {
		t.Errorf("%q", first)
	}
	if second := host.ReadClockSync(); second != first {
		t.Errorf("%q after %q", second, first)
	}
}
