package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestReadDetails(t *testing.T) {
	want := Details{
		User: 300 * time.Millisecond, System: 200 * time.Millisecond, Periods: 9, Throttled: 4, ThrottledTime: 5 * time.Microsecond,
		Cache: 11, Mapped: 12, Kernel: 13, ActiveFile: 14, InactiveFile: 15, Peak: 4000, LimitHits: 6, OOMKills: 2, MaxPIDs: 100, Processes: 2, First: 10,
		Bursts: 3, BurstTime: 7 * time.Microsecond, Quota: 5000, Period: 100000, Reservation: 30, SwapMax: 20, SwapLimited: true,
		IO: []IO{{"8:0", 1, 2, 3, 4}, {"8:16", 5, 0, 0, 0}},
	}
	for name, r := range map[string]Reader{
		"v1": {root: tree(t, map[string]string{
			"memory/a/memory.stat":        "total_cache 11\ntotal_mapped_file 12\ntotal_active_file 14\ntotal_inactive_file 15\n",
			"memory/a/memory.oom_control": "oom_kill_disable 0\noom_kill 2\n", "memory/a/memory.max_usage_in_bytes": "4000\n",
			"memory/a/memory.failcnt": "6\n", "memory/a/memory.kmem.usage_in_bytes": "13\n", "memory/a/cgroup.procs": "10\n11\n",
			"pids/a/pids.max": "100\n", "cpu/a/cpu.stat": "nr_periods 9\nnr_throttled 4\nthrottled_time 5000\nnr_bursts 3\nburst_time 7000\n", "cpu/a/cpu.cfs_quota_us": "5000\n", "cpu/a/cpu.cfs_period_us": "100000\n",
			"memory/a/memory.soft_limit_in_bytes": "30\n", "memory/a/memory.memsw.limit_in_bytes": "70\n", "memory/a/memory.limit_in_bytes": "50\n", "cpuacct/a/cpuacct.stat": "user 30\nsystem 20\n",
			"blkio/a/blkio.throttle.io_service_bytes": "8:16 Read 5\n8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n", "blkio/a/blkio.throttle.io_serviced": "8:0 Read 3\n8:0 Write 4\n",
		})},
		"v2": {v2: true, root: tree(t, map[string]string{
			"a/memory.stat":   "file 11\nfile_mapped 12\nkernel 13\nactive_file 14\ninactive_file 15\npgscan 21\npgsteal 22\nworkingset_refault_anon 23\nworkingset_refault_file 24\nfile_dirty 25\nfile_writeback 26\n",
			"a/memory.events": "high 8\nmax 6\noom_kill 2\n", "a/memory.peak": "4000\n", "a/cgroup.procs": "10\n11\n", "a/pids.max": "100\n",
			"a/cpu.stat": "user_usec 300000\nsystem_usec 200000\nnr_periods 9\nnr_throttled 4\nthrottled_usec 5\nnr_bursts 3\nburst_usec 7\n", "a/cpu.max": "5000 100000\n",
			"a/memory.low": "30\n", "a/memory.min": "0\n", "a/memory.max": "50\n", "a/memory.swap.max": "20\n",
			"a/io.stat": "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0\n8:16 rbytes=5\n\n8:32\n",
		})},
	} {
		t.Run(name, func(t *testing.T) {
			want := want
			if r.v2 {
				want.Reclaim = Reclaim{Counted: true, Throttles: 8, Scanned: 21, Stolen: 22, RefaultedAnon: 23, RefaultedFile: 24, Dirty: 25, Writeback: 26}
			}
			got, err := r.ReadDetails("/a")
			if got.Created.IsZero() || got.At.IsZero() {
				t.Error("without times")
			}
			if want := map[string]uint64{"v1": 70, "v2": 20}[name]; got.SwapLimit != want {
				t.Errorf("swap limit %d, want %d", got.SwapLimit, want)
			}
			got.SwapLimit = 0
			got.Figures, got.Created, got.all, got.limits, got.id = Figures{}, time.Time{}, time.Time{}, time.Time{}, 0
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
			if _, err := r.ReadDetails("/gone"); err == nil {
				t.Error("a removed cgroup was read")
			}
		})
	}
}

