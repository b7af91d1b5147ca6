package eviction

import (
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/internal/demand"
)

// TestKilled checks that an out-of-memory kill sets the condition MemoryPressure for the condition's transition period, even if no
// measurement showed a pressure. An old kill is ignored.
func TestKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(*world) {})
		w.start(t)
		w.checkEvents(t, "pods may ask again")
		w.OutOfMemory(6 * time.Minute)
		w.checkEvents(t)
		w.OutOfMemory(time.Minute)
		w.OutOfMemory(2 * time.Minute) // a restarted agent reports several kills at once
		w.checkEvents(t, "changed")
		if got := w.Conditions(); !slices.Equal(got, []v1.NodeConditionType{v1.NodeMemoryPressure}) {
			t.Errorf("conditions %v", got)
		}
		if !regexp.MustCompile(`conditions=\[MemoryPressure\] before=\[\] by=oom`).Match(w.lines.Bytes()) {
			t.Errorf("the log does not say why: %s", &w.lines)
		}
		time.Sleep(4*time.Minute - time.Second) // in the bubble's time, like all later sleeps
		w.checkEvents(t)
		time.Sleep(time.Second)
		w.checkEvents(t, "changed", "pods may ask again")
	})
}

// TestNobodyForMemory checks that disk space is reclaimed even if no pod can be evicted for the lack of memory.
func TestNobodyForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) {
			w.free, w.disk, w.garbage = 50, 50, 60
			w.pods = []Candidate{newCandidate(aPod("critical", "", "", demand.SystemCritical), 400*mib, 1)}
		})
		w.start(t)
		memory := []string{
			"node: EvictionThresholdMet Attempting to reclaim memory", "age of memory.available",
			"age of nodefs.available", "age of containerfs.available",
		}
		disk := []string{"node: EvictionThresholdMet Attempting to reclaim ephemeral-storage", "reclaim containers", "reclaim images"}
		w.checkEvents(t, slices.Concat([]string{"changed", "pods may ask again"}, memory, disk, memory[:2])...) // memory is measured again
		if w.disk != 110 {
			t.Errorf("%d MiB are free", w.disk)
		}
	})
}

// TestNobodyForDisk checks that a memory event of the kernel is handled while a disk stays full.
func TestNobodyForDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) {
			w.disk = 50
			w.pods = []Candidate{newCandidate(static(aPod("own", "", "", 0)), 300*mib, 1)} // the pod uses no disk space
		})
		w.start(t)
		disk := []string{
			"node: EvictionThresholdMet Attempting to reclaim ephemeral-storage", "reclaim containers",
			"reclaim images", "age of nodefs.available", "age of containerfs.available",
		}
		foreign := "node: ForeignFilesFillDisk The disk of nodefs.available is nearly full (threshold quantity: 100Mi, available: 50Mi), and no pod is evicted: " +
			"the pods use only 0 of it. Other files, or critical pods, fill the disk. Unused images and containers were removed."
		said := append(slices.Clone(disk), foreign)
		w.checkEvents(t, slices.Concat([]string{"changed", "pods may ask again"}, said)...)
		time.Sleep(minInterval / 2) // in the bubble's time
		w.set(func() { w.free = 99 })
		w.wake <- struct{}{}
		time.Sleep(wakeGap)
		synctest.Wait()
		if !regexp.MustCompile(`uid=own.* signal=memory\.available by=kernel`).Match(w.lines.Bytes()) {
			t.Errorf("the log: %s", &w.lines)
		}
	})
}

// TestLull checks a disk that is filled by files outside pods. Images are not reclaimed at each measurement of such a disk. They are
// reclaimed as soon as a pod's files may be the cause.
func TestLull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) {
			w.disk = 50
			w.pods = []Candidate{writes(aPod("small", "", "", 0), 0, 4096, 0), writes(aPod("grows", "", "", 0), 0, 4096, 0)}
		})
		w.start(t)
		counts := func() (n int) {
			w.set(func() {
				for _, line := range w.log {
					if line == "reclaim images" {
						n++
					}
				}
				w.log = nil
			})
			return n
		}
		if n := counts(); n != 1 {
			t.Fatalf("counted %d times at once", n)
		}
		sleepFor(time.Hour)
		if n := counts(); n < 12 || n > 16 {
			t.Errorf("images were reclaimed %d times in an hour without a change", n)
		}
		for range 40 { // other files grow by one MiB per measurement
			w.set(func() { w.disk-- })
			sleepFor(minInterval)
		}
		if n := counts(); n < 5 || n > 12 {
			t.Errorf("images were reclaimed %d times while other files filled the disk", n)
		}
		grows := writes(w.pods[1].Pod, 0, 60*mib, 0)
		w.set(func() { w.disk, w.pods[1] = 0, grows })
		sleepFor(minInterval + time.Second)
		if _, gone := w.ends[grows.Pod.UID]; !gone {
			t.Errorf("the pod that filled the disk is not evicted; the log: %s", &w.lines)
		}
	})
}
