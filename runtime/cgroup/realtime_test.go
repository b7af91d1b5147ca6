package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/podtest"
)

// TestBudgets checks that the cgroups of a pod and above it have enough budget for FIFO and RR, that no budget is lowered, and that
// nothing changes for pods without real time and on kernels without budgets.
func TestBudgets(t *testing.T) {
	root := t.TempDir()
	budgets := map[string]string{".": "950000", "a": "0", "a/kubepods": "100000", "a/kubepods/podx": "0"}
	reset := func() {
		t.Helper()
		for dir, text := range budgets {
			if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, dir, budgetFile), []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect := func(name string, want map[string]string) {
		t.Helper()
		for dir, text := range want {
			if got, err := os.ReadFile(filepath.Join(root, dir, budgetFile)); err != nil || strings.TrimSpace(string(got)) != text {
				t.Errorf("%s: %s has %q, not %q: %v", name, dir, got, text, err)
			}
		}
	}
	own := 300 * time.Millisecond
	p := &Pods{c: Config{RealTime: func(*v1.Pod) (time.Duration, time.Duration) { return own, 500 * time.Millisecond }}}
	p.base = map[v1.PodQOSClass]map[string]string{v1.PodQOSGuaranteed: {"cpu": filepath.Join(root, "a/kubepods")}}
	pod := podtest.New("x")
	reset()
	if err := p.raiseBudget(pod); err != nil {
		t.Fatal(err)
	}
	expect("not Guaranteed", budgets)
	limits := v1.ResourceList{"cpu": resource.MustParse("300m"), "memory": resource.MustParse("1Mi")}
	for i := range pod.Spec.Containers {
		pod.Spec.Containers[i].Resources = v1.ResourceRequirements{Limits: limits, Requests: limits}
	}
	for range 2 {
		if err := p.raiseBudget(pod); err != nil {
			t.Fatal(err)
		}
		expect("raised", map[string]string{".": "950000", "a": "500000", "a/kubepods": "500000", "a/kubepods/podx": "300000"})
	}
	own = 100 * time.Millisecond
	if err := p.raiseBudget(pod); err != nil {
		t.Fatal(err)
	}
	expect("kept", map[string]string{"a/kubepods/podx": "300000"})
	reset()
	own = 0
	if err := p.raiseBudget(pod); err != nil {
		t.Fatal(err)
	}
	expect("no real time", budgets)
	own = 1
	p.base[v1.PodQOSGuaranteed]["cpu"] = t.TempDir()
	if err := p.raiseBudget(pod); err != nil {
		t.Errorf("a kernel without budgets: %v", err)
	}
}