// TestLongLists checks that a list is complete if it has more processes than the kernel returns in one read. A longer list is cut after
// maxFile bytes.
func TestLongLists(t *testing.T) {
	var list strings.Builder
	for i := range 200_000 {
		fmt.Fprintln(&list, 100_000+i)
	}
	r := Reader{v2: true, root: tree(t, map[string]string{"a/cgroup.procs": list.String()[:149_796*7], "b/cgroup.procs": list.String()})}
	d, err := r.ReadDetails("/a")
	if pids, e := r.Processes("/a"); err != nil || e != nil || d.Processes != uint64(len(pids)) || len(pids) < 149_000 || d.First != 100_000 {
		t.Errorf("%d processes, %d listed: %v %v", d.Processes, len(pids), err, e)
	}
	d, err = r.ReadDetails("/b")
	if pids, e := r.Processes("/b"); err != nil || e != nil || d.Processes != maxFile/7 || len(pids) != maxFile/7 {
		t.Errorf("of a list without end: %d processes, %d listed: %v %v", d.Processes, len(pids), err, e)
	}
}

func TestPressure(t *testing.T) {
	text := []byte("some avg10=1.50 avg60=0.25 avg300=0.00 total=1000\nfull avg10=0.00 avg60=0.00 avg300=100.00 total=7\n")
	want := Pressure{Stall{time.Millisecond, 1.5, .25, 0}, Stall{7 * time.Microsecond, 0, 0, 100}}
	got := pressureFrom(nil, text)
	if got == nil || *got != want || pressureFrom(got, nil) != nil {
		t.Fatalf("got %+v", got)
	}
	if again, other := pressureFrom(got, text), pressureFrom(&Pressure{}, text); again != got || *other != want {
		t.Errorf("again %+v, after another %+v", again, other)
	}
}

// TestIOAfter checks that unchanged I/O figures are shared with the earlier reading. The earlier reading must never be modified.
func TestIOAfter(t *testing.T) {
	const a, b, c = "8:0 rbytes=1\n", "8:16 wios=2\n", "8:32 rios=3\n"
	for _, from := range []string{"", a, a + b, a + b + c, b, c + a} {
		last, _ := parseIO([]byte(from), nil)
		was := slices.Clone(last)
		for _, to := range []string{"", a, a + b, a + b + c, b, c + a, "8:0 rbytes=2\n" + b, a + "8:16\n", "\n" + from} {
			text := []byte(to)
			want, _ := parseIO([]byte(to), nil)
			got, same := parseIO(text, last)
			clear(text) // the buffer is reused for the next file
			if !slices.Equal(got, want) || same != slices.Equal(was, want) || !slices.Equal(last, was) {
				t.Errorf("%q after %q is %v (%v), want %v", to, from, got, same, want)
			}
			if same && len(last) > 0 && &got[0] != &last[0] {
				t.Errorf("%q is made again", to)
			}
		}
	}
}

// TestRecent checks that a recent reading is returned again, and that a missing cgroup is an error. After some time without a call, no
// reading is kept in memory.
func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := tree(t, map[string]string{"a/memory.current": "1\n"})
		r := NewRecent(Reader{v2: true, root: root}, time.Second)
		see := func(want uint64) {
			t.Helper()
			if f, err := r.Read("/a"); err != nil || f.Memory != want {
				t.Errorf("read %d, %v, want %d", f.Memory, err, want)
			}
		}
		see(1)
		if err := os.WriteFile(filepath.Join(root, "a/memory.current"), []byte("2\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		see(1)
		time.Sleep(time.Second)
		see(2)
		if _, err := r.Read("/gone"); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		time.Sleep(3 * keepTime)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.stored != nil || r.forgetTimer != nil {
			t.Errorf("kept: %v", r.stored)
		}
	})
}

// BenchmarkReadDetails reads the root cgroup of this machine.
func BenchmarkReadDetails(b *testing.B) {
	r := NewReader(Mountpoint)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.ReadDetails("/"); err != nil {
			b.Skip(err)
		}
	}
}

