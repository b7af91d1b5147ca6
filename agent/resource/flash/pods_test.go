package flash

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/islet-edge/islet/metrics/cgroup"
	"github.com/islet-edge/islet/metrics/process"
)

// TestPods checks that the written bytes of a cgroup are read again only if the cgroup has used CPU time or has a new container. Removed
// containers no longer count.
func TestPods(t *testing.T) {
	groups, proc := t.TempDir(), t.TempDir()
	write := func(root, path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	used := map[string]int{}
	run := func(paths ...string) { // the parent cgroups count the CPU time too
		for _, path := range paths {
			for ; path != "."; path = filepath.Dir(path) {
				used[path]++
				write(groups, "cpuacct/"+path+"/cpuacct.usage", strconv.Itoa(used[path])+"\n")
			}
		}
	}
	container := func(path string, pid, bytes int) {
		write(groups, "memory/"+path+"/cgroup.procs", strconv.Itoa(pid)+"\n")
		write(proc, strconv.Itoa(pid)+"/io", "rchar: 1\nwrite_bytes: "+strconv.Itoa(bytes)+"\n")
		run(path)
	}
	var w cgroupWrites
	see := func(what string, want uint64) {
		t.Helper()
		if got := w.update(cgroup.NewReader(groups), process.Reader{Root: proc}, "/pods", maxDepth); got != want {
			t.Errorf("%s: %d bytes, want %d", what, got, want)
		}
	}
	see("none", 0)
	container("pods/a/1", 1, 100)
	container("pods/a/2", 2, 20)
	container("pods/b/3", 3, 3)
	see("first", 123)
	write(proc, "1/io", "write_bytes: 500\n")
	see("nobody has run", 123) // this case cannot occur on a real machine
	run("pods/b/3")
	see("another has run", 123)
	run("pods/a/2")
	see("one beside it has run", 123)
	run("pods/a/1")
	see("it has run", 523)
	container("pods/c/4", 4, 1000)
	see("a new pod", 1523)
	hidden := "pods/c/4" + strings.Repeat("/d", maxDepth)
	container(hidden, 5, 10_000)
	container(hidden+"/d/d", 6, 100_000)
	see("deep below", 111_523)
	run("pods/a/2")
	see("deep below, and nobody has run there", 111_523)
	write(proc, "6/io", "write_bytes: 200000\n")
	run(hidden + "/d/d")
	see("deep below it has run", 211_523)
	if err := os.RemoveAll(filepath.Join(groups, "memory/pods/c/4/d")); err != nil {
		t.Fatal(err)
	}
	run("pods/c/4")
	if err := os.RemoveAll(filepath.Join(groups, "memory/pods/a/1")); err != nil {
		t.Fatal(err)
	}
	run("pods/a/2")
	see("a container is gone", 1023)
	if n := len(w.children["a"].children); n != 1 {
		t.Errorf("%d containers are kept", n)
	}
	if err := os.RemoveAll(filepath.Join(groups, "cpuacct")); err != nil {
		t.Fatal(err)
	}
	write(proc, "4/io", "write_bytes: 2000\n")
	see("CPU time is not counted", 2023)
	write(proc, "4/io", "write_bytes: 3000\n")
	see("nor then", 3023)
}
