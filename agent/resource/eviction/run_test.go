package eviction

import (
	"os"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/internal/demand"
	"github.com/islet-edge/islet/internal/eventtest"
)

func TestMain(m *testing.M) { os.Exit(eventtest.Main(m, "eviction")) }

// TestWoken checks that the first pod in the ranking is evicted within a second after a memory event of the kernel. No more pods are
// evicted than necessary.
func TestWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) {
			w.pods = []Candidate{
				newCandidate(aPod("small", "", "", 0), 10*mib, 1), newCandidate(aPod("big", "", "", 0), 300*mib, 1),
				newCandidate(aPod("critical", "", "", demand.SystemCritical), 400*mib, 1),
			}
		})
		w.start(t)
		w.checkEvents(t, "pods may ask again")
		if w.armed != [2]uint64{400, 0} {
			t.Errorf("armed %v", w.armed)
		}
		began := time.Now()
		w.set(func() { w.free = 99 })
		w.wake <- struct{}{}
		synctest.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("after %v", took)
		}
		time.Sleep(wakeGap)
		w.checkEvents(t, "changed", "node: EvictionThresholdMet Attempting to reclaim memory",
			"age of memory.available", "evict big 1s true", "big: Evicted memory", "count memory.available")
		for _, line := range []string{`conditions=\[MemoryPressure\]`, "uid=big"} {
			if !regexp.MustCompile(line + ".* by=kernel").Match(w.lines.Bytes()) {
				t.Errorf("the log line %q does not name the kernel as the cause: %s", line, &w.lines)
			}
		}
		time.Sleep(2 * time.Second) // in the bubble's time; nothing else happens
		w.checkEvents(t)
		if got := w.Conditions(); !slices.Equal(got, []v1.NodeConditionType{v1.NodeMemoryPressure}) {
			t.Errorf("conditions %v", got)
		}
		time.Sleep(5*time.Minute - 5*time.Second)
		w.checkEvents(t)
		time.Sleep(5 * time.Second)
		w.checkEvents(t, "changed", "pods may ask again")
		if got := w.Conditions(); len(got) > 0 {
			t.Errorf("conditions %v", got)
		}
	})
}

// TestGrows checks that a fast-growing pod is evicted within a second. At the time of the kernel's event, there is still enough free
// memory. When the agent sets the next mark, too little memory is free.
func TestGrows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.pods = []Candidate{newCandidate(aPod("fast", "", "", 0), 300*mib, 1)} })
		w.start(t)
		w.checkEvents(t, "pods may ask again")
		time.Sleep(minInterval / 2) // in the bubble's time, between two regular measurements
		w.set(func() { w.free = 110 })
		w.wake <- struct{}{}
		synctest.Wait()
		w.checkEvents(t)
		w.set(func() { w.free = 99 })
		time.Sleep(time.Second)
		w.checkEvents(t, "changed", "node: EvictionThresholdMet Attempting to reclaim memory",
			"age of memory.available", "evict fast 1s true", "fast: Evicted memory", "count memory.available")
		if !regexp.MustCompile("uid=fast.* by=kernel").Match(w.lines.Bytes()) {
			t.Errorf("the log does not name the kernel as the cause: %s", &w.lines)
		}
	})
}

// TestStart checks that memory is measured again one second after the start, when all watches are set. If there is no pressure, the next
// measurement of memory follows the kernel's next event.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.pods = []Candidate{newCandidate(aPod("early", "", "", 0), 300*mib, 1)} })
		w.start(t)
		w.checkEvents(t, "pods may ask again")
		w.set(func() { w.armed = [2]uint64{} })
		time.Sleep(armDelay) // in the bubble's time, like all later sleeps
		synctest.Wait()
		if w.armed != [2]uint64{400, 0} || w.lights != 1 || w.looks != 1 {
			t.Errorf("marks %v, %d measurements of memory, %d of all", w.armed, w.lights, w.looks)
		}
		time.Sleep(minInterval / 2)
		synctest.Wait()
		if w.lights != 1 {
			t.Errorf("%d measurements of memory", w.lights)
		}
	})
}

// TestGoneMeanwhile checks that no pod is evicted if memory was freed while the pods were measured. The kernel's OOM killer may free memory
// in this way.
func TestGoneMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) {
			w.pods = []Candidate{newCandidate(aPod("innocent", "", "", 0), 50*mib, 1)}
			w.relief = 200
		})
		w.start(t)
		w.checkEvents(t, "pods may ask again")
		w.set(func() { w.free = 99 })
		w.wake <- struct{}{}
		time.Sleep(2 * time.Second) // in the bubble's time, longer than all retries
		w.checkEvents(t, "changed", "node: EvictionThresholdMet Attempting to reclaim memory")
		if w.armed != [2]uint64{199, 0} {
			t.Errorf("armed %v", w.armed)
		}
		w.set(func() { w.free, w.relief = 99, 0 })
		w.wake <- struct{}{} // the next event is handled at once
		time.Sleep(wakeGap)
		w.checkEvents(t, "node: EvictionThresholdMet Attempting to reclaim memory", "age of memory.available",
			"evict innocent 1s true", "innocent: Evicted memory", "count memory.available")
	})
}

