package cgroup

import (
	"reflect"
	"testing"
	"time"
)

func TestReadDetails(t *testing.T) {
	want := Details{
		User: 300 * time.Millisecond, System: 200 * time.Millisecond, Periods: 9, Throttled: 4, ThrottledTime: 5 * time.Microsecond,
		Cache: 11, Mapped: 12, Kernel: 13, ActiveFile: 14, InactiveFile: 15, Peak: 4000, LimitHits: 6, OOMKills: 2, MaxPIDs: 100, Processes: 2,
		IO: []IO{{"8:0", 1, 2, 3, 4}, {"8:16", 5, 0, 0, 0}},
	}
	for name, r := range map[string]Reader{
		"v1": {root: tree(t, map[string]string{
			"memory/a/memory.stat":        "total_cache 11\ntotal_mapped_file 12\ntotal_active_file 14\ntotal_inactive_file 15\n",
			"memory/a/memory.oom_control": "oom_kill_disable 0\noom_kill 2\n", "memory/a/memory.max_usage_in_bytes": "4000\n",
			"memory/a/memory.failcnt": "6\n", "memory/a/memory.kmem.usage_in_bytes": "13\n", "memory/a/cgroup.procs": "10\n11\n",
			"pids/a/pids.max": "100\n", "cpu/a/cpu.stat": "nr_periods 9\nnr_throttled 4\nthrottled_time 5000\n", "cpuacct/a/cpuacct.stat": "user 30\nsystem 20\n",
			"blkio/a/blkio.throttle.io_service_bytes": "8:16 Read 5\n8:0 Read 1\n8:0 Write 2\n8:0 Total 3\nTotal 3\n", "blkio/a/blkio.throttle.io_serviced": "8:0 Read 3\n8:0 Write 4\n",
		})},
		"v2": {v2: true, root: tree(t, map[string]string{
			"a/memory.stat":   "file 11\nfile_mapped 12\nkernel 13\nactive_file 14\ninactive_file 15\n",
			"a/memory.events": "max 6\noom_kill 2\n", "a/memory.peak": "4000\n", "a/cgroup.procs": "10\n11\n", "a/pids.max": "100\n",
			"a/cpu.stat": "user_usec 300000\nsystem_usec 200000\nnr_periods 9\nnr_throttled 4\nthrottled_usec 5\n",
			"a/io.stat":  "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0\n8:16 rbytes=5\n\n8:32\n",
		})},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := r.ReadDetails("/a")
			got.Figures = Figures{}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, want)
			}
			if _, err := r.ReadDetails("/gone"); err == nil {
				t.Error("a cgroup that is gone was read")
			}
		})
	}
}