// TestRootV2 checks the root of cgroup v2, which has no file with the used memory.
func TestRootV2(t *testing.T) {
	root := tree(t, map[string]string{"memory.stat": "anon 500\nfile 300\ninactive_file 100\n", "cpu.stat": "usage_usec 7\n",
		"meminfo": "MemTotal:  9 kB\nSwapTotal:       8 kB\nSwapFree:        5 kB\n"})
	r := Reader{v2: true, root: root, proc: root}
	f, err := r.Read("/")
	if err != nil || f.Memory != 800 || f.WorkingSet != 700 || f.RSS != 500 || f.Swap != 3<<10 {
		t.Errorf("%+v %v", f, err)
	}
}

// TestNeeded checks that the needed memory of a cgroup includes its file pages while it thrashes at its limit.
func TestNeeded(t *testing.T) {
	const long, short = "some avg10=99.00 avg60=40.00 avg300=9.00 total=9\nfull avg10=61.20 avg60=20.50 avg300=4.00 total=7\n",
		"some avg10=99.00 avg60=40.00 avg300=9.00 total=9\nfull avg10=61.20 avg60=10.50 avg300=2.00 total=7\n"
	for name, x := range map[string]struct {
		pressure, max, current, dropped string
		want                            uint64
	}{
		"thrashes at its limit":         {long, "1000", "990", "100", 990},
		"a pod at a limit of its own":   {long, "1000", "990", "300", 690},
		"not for long":                  {short, "1000", "990", "100", 890},
		"some of it waits":              {"some avg10=99.00 avg60=99.00 avg300=9.00 total=9\nfull avg10=9.00 avg60=9.00 avg300=4.00 total=7\n", "1000", "990", "100", 890},
		"below its limit":               {long, "1000", "900", "100", 800},
		"no limit":                      {long, "max", "990", "100", 890},
		"a kernel that does not count":  {"", "1000", "990", "100", 890},
		"one that counts something new": {"most avg10=99.00\n", "1000", "990", "100", 890},
	} {
		r := Reader{v2: true, root: tree(t, map[string]string{"a/cpu.stat": "usage_usec 0\n", "a/memory.stat": "inactive_file " + x.dropped + "\n",
			"a/memory.max": x.max + "\n", "a/memory.current": x.current + "\n", "a/memory.pressure": x.pressure})}
		f, err := r.Read("/a")
		if got := r.NeededMemory("/a", f); err != nil || got != x.want {
			t.Errorf("%s: %d, want %d; %v", name, got, x.want, err)
		}
	}
}

// TestLimitsV2 checks that a swap limit of zero is not mistaken for a missing limit, also without a memory limit. The protected memory is
// in one of two files.
func TestLimitsV2(t *testing.T) {
	for name, x := range map[string]struct {
		files       map[string]string
		max         uint64
		limited     bool
		reservation uint64
	}{
		"no limit":               {map[string]string{"a/memory.swap.max": "max\n", "a/memory.max": "50\n"}, 0, false, 0},
		"none, as by NoSwap":     {map[string]string{"a/memory.swap.max": "0\n", "a/memory.max": "max\n"}, 0, true, 0},
		"some, without a limit":  {map[string]string{"a/memory.swap.max": "7\n", "a/memory.max": "max\n", "a/memory.low": "5\n"}, 7, true, 5},
		"a kernel without swap":  {map[string]string{"a/memory.max": "50\n", "a/memory.low": "0\n", "a/memory.min": "9\n"}, 0, false, 9},
		"the limit of a machine": {map[string]string{"a/memory.current": "1\n", "a/memory.min": "max\n"}, 0, false, 0},
	} {
		x.files["a/cpu.stat"] = "usage_usec 0\n" // identifies the cgroup
		r := NewRecent(Reader{v2: true, root: tree(t, x.files)}, 0)
		for range 2 { // the second cgroup has the limits of the first
			d, err := r.ReadDetails("/a")
			if err != nil || d.SwapMax != x.max || d.SwapLimited != x.limited || d.SwapLimit != x.max || d.Reservation != x.reservation {
				t.Errorf("%s: %d, %v, %d, %d, %v", name, d.SwapMax, d.SwapLimited, d.SwapLimit, d.Reservation, err)
			}
		}
	}
}
