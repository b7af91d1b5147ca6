package cgroup

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestQuiet checks when a cgroup is read completely. The reasons are: one of its processes has run, its memory usage has changed, another
// cgroup with the same name has replaced it, Forget was called, or some time has passed. Otherwise only the figures that can change
// without a running process are read.
func TestQuiet(t *testing.T) {
	for name, x := range map[string]struct {
		v2                        bool
		cpu, memory, kills, limit string
	}{
		"v1": {false, "cpuacct/a/cpuacct.usage", "memory/a/memory.usage_in_bytes", "memory/a/memory.oom_control", "memory/a/memory.limit_in_bytes"},
		"v2": {true, "a/cpu.stat", "a/memory.current", "a/memory.events", "a/memory.max"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				text := map[string]string{"usage 1000": "1000\n", "usage 2000": "2000\n"}
				if x.v2 {
					text = map[string]string{"usage 1000": "usage_usec 1000\n", "usage 2000": "usage_usec 2000\n"}
				}
				root := tree(t, map[string]string{x.cpu: text["usage 1000"], x.memory: "5\n", x.kills: "oom_kill 0\n", x.limit: "100\n"})
				set := func(file, to string) {
					t.Helper()
					if err := os.WriteFile(filepath.Join(root, file), []byte(to), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				r := NewRecent(Reader{v2: x.v2, root: root}, time.Second)
				last := uint64(0)
				see := func(what string, quiet bool, kills, limit uint64) {
					t.Helper()
					time.Sleep(2 * time.Second)
					d, err := r.ReadShared("/a")
					was := last
					last = d.UsageTurn
					if err != nil || (d.UsageTurn == was) != quiet || d.OOMKills != kills || d.Limit != limit || time.Since(d.At) > 0 {
						t.Errorf("%s: quiet %v, %d kills, limit %d, %v; want %v, %d, %d", what, d.UsageTurn == was, d.OOMKills, d.Limit, err, quiet, kills, limit)
					}
				}
				see("first", false, 0, 100)
				set(x.kills, "oom_kill 1\n")
				see("nothing ran", true, 0, 100)
				set(x.cpu, text["usage 2000"])
				see("something ran", false, 1, 100)
				set(x.limit, "200\n")
				set(x.kills, "oom_kill 2\n")
				see("somebody else set a limit", true, 1, 100)
				set(x.memory, "6\n")
				see("memory", false, 2, 100)
				r.Forget("/a")
				see("told", false, 2, 200)
				set(x.kills, "oom_kill 3\n")
				set(x.limit, "300\n")
				see("nothing ran", true, 2, 200)
				time.Sleep(maxIdle)
				see("later", false, 3, 300)
				if err := os.Rename(filepath.Join(root, x.cpu), filepath.Join(root, x.cpu+".old")); err != nil { // keeps the inode in use
					t.Fatal(err)
				}
				set(x.cpu, text["usage 2000"])
				set(x.kills, "oom_kill 0\n")
				set(x.limit, "400\n")
				see("another", false, 0, 400)
			})
		})
	}
}

// TestQuietV2 checks that the check of an idle cgroup v2 allocates memory only to open files. If the cgroup's I/O or pressure has changed,
// a copy with the new values is returned.
func TestQuietV2(t *testing.T) {
	const pressure = "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
	root := tree(t, map[string]string{"a/cpu.stat": "usage_usec 1000\n", "a/memory.current": "5\n", "a/io.stat": "8:0 rbytes=1\n8:16 wbytes=2\n",
		"a/cpu.pressure": pressure, "a/memory.pressure": pressure, "a/io.pressure": pressure})
	r := Reader{v2: true, root: root}
	d, err := r.ReadDetails("/a")
	if err != nil {
		t.Fatal(err)
	}
	last := &d
	least := func(f func()) float64 { // sometimes the buffer is allocated again
		n := math.Inf(1)
		for range 50 {
			n = min(n, testing.AllocsPerRun(1, f))
		}
		return n
	}
	opening := least(func() {
		dir, err := openDir(r.cgroupDir("", "/a"))
		if err != nil || dir.inode("cpu.stat") == 0 {
			t.Fatal(err)
		}
		dir.close()
	})
	if n := least(func() {
		if now, ok := r.updateV2(last, "/a"); !ok || now != last {
			t.Fatalf("%+v, %v", now, ok)
		}
	}); n > opening {
		t.Errorf("%v allocations, %v to open it", n, opening)
	}
	for file, text := range map[string]string{"io.stat": "8:0 rbytes=1\n8:16 wbytes=3\n", "cpu.pressure": strings.ReplaceAll(pressure, "7", "8"), "io.pressure": ""} {
		if err := os.WriteFile(filepath.Join(root, "a", file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		was := *last
		now, ok := r.updateV2(last, "/a")
		if !ok || now == last || !reflect.DeepEqual(was, *last) {
			t.Fatalf("%s: %+v, %v", file, now, ok)
		}
		want, err := r.ReadDetails("/a")
		if err != nil || !slices.Equal(now.IO, want.IO) || !reflect.DeepEqual(now.Pressure, want.Pressure) || now.CPU != want.CPU ||
			now.id != want.id {
			t.Errorf("%s: %+v, want %+v", file, now, want)
		}
		last = now
	}
	if err := os.WriteFile(filepath.Join(root, "a/cpu.stat"), []byte("usage_usec 1001\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, ok := r.updateV2(last, "/a"); ok {
		t.Error("a process has run")
	}
}

// TestChildren checks that added and removed child cgroups are detected. A list whose length is unchanged is read again only after
// Forget.
func TestChildren(t *testing.T) {
	root := tree(t, map[string]string{"a/memory.current": "1\n", "a/b/x": "", "a/c/x": ""})
	r := NewRecent(Reader{v2: true, root: root}, time.Hour)
	see := func(want ...string) {
		t.Helper()
		if got, err := r.Children("/a"); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	if _, err := r.ReadDetails("/a"); err != nil {
		t.Fatal(err)
	}
	if linkCount(filepath.Join(root, "a")) != 4 {
		t.Skip("this file system does not count directories")
	}
	see("/a/b", "/a/c")
	if err := os.Mkdir(filepath.Join(root, "a/d"), 0o755); err != nil {
		t.Fatal(err)
	}
	see("/a/b", "/a/c", "/a/d")
	if err := os.Rename(filepath.Join(root, "a/d"), filepath.Join(root, "a/e")); err != nil {
		t.Fatal(err)
	}
	r.Forget("/a")
	see("/a/b", "/a/c", "/a/e")
}