// TestGoneMeanwhileDiskToo checks the case that both memory and disk space are short, and memory is freed during the measurement. A pod is
// then evicted for the disk space.
func TestGoneMeanwhileDiskToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) {
			w.pods = []Candidate{newCandidate(aPod("hungry", "", "", 0), 50*mib, 1), writes(aPod("writer", "", "", 0), 0, 0, 50*mib)}
			w.relief = 200
		})
		w.start(t)
		w.checkEvents(t, "pods may ask again")
		w.set(func() { w.free, w.disk = 99, 50 })
		w.wake <- struct{}{}
		time.Sleep(time.Second) // in the bubble's time
		w.checkEvents(t, "changed", "node: EvictionThresholdMet Attempting to reclaim memory",
			"node: EvictionThresholdMet Attempting to reclaim ephemeral-storage", "reclaim containers", "reclaim images",
			"age of nodefs.available", "age of containerfs.available", "evict writer 1s true",
			"writer: Evicted ephemeral-storage", "count nodefs.available")
	})
}

// TestNothingLeft checks that critical pods are not evicted. While no pod can be evicted, frequent events of the kernel cause no additional
// measurements.
func TestNothingLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) {
			w.free, w.after = 50, time.Minute
			w.pods = []Candidate{
				newCandidate(aPod("slow", "", "", 0), 10*mib, 1),
				newCandidate(aPod("critical", "", "", demand.SystemCritical), 400*mib, 1),
			}
		})
		w.start(t)
		w.checkEvents(t, "changed", "pods may ask again", "node: EvictionThresholdMet Attempting to reclaim memory",
			"age of memory.available", "evict slow 1s true", "slow: Evicted memory", "count memory.available")
		time.Sleep(evictTimeout)
		w.checkEvents(t, "node: EvictionThresholdMet Attempting to reclaim memory", "age of memory.available")
		w.mu.Lock()
		before := w.looks
		w.mu.Unlock()
		for range 90 {
			select {
			case w.wake <- struct{}{}:
			default:
			}
			time.Sleep(100 * time.Millisecond)
		}
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.looks != before {
			t.Errorf("%d measurements", w.looks-before)
		}
	})
}

// TestStorms checks the cost of frequent memory events while there is enough memory. They cause at most four reads of two files per second,
// and no full measurement.
func TestStorms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) {})
		w.start(t)
		for range 400 {
			select {
			case w.wake <- struct{}{}:
			default:
			}
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.looks > 2 || w.lights > 17 || w.lights < 10 {
			t.Errorf("%d measurements, %d of memory", w.looks, w.lights)
		}
	})
}

// TestIdle checks that resources are measured once a minute while there is enough of them. If the kernel sends no events, they are measured
// every 10 s.
func TestIdle(t *testing.T) {
	for deaf, want := range map[bool]int{false: 61, true: 361} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, func(w *world) { w.deaf, w.cfg.EvictionHard = deaf, map[string]string{"memory.available": "100Mi"} })
			w.start(t)
			time.Sleep(time.Hour + time.Second)
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.looks != want {
				t.Errorf("deaf %v: %d measurements in an hour", deaf, w.looks)
			}
		})
	}
}

// TestReclaims checks that unused images and containers are removed before a pod is evicted. If that is not enough, pods are evicted until
// the minimum reclaim is reached.
func TestReclaims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) {
			w.cfg.EvictionMinimumReclaim = map[string]string{"nodefs.available": "50Mi"}
			w.disk, w.garbage = 99, 60
			w.pods = []Candidate{writes(aPod("a", "", "", 0), 20*mib, 0, 0), writes(aPod("b", "", "", 0), 0, 0, 30*mib)}
		})
		w.start(t)
		w.checkEvents(t, "changed", "pods may ask again",
			"node: EvictionThresholdMet Attempting to reclaim ephemeral-storage", "reclaim containers",
			"reclaim images")
		w.set(func() { w.disk = 90 })
		time.Sleep(30 * time.Second)
		again := []string{
			"node: EvictionThresholdMet Attempting to reclaim ephemeral-storage", "reclaim containers",
			"reclaim images", "age of nodefs.available", "age of containerfs.available",
		}
		w.checkEvents(t, slices.Concat(again, []string{"evict b 1s true", "b: Evicted ephemeral-storage", "count nodefs.available"},
			again, []string{"evict a 1s true", "a: Evicted ephemeral-storage", "count nodefs.available"}, again)...)
		time.Sleep(20 * time.Second) // no pod is left, so the next measurement is later
		w.checkEvents(t, again...)
	})
}

