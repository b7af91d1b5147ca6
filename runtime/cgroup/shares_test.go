package cgroup

import (
	"log/slog"
	"os"
	"strconv"
	"testing"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/internal/demand"
)

// TestBurstableAfterRestart checks the CPU shares of the Burstable class when pods start and end after a restart of the agent. The shares
// must include the pods from before the restart.
func TestBurstableAfterRestart(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	root := "islet-test-burstable-" + strconv.Itoa(os.Getpid())
	t.Cleanup(func() {
		for _, d := range dirs(root) {
			removeTree(d)
		}
	})
	start := func() *Pods {
		p, err := New(Config{Driver: Cgroupfs, Root: "/" + root, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	asks := func(uid, cpu string) *v1.Pod { return pod(uid, v1.ResourceRequirements{Requests: list("cpu", cpu)}) }
	// The next function checks the CPU shares of the class. They are exact with cgroup v1. With cgroup v2 they are a range, because a
	// weight is less precise.
	has := func(shares string, least, most uint64) {
		t.Helper()
		convert := cgroups.ConvertCPUSharesToCgroupV2Value
		all := shares
		for w := convert(least); w <= convert(most); w++ {
			all += " " + strconv.FormatUint(w, 10)
		}
		expect(t, "/"+root+"/kubepods/burstable", "cpu.shares cpu.weight", all)
	}
	first := start()
	must(first.Prepare(t.Context(), asks("1", "2")))
	must(first.Prepare(t.Context(), asks("2", "500m")))
	must(first.Prepare(t.Context(), asks("3", "250m")))
	has("2816", 2816, 2816)

	second := start()
	must(second.Prepare(t.Context(), asks("4", "500m")))
	has("3328", 3200, 3328)
	must(second.Release(t.Context(), "2"))
	has("2816", 2700, 2816)
	must(second.Prepare(t.Context(), asks("1", "2"))) // a repeated Prepare must not count the pod twice
	has("2816", 2700, 2816)
	for _, uid := range []string{"1", "4"} {
		must(second.Release(t.Context(), types.UID(uid)))
	}
	third := start()
	must(third.Release(t.Context(), "3")) // the pod ends before the first Prepare of this agent
	must(third.Prepare(t.Context(), asks("5", "1")))
	has("1024", 1024, 1024)
}

// TestSharesOf checks that sharesOf returns CPU shares that are converted back to the same weight.
func TestSharesOf(t *testing.T) {
	for _, shares := range []uint64{2, 3, 100, 1024, 4096, 100000, demand.MaxShares} {
		weight := cgroups.ConvertCPUSharesToCgroupV2Value(shares)
		if got := sharesOf(int64(weight)); cgroups.ConvertCPUSharesToCgroupV2Value(uint64(got)) != weight {
			t.Errorf("%d shares: weight %d, found %d", shares, weight, got)
		}
	}
}
