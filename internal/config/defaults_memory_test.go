package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestKeptFree(t *testing.T) {
	for text, want := range map[string]string{
		"MemTotal:       24684000 kB\nMemFree: 1 kB\n": "100Mi",
		"MemTotal:         819200 kB\n":                "100Mi",
		"MemTotal:         491520 kB\n":                "61440Ki", // a board of 512 MiB
		"MemTotal:         100000 kB\n":                "3125Ki",  // a machine of 128 MiB
		"MemTotal: many kB\n":                          "100Mi",
		"MemTotal: 99999999999999999999 kB\n":          "100Mi",
		"":                                             "100Mi",
	} {
		file := filepath.Join(t.TempDir(), "meminfo")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := defaultThreshold(totalMemory(file)); got != want {
			t.Errorf("%q: %s, not %s", text, got, want)
		}
	}
	if got := defaultThreshold(totalMemory(filepath.Join(t.TempDir(), "none"))); got != "100Mi" {
		t.Errorf("without the file: %s", got)
	}
	if has := totalMemory("/proc/meminfo"); has < 64<<20 {
		t.Errorf("this machine has %d bytes", has)
	}
}

func TestSetAside(t *testing.T) {
	for memory, want := range map[uint64]string{
		24 << 30: "", 800 << 20: "", 0: "",
		800<<20 - 1: "98304Ki", 218 << 20: "98304Ki", 92 << 20: "84787Ki",
	} {
		if got := defaultReservation(memory); got != want {
			t.Errorf("of %d MiB %q is set aside, not %q", memory>>20, got, want)
		}
	}
}

// TestThresholdOfOnesOwn checks that configured values are used on every machine.
func TestThresholdOfOnesOwn(t *testing.T) {
	c, _ := mustLoad(t, "--eviction-hard=memory.available<100Mi")
	if got := c.Kubelet.EvictionHard["memory.available"]; got != "100Mi" || len(c.Kubelet.EvictionHard) != 1 {
		t.Errorf("%v", c.Kubelet.EvictionHard)
	}
	c, _ = mustLoad(t)
	if got := c.Kubelet.EvictionHard["memory.available"]; got != defaultThreshold(totalMemory("/proc/meminfo")) {
		t.Errorf("by default: %s", got)
	}
}

// TestSuit checks that the defaults leave memory for pods on every machine, and do not conflict with configured values.
func TestSuit(t *testing.T) {
	bytes := func(text string) int64 {
		q, err := resource.ParseQuantity(text)
		if text != "" && err != nil {
			t.Fatal(err)
		}
		return q.Value()
	}
	for mib := range uint64(1200) {
		k := defaultKubelet()
		k.EvictionHard = defaultEvictionHard()
		setMemoryDefaults(&k, mib<<20, func(string) bool { return false })
		if kept := bytes(k.EvictionHard["memory.available"]) + bytes(k.KubeReserved["memory"]); mib > 0 && kept >= int64(mib<<20) {
			t.Errorf("of %d MiB %d bytes are kept", mib, kept)
		}
	}
	for _, field := range []string{"evictionHard", "kubeReserved", "systemReserved", "reservedMemory"} {
		k := defaultKubelet()
		k.EvictionHard = defaultEvictionHard()
		told := setMemoryDefaults(&k, 184<<20, func(one string) bool { return one == field })
		if (len(told) == 1 && strings.Contains(told[0].Text, "{memory: 98304Ki}")) != (field == "evictionHard") {
			t.Errorf("with %s: the notices are %q", field, told)
		}
		if told := setMemoryDefaults(&k, 184<<20, func(string) bool { return true }); len(told) > 0 {
			t.Errorf("with all fields: the notices are %q", told)
		}
		if len(k.KubeReserved) > 0 {
			t.Errorf("with %s: %v", field, k.KubeReserved)
		}
		if kept := k.EvictionHard["memory.available"]; (kept == "100Mi") != (field == "evictionHard") {
			t.Errorf("with %s: %s", field, kept)
		}
	}
}