// TestSoft checks that a pod is evicted for a soft threshold only after the threshold's grace period. The pod then gets its own grace
// period, up to the configured maximum.
func TestSoft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) {
			w.cfg.EvictionSoft = map[string]string{"memory.available": "30%"}
			w.cfg.EvictionSoftGracePeriod = map[string]string{"memory.available": "40s"}
			w.cfg.EvictionMaxPodGracePeriod = 20
			w.free = 200
			quick, patient := aPod("quick", "", "", 0), aPod("patient", "", "", 0)
			quick.Spec.TerminationGracePeriodSeconds, patient.Spec.TerminationGracePeriodSeconds = new(int64(5)), new(int64(600))
			w.pods = []Candidate{newCandidate(quick, 20*mib, 1), newCandidate(patient, 90*mib, 1)}
		})
		w.start(t)
		w.checkEvents(t, "changed", "pods may ask again")
		time.Sleep(39 * time.Second)
		w.checkEvents(t)
		time.Sleep(3 * time.Second)
		met := []string{"node: EvictionThresholdMet Attempting to reclaim memory", "age of memory.available"}
		w.checkEvents(t, slices.Concat(met, []string{
			"evict patient 20s true", "patient: Evicted memory", "count memory.available",
		}, met, []string{"evict quick 5s true", "quick: Evicted memory", "count memory.available"})...)
	})
}

// TestLimits checks that a pod that exceeds its own limit is evicted even if the node has enough resources. Pods are measured when the
// usage of a disk has grown, and otherwise once a minute.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		greedy, frugal, critical := writes(aPod("greedy", "", "", 0), 0, 0, 5*mib), writes(aPod("frugal", "", "", 0),
			0, 0, 5*mib), writes(aPod("critical",
			"", "", demand.SystemCritical),
			0, 0, 50*mib)
		for _, c := range []Candidate{greedy, frugal, critical} {
			c.Pod.Spec.Volumes[0].EmptyDir.SizeLimit = new(resource.MustParse("10Mi"))
		}
		w := newWorld(t, func(w *world) {
			w.pods = []Candidate{greedy, frugal, critical, newCandidate(aPod("other", "", "", 0), 1, 1)}
		})
		w.start(t)
		w.checkEvents(t, "pods may ask again", "measure greedy", "measure frugal")
		time.Sleep(59 * time.Second)
		w.checkEvents(t)
		time.Sleep(time.Second)
		w.checkEvents(t, "measure greedy", "measure frugal")
		w.set(func() { w.disk, greedy.Stats.VolumeStats[0].UsedBytes = 494, new(uint64(11*mib)) })
		time.Sleep(10 * time.Second)
		w.checkEvents(t, "measure greedy", "measure frugal", "evict greedy 1s false", "greedy: Evicted ", "count emptydirfs.limit")
		time.Sleep(10 * time.Second)
		w.checkEvents(t)
		if len(w.Conditions()) > 0 {
			t.Error("the node has a pressure")
		}
	})
}

// TestLimitsOfContainers checks that the limits of ephemeral storage apply to each container and to the whole pod.
func TestLimitsOfContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		together, alone := writes(aPod("together", "", "", 0), 4*mib, 4*mib, 4*mib), writes(aPod("alone", "", "", 0), 6*mib, 6*mib, 0)
		for _, c := range []Candidate{together, alone} {
			c.Pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse("10Mi")}
		}
		alone.Pod.Spec.Containers = append(alone.Pod.Spec.Containers,
			v1.Container{Name: "d", Resources: alone.Pod.Spec.Containers[0].Resources})
		w := newWorld(t, func(w *world) { w.pods = []Candidate{together, alone} })
		w.start(t)
		time.Sleep(5 * time.Second)
		w.checkEvents(t, "pods may ask again", "measure together", "measure alone", "evict together 1s false",
			"together: Evicted ", "count ephemeralpodfs.limit",
			"evict alone 1s false", "alone: Evicted ", "count ephemeralcontainerfs.limit")
	})
}

// TestLimitedComes checks that a pod with limits is measured soon after its start, even if no other pod on the node has limits.
func TestLimitedComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.cfg.EvictionHard = nil })
		w.start(t)
		w.checkEvents(t, "pods may ask again")
		limited := writes(aPod("limited", "", "", 0), 0, 0, 1*mib)
		limited.Pod.Spec.Volumes[0].EmptyDir.SizeLimit = new(resource.MustParse("10Mi"))
		time.Sleep(5 * time.Second)
		w.set(func() { w.pods = []Candidate{limited} })
		for range 9 { // each change of a pod sends a notification; none delays the measurement
			w.NotifyPodChange()
			time.Sleep(time.Second)
		}
		w.checkEvents(t)
		time.Sleep(time.Second)
		w.checkEvents(t, "measure limited")
	})
}

