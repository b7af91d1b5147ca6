package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/islet-edge/islet/metrics/headroom"
)

var t0 = time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)

const mib = 1 << 20

func quantity(s string) Value { q := resource.MustParse(s); return Value{Quantity: &q} }

func (v Verdict) text() string {
	s := fmt.Sprint(v.Conditions, " ", texts(v.Act))
	if !v.Wake.IsZero() {
		s += " wake " + v.Wake.Sub(t0).String()
	}
	return s
}

// TestJudge checks the verdicts for a series of measurements. A step consists of the time in seconds, the free memory in MiB, and the
// expected verdict. The total memory is 1000 MiB.
func TestJudge(t *testing.T) {
	hard := Threshold{Signal: Memory, Value: quantity("100Mi")}
	reclaim := hard
	reclaim.Reclaim = quantity("50Mi")
	part := Threshold{Signal: Memory, Value: Value{Part: .2}}
	soft := Threshold{Signal: Memory, Value: quantity("300Mi"), Soft: true, Grace: 30 * time.Second}
	type step struct {
		at, free int
		want     string
	}
	for name, c := range map[string]struct {
		list  []Threshold
		steps []step
	}{
		"hard": {
			[]Threshold{hard},
			[]step{
				{0, 100, "[] "}, {1, 99, "[MemoryPressure] memory.available<100Mi"},
				{2, 100, "[MemoryPressure]  wake 5m1s"}, {300, 100, "[MemoryPressure]  wake 5m1s"},
				{301, 100, "[] "},
			},
		},
		"part": {[]Threshold{part}, []step{{0, 200, "[] "}, {1, 199, "[MemoryPressure] memory.available<20%"}}},
		"reclaim": {
			[]Threshold{reclaim},
			[]step{
				{0, 120, "[] "}, {1, 99, "[MemoryPressure] memory.available<100Mi +50Mi"},
				{2, 149, "[MemoryPressure] memory.available<100Mi +50Mi"},
				{3, 150, "[MemoryPressure]  wake 5m2s"}, {4, 120, "[MemoryPressure]  wake 5m2s"},
			},
		},
		"soft": {
			[]Threshold{soft},
			[]step{
				{0, 299, "[MemoryPressure]  wake 30s"}, {29, 299, "[MemoryPressure]  wake 30s"},
				{30, 299, "[MemoryPressure] memory.available<300Mi for 30s"},
			},
		},
		"soft again": {
			[]Threshold{soft},
			[]step{
				{0, 299, "[MemoryPressure]  wake 30s"}, {20, 300, "[MemoryPressure]  wake 5m0s"},
				{25, 299, "[MemoryPressure]  wake 55s"},
			},
		},
		"both": {
			[]Threshold{hard, soft},
			[]step{
				{0, 250, "[MemoryPressure]  wake 30s"},
				{1, 50, "[MemoryPressure] memory.available<100Mi wake 30s"},
				{30, 50, "[MemoryPressure] memory.available<100Mi; memory.available<300Mi for 30s"},
			},
		},
		"clock set back": {
			[]Threshold{soft},
			[]step{
				{100, 299, "[MemoryPressure]  wake 2m10s"}, {0, 299, "[MemoryPressure]  wake 30s"},
				{30, 299, "[MemoryPressure] memory.available<300Mi for 30s"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s State
			for _, st := range c.steps {
				o := Observations{Memory: {Free: uint64(st.free) * mib, Total: 1000 * mib}}
				if got := s.Evaluate(c.list, o, 5*time.Minute, t0.Add(time.Duration(st.at)*time.Second)).text(); got != st.want {
					t.Errorf("at %d s: %q, not %q", st.at, got, st.want)
				}
			}
		})
	}
}

// TestJudgeOrder checks that memory comes first in the order of the signals. A threshold without a measurement is not met.
func TestJudgeOrder(t *testing.T) {
	all := []Threshold{}
	for _, m := range signalInfos() {
		all = append(all, Threshold{Signal: m.signal, Value: Value{Part: .5}})
	}
	var s State
	v := s.Evaluate(all, Observations{PIDs: {Free: 1, Total: 10}, NodeInodes: {Free: 1, Total: 10}, PodsMemory: {Free: 1, Total: 10}}, 0, t0)
	if got, want := v.text(),
		"[DiskPressure MemoryPressure PIDPressure] allocatableMemory.available<50%; nodefs.inodesFree<50%; pid.available<50%"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if got := s.Evaluate(all, Observations{}, 0, t0).text(); got != "[] " {
		t.Errorf("no measurements: %q", got)
	}
}

func TestObserve(t *testing.T) {
	r := headroom.Room{
		Memory: headroom.Amount{Free: 1, Total: 2}, Node: headroom.Disk{Bytes: headroom.Amount{Free: 3, Total: 4}},
		PIDs: headroom.Amount{Free: 0, Total: 5},
	}
	got := fmt.Sprint(newObservations(r))
	for _, want := range []string{"memory.available:{1 2}", "nodefs.available:{3 4}", "pid.available:{0 5}"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s lacks %s", got, want)
		}
	}
	if n := len(newObservations(r)); n != 3 { // a file system without inodes has no inode signal
		t.Errorf("%d signals: %s", n, got)
	}
}

func TestPause(t *testing.T) {
	list := []Threshold{{Signal: NodeFs, Value: Value{Part: .1}}, {Signal: Memory, Value: quantity("100Mi")}}
	for name, c := range map[string]struct {
		o        Observations
		coverage Coverage
		want     time.Duration
	}{
		"far": {
			Observations{NodeFs: {Free: 50 << 30, Total: 60 << 30}, Memory: {Free: 16 << 30, Total: 20 << 30}},
			UseEvents, time.Minute,
		},
		"a fast disk fills": {Observations{NodeFs: {Free: 8 << 30, Total: 60 << 30}}, UseEvents, 2 * (1 << 30) / (100 << 20) * time.Second},
		"near":              {Observations{NodeFs: {Free: 7 << 30, Total: 60 << 30}}, UseEvents, minInterval},
		"memory":            {Observations{Memory: {Free: 200 * mib, Total: 20 << 30}}, UseEvents, time.Minute},
		"little memory":     {Observations{Memory: {Free: 199 * mib, Total: 20 << 30}}, UseEvents, minInterval},
		"a leak":            {Observations{Memory: {Free: 2148 * mib, Total: 20 << 30}}, StallEvents, 20 * time.Second},
		"much, of stalls":   {Observations{Memory: {Free: 16 << 30, Total: 20 << 30}}, StallEvents, time.Minute},
		"met":               {Observations{NodeFs: {Free: 1 << 30, Total: 60 << 30}}, UseEvents, minInterval},
		"nobody tells":      {Observations{Memory: {Free: 16 << 30, Total: 20 << 30}}, NoEvents, minInterval},
		"nothing is known":  {Observations{}, NoEvents, time.Minute},
	} {
		if got := nextLook(list, c.o, c.coverage).Truncate(time.Second); got != c.want {
			t.Errorf("%s: %v, not %v", name, got, c.want)
		}
	}
}
