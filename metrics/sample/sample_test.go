package sample

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/process"
)

func write(t testing.TB, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// createCgroups creates a cgroup v1 hierarchy and a proc file system. In the proc file system, process 7 has its own network namespace,
// and process 8 has the network namespace of the host.
func createCgroups(t testing.TB, cgroups map[string]int) (cgroup.Reader, process.Reader, string) {
	root, proc := t.TempDir(), t.TempDir()
	for path, pid := range cgroups {
		write(t, root, "memory"+path+"/memory.usage_in_bytes", "1000\n")
		list := ""
		if pid > 0 {
			list = fmt.Sprintln(pid)
		}
		write(t, root, "memory"+path+"/cgroup.procs", list)
		write(t, root, "cpuacct"+path+"/cpuacct.usage", "0\n")
	}
	const dev = "Inter-|   Receive\n face |bytes\n    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n  %s: 100 1 2 3 0 0 0 0 200 4 5 6 0 0 0 0\n"
	for pid, net := range map[string]string{"self": "host", "7": "own", "8": "host"} {
		write(t, proc, pid+"/net/dev", fmt.Sprintf(dev, map[string]string{"host": "wlan0", "own": "eth0"}[net]))
		write(t, proc, pid+"/fd/x", "")
		if err := os.MkdirAll(filepath.Join(proc, pid, "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		for link, to := range map[string]string{"ns/net": net, "fd/3": "socket:[1]", "fd/4": "/dev/null"} {
			if err := os.Symlink(to, filepath.Join(proc, pid, link)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return cgroup.NewReader(root), process.Reader{Root: proc}, root
}

func tell(s *Sample) string {
	var b strings.Builder
	for _, g := range s.Groups {
		fmt.Fprintf(&b, "%d %s %s|%s", g.Kind, g.Path, g.Pod, g.Container)
		for _, i := range g.Network {
			fmt.Fprintf(&b, " %s:%d/%d", i.Name, i.Received, i.Sent)
		}
		if g.Open.Known {
			fmt.Fprintf(&b, " %d files %d sockets", g.Open.Descriptors, g.Open.Sockets)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestWalk checks that the cgroup layouts of both cgroup drivers are recognized. Cgroups that do not belong to pods must be omitted.
func TestWalk(t *testing.T) {
	for name, x := range map[string]struct {
		pods    string
		cgroups map[string]int
		want    string
	}{
		"cgroupfs": {"/kubepods", map[string]int{"/kubepods/podaa": 0, "/kubepods/podaa/c1": 7, "/kubepods/podaa/ended": 0, "/kubepods/burstable/podbb/c2": 8, "/kubepods/burstable/podbb": 0,
			"/kubepods/burstable": 0, "/kubepods/strange/podcc": 0, "/system/own": 0, "/kubepods": 0, "/": 0},
			"0 / | wlan0:100/200\n5 /system/own |\n1 /kubepods |\n2 /kubepods/burstable |\n3 /kubepods/burstable/podbb bb|\n4 /kubepods/burstable/podbb/c2 bb|c2 3 files 1 sockets\n" +
				"3 /kubepods/podaa aa| eth0:100/200\n4 /kubepods/podaa/c1 aa|c1 3 files 1 sockets\n4 /kubepods/podaa/ended aa|ended\n"},
		"systemd": {"/kubepods.slice", map[string]int{"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice/cri-containerd-c1.scope": 7,
			"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice": 0, "/kubepods.slice/kubepods-besteffort.slice": 0, "/kubepods.slice": 0, "/": 0},
			"0 / | wlan0:100/200\n1 /kubepods.slice |\n2 /kubepods.slice/kubepods-besteffort.slice |\n3 /kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice a-b| eth0:100/200\n" +
				"4 /kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-poda_b.slice/cri-containerd-c1.scope a-b|c1 3 files 1 sockets\n"},
		"no pod yet": {"/kubepods", map[string]int{"/": 0}, "0 / | wlan0:100/200\n"},
	} {
		t.Run(name, func(t *testing.T) {
			r, proc, _ := createCgroups(t, x.cgroups)
			s, err := New(Config{Cgroups: cgroup.NewRecent(r, time.Second), Process: proc, Pods: x.pods, Others: []string{"/system/own", "/gone"}}).Now()
			if err != nil {
				t.Fatal(err)
			}
			if got := tell(s); got != x.want {
				t.Errorf("got\n%swant\n%s", got, x.want)
			}
		})
	}
}

// TestUnread checks that an unreadable cgroup is omitted with its descendants. The sample must contain all other cgroups. If no pod is
// readable, an error must be returned.
func TestUnread(t *testing.T) {
	r, proc, root := createCgroups(t, map[string]int{"/kubepods/podaa": 0, "/kubepods/podaa/c1": 0, "/kubepods/podaa/c2": 7, "/kubepods/podbb": 0, "/kubepods/podbb/c3": 0,
		"/kubepods/podcc": 0, "/kubepods/podcc/c4": 8, "/kubepods": 0, "/": 0})
	for _, pod := range []string{"podaa/c1", "podbb"} {
		write(t, root, "memory/kubepods/"+pod+"/memory.usage_in_bytes", "no number\n")
	}
	const want = "0 / | wlan0:100/200\n1 /kubepods |\n3 /kubepods/podaa aa| eth0:100/200\n4 /kubepods/podaa/c2 aa|c2 3 files 1 sockets\n" +
		"3 /kubepods/podcc cc|\n4 /kubepods/podcc/c4 cc|c4 3 files 1 sockets\n"
	look := func() (*Sample, error) {
		return New(Config{Cgroups: cgroup.NewRecent(r, time.Second), Process: proc, Pods: "/kubepods"}).Now()
	}
	s, err := look()
	if err != nil {
		t.Fatal(err)
	}
	if got := tell(s); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for _, pod := range []string{"podaa", "podcc"} {
		write(t, root, "memory/kubepods/"+pod+"/memory.usage_in_bytes", "no number\n")
	}
	if _, err := look(); err == nil || !strings.Contains(err.Error(), "not a number") {
		t.Errorf("no pod can be read: %v", err)
	}
}

// TestSelf checks that the CPU time of this process is used if its cgroup has no CPU time.
func TestSelf(t *testing.T) {
	r, proc, root := createCgroups(t, map[string]int{"/": 0, "/own": 0, "/other": 0})
	for _, c := range []string{"/own", "/other"} {
		if err := os.RemoveAll(filepath.Join(root, "cpuacct"+c)); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(Config{Cgroups: cgroup.NewRecent(r, time.Second), Process: proc, Pods: "/kubepods", Others: []string{"/own", "/other"}, Self: "/own"}).Now()
	if err != nil {
		t.Fatal(err)
	}
	if own, other := s.Find("/own"), s.Find("/other"); own == nil || own.CPU <= 0 || own.CPU != own.User+own.System || other == nil ||
		other.CPU != 0 {
		t.Errorf("own %+v, another %+v", own, other)
	}
}

// TestRates checks that a recent sample is returned again, and that the next sample has rates. After some time without a call, no sample
// is kept in memory.
func TestRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, proc, root := createCgroups(t, map[string]int{"/kubepods/podaa": 0, "/kubepods": 0, "/": 0})
		s := New(Config{Cgroups: cgroup.NewRecent(r, time.Second), Process: proc, Pods: "/kubepods"})
		now := func() *Sample {
			t.Helper()
			v, err := s.Now()
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		first := now()
		if g := first.Find("/kubepods/podaa"); g == nil || g.NanoCores != nil || now() != first {
			t.Errorf("the first: %+v", g)
		}
		write(t, root, "cpuacct/kubepods/podaa/cpuacct.usage", "500000000\n")
		time.Sleep(2 * time.Second)
		if g := now().Find("/kubepods/podaa"); g.NanoCores == nil || *g.NanoCores != 250_000_000 {
			t.Errorf("half a second in two: %v", g.NanoCores)
		}
		write(t, root, "cpuacct/kubepods/podaa/cpuacct.usage", "1\n")
		time.Sleep(2 * time.Second)
		if g := now().Find("/kubepods/podaa"); g.NanoCores != nil {
			t.Errorf("another cgroup of that name: %d", *g.NanoCores)
		}
		time.Sleep(5 * time.Second)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.last != nil || s.forgetTimer != nil {
			t.Error("a sample is kept")
		}
	})
}

// TestReplaced checks that the replacement of a container is detected immediately, although the number of containers is unchanged.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, proc, root := createCgroups(t, map[string]int{"/kubepods/podaa/c1": 7, "/kubepods/podaa": 0, "/kubepods/podbb": 0, "/kubepods": 0, "/": 0})
		s := New(Config{Cgroups: cgroup.NewRecent(r, time.Second), Process: proc, Pods: "/kubepods"})
		see := func(want string) {
			t.Helper()
			v, err := s.Now()
			if err != nil {
				t.Fatal(err)
			}
			if got := tell(v); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
			time.Sleep(5 * time.Second)
		}
		see("0 / | wlan0:100/200\n1 /kubepods |\n3 /kubepods/podaa aa| eth0:100/200\n4 /kubepods/podaa/c1 aa|c1 3 files 1 sockets\n3 /kubepods/podbb bb|\n")
		for _, c := range []string{"memory", "cpuacct"} {
			for from, to := range map[string]string{"/kubepods/podaa/c1": "/kubepods/podaa/c2", "/kubepods/podbb": "/kubepods/podcc"} {
				if err := os.Rename(filepath.Join(root, c+from), filepath.Join(root, c+to)); err != nil {
					t.Fatal(err)
				}
			}
		}
		see("0 / | wlan0:100/200\n1 /kubepods |\n3 /kubepods/podaa aa| eth0:100/200\n4 /kubepods/podaa/c2 aa|c2 3 files 1 sockets\n3 /kubepods/podcc cc|\n")
	})
}

// TestStill checks that files below an idle cgroup are read only if the last reading is outdated. After a process has run in the cgroup,
// added and removed cgroups are detected.
func TestStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, proc, root := createCgroups(t, map[string]int{"/kubepods/burstable/podaa/c1": 7, "/kubepods/burstable/podaa": 0, "/kubepods/burstable": 0, "/kubepods/podbb/c2": 8, "/kubepods/podbb": 0, "/kubepods": 0, "/": 0})
		ran := func(path string, n int) { write(t, root, "cpuacct"+path+"/cpuacct.usage", fmt.Sprintln(n)) }
		for _, path := range []string{"/kubepods", "/kubepods/burstable", "/kubepods/burstable/podaa", "/kubepods/burstable/podaa/c1", "/kubepods/podbb", "/kubepods/podbb/c2"} {
			ran(path, 1000)
		}
		s := New(Config{Cgroups: cgroup.NewRecent(r, time.Second), Process: proc, Pods: "/kubepods"})
		see := func(what string, want ...string) {
			t.Helper()
			time.Sleep(2 * time.Second)
			v, err := s.Now()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, g := range v.Groups {
				if g.Kind == Container {
					got = append(got, fmt.Sprint(g.Container, " ", int64(g.CPU), " ", len(v.Find(g.Path[:strings.LastIndex(g.Path, "/")]).Network)))
				}
				if g.Kind != Root && time.Since(g.At) > 0 {
					t.Errorf("%s: %s is as of %v", what, g.Path, g.At)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", what, got, want)
			}
		}
		see("first", "c1 1000 1", "c2 1000 0")
		ran("/kubepods/burstable/podaa/c1", 2000) // a kernel would also count this time for the ancestors
		ran("/kubepods/podbb/c2", 2000)
		see("nothing ran", "c1 1000 1", "c2 1000 0")
		ran("/kubepods", 3000)
		ran("/kubepods/podbb", 2000)
		see("something in one pod", "c1 1000 1", "c2 2000 0")
		ran("/kubepods", 4000)
		ran("/kubepods/burstable", 4000)
		see("something in a class, not in its pod", "c1 1000 1", "c2 2000 0")
		ran("/kubepods", 5000)
		ran("/kubepods/burstable", 5000)
		ran("/kubepods/burstable/podaa", 5000)
		write(t, root, "memory/kubepods/burstable/podaa/c3/memory.usage_in_bytes", "7\n")
		write(t, root, "cpuacct/kubepods/burstable/podaa/c3/cpuacct.usage", "7\n")
		see("in the pod, with a container more", "c1 2000 1", "c3 7 1", "c2 2000 0")
		ran("/kubepods/burstable/podaa/c1", 9000)
		time.Sleep(4 * time.Minute)
		see("later", "c1 9000 1", "c3 7 1", "c2 2000 0")
	})
}

// TestOthers checks that a reading between two samples is not mistaken for a reading of the previous sample. Other callers, such as the
// CRI, cause such readings.
func TestOthers(t *testing.T) {
	const kubepods, pod, c1 = "/kubepods", "/kubepods/podaa", "/kubepods/podaa/c1"
	for name, x := range map[string]struct {
		before, after []string // cgroups that are read before and after all processes have run
		now           bool     // whether a sample is taken right after that; it may contain readings that are less than a second old
	}{
		"the pod":                       {after: []string{pod}},
		"the pod, its container before": {before: []string{c1}, after: []string{pod}, now: true},
		"the container":                 {after: []string{c1}},
		"all":                           {after: []string{kubepods, pod, c1}},
		"all, from below":               {before: []string{c1, pod}, after: []string{kubepods}, now: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, proc, root := createCgroups(t, map[string]int{c1: 7, pod: 0, kubepods: 0, "/": 0})
				recent := cgroup.NewRecent(r, time.Second)
				s := New(Config{Cgroups: recent, Process: proc, Pods: kubepods})
				run := func(n int) {
					for _, path := range []string{kubepods, pod, c1} {
						write(t, root, "cpuacct"+path+"/cpuacct.usage", fmt.Sprintln(n))
					}
				}
				read := func(paths []string) {
					for _, path := range paths {
						if _, err := recent.Read(path); err != nil {
							t.Fatal(err)
						}
					}
				}
				see := func(what string, used time.Duration, sockets uint64) {
					t.Helper()
					v, err := s.Now()
					if err != nil {
						t.Fatal(err)
					}
					for _, path := range []string{pod, c1} {
						if g := v.Find(path); g.CPU != used {
							t.Errorf("%s: %s has used %v, want %v", what, path, g.CPU, used)
						}
					}
					if g := v.Find(c1); g.Open.Sockets != sockets {
						t.Errorf("%s: %d sockets, want %d", what, g.Open.Sockets, sockets)
					}
				}
				run(1000)
				see("first", 1000, 1)
				time.Sleep(10 * time.Second)
				see("nothing ran", 1000, 1)
				time.Sleep(10 * time.Second)
				read(x.before)
				run(5000)
				if err := os.Symlink("socket:[2]", filepath.Join(proc.Root, "7/fd/5")); err != nil {
					t.Fatal(err)
				}
				read(x.after)
				if x.now {
					if _, err := s.Now(); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(2 * time.Second)
				see("it ran", 5000, 2)
				time.Sleep(30 * time.Second)
				see("later", 5000, 2)
			})
		})
	}
}