// TestSlowFiles checks that a count of a pod's files that takes an hour does not delay an eviction for memory. The same files are not
// counted twice at the same time.
func TestSlowFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := writes(aPod("limited", "", "", 0), 0, 0, 11*mib)
		limited.Pod.Spec.Volumes[0].EmptyDir.SizeLimit = new(resource.MustParse("10Mi"))
		w := newWorld(t, func(w *world) {
			w.slow = time.Hour
			w.pods = []Candidate{limited, newCandidate(aPod("eater", "", "", 0), 300*mib, 1)}
		})
		w.start(t)
		w.checkEvents(t, "pods may ask again", "measure limited")
		time.Sleep(10 * time.Minute)
		w.set(func() { w.free = 99 })
		w.wake <- struct{}{}
		time.Sleep(2 * time.Second)
		w.checkEvents(t, "changed", "node: EvictionThresholdMet Attempting to reclaim memory",
			"age of memory.available", "evict eater 1s true", "eater: Evicted memory",
			"count memory.available")
		time.Sleep(time.Hour - 10*time.Minute)
		w.checkEvents(t, "changed", "pods may ask again", "evict limited 1s false", "limited: Evicted ", "count emptydirfs.limit")
	})
}

// TestSlowDisk checks a slow count of files on a disk with too little space. During the count, a pod is evicted for memory, and the count
// is not repeated. After the count, a pod is evicted for the disk.
func TestSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) {
			w.slow, w.disk = 10*time.Minute, 50
			w.pods = []Candidate{newCandidate(aPod("eater", "", "", 0), 300*mib, 1), writes(aPod("writer", "", "", 0), 0, 0, 90*mib)}
		})
		w.start(t)
		w.checkEvents(t, "changed", "pods may ask again", "node: EvictionThresholdMet Attempting to reclaim ephemeral-storage",
			"reclaim containers", "reclaim images")
		time.Sleep(5 * time.Minute)
		w.checkEvents(t)
		w.set(func() { w.free = 99 })
		w.wake <- struct{}{}
		time.Sleep(2 * time.Second)
		ages := []string{"age of nodefs.available", "age of containerfs.available"}
		w.checkEvents(t, slices.Concat([]string{
			"changed", "node: EvictionThresholdMet Attempting to reclaim memory", "age of memory.available",
		}, ages,
			[]string{"evict eater 1s true", "eater: Evicted memory", "count memory.available"})...)
		time.Sleep(5*time.Minute - 3*time.Second/2)
		w.checkEvents(t, slices.Concat(ages, []string{"evict writer 1s true", "writer: Evicted ephemeral-storage", "count nodefs.available"})...)
		if !regexp.MustCompile("uid=eater.* by=kernel(.|\n)*uid=writer.* by=timer").Match(w.lines.Bytes()) {
			t.Errorf("the log: %s", &w.lines)
		}
	})
}

// TestComesBack checks that an evicted static pod may run again when the node has no pressure.
func TestComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) {
			w.free = 50
			w.pods = []Candidate{newCandidate(static(aPod("own", "", "", 0)), 100*mib, 1)}
		})
		if !w.IsBarred("own") {
			t.Error("not barred before the first measurement")
		}
		w.start(t)
		time.Sleep(2 * time.Second)
		w.checkEvents(t, "changed", "pods may ask again", "node: EvictionThresholdMet Attempting to reclaim memory",
			"age of memory.available", "evict own 1s true", "own: Evicted memory", "count memory.available")
		if !w.IsBarred("own") || !w.IsBarred("another") {
			t.Error("not barred under pressure")
		}
		time.Sleep(5 * time.Minute)
		w.checkEvents(t, "changed", "pods may ask again", "pods may ask again")
		if w.IsBarred("own") || w.IsBarred("another") {
			t.Error("still barred")
		}
	})
}

// TestNoFigures checks that no pod is evicted and no event is sent while the resources cannot be measured.
func TestNoFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.broken, w.free = true, 10 })
		w.start(t)
		time.Sleep(time.Hour)
		w.checkEvents(t, "pods may ask again")
	})
}

// TestOff checks that nothing is measured if there are neither thresholds nor limits. The watch of an earlier agent is removed.
func TestOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(w *world) { w.cfg.EvictionHard, w.cfg.LocalStorageCapacityIsolation = nil, new(false) })
		w.start(t)
		time.Sleep(time.Hour)
		if w.looks+w.lights > 0 || w.IsBarred("x") {
			t.Errorf("%d measurements", w.looks+w.lights)
		}
		w.checkEvents(t, "pods may ask again", "closed")
	})
}
