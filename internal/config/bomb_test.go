package config

import (
	"runtime"
	"strings"
	"testing"
)

// TestSentBombs checks that rejecting a sent configuration needs little memory.
func TestSentBombs(t *testing.T) {
	const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for name, body := range map[string]string{
		"wide":            "a: [" + strings.Repeat("{},", 300_000) + "]\n",
		"null":            "registerWithTaints: [" + strings.Repeat("null,", 180_000) + "]\n",
		"one text often":  "a: &a " + strings.Repeat("x", 100_000) + "\nb: [" + strings.Repeat("*a,", 30_000) + "]\n",
		"doubled in turn": "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: &d [*c,*c]\ne: &e [*d,*d]\nf: [*e,*e]\n",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, err := Split("sent", []byte(head+body))
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; err == nil || took > 8<<20 {
				t.Errorf("Split: got %v with %d MiB", err, took>>20)
			}
			if err := checkWeight("sent", []byte(head+body)); err == nil || !strings.Contains(err.Error(), "sent") {
				t.Errorf("got %v", err)
			}
		})
	}
	if err := checkWeight("sent", []byte(head+"evictionHard: &e {memory.available: 1Mi}\nevictionSoft: *e\n")); err != nil {
		t.Errorf("one alias: %v", err)
	}
}
