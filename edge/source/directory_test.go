package source

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/manifest"
	"github.com/islet-edge/islet/edge/store"
)

// A host is a directory of manifests and a node that reads it.
type host struct {
	*node
	dir  string
	stop func()
}

// This duration is longer than any test, so only inotify events cause reads.
const never = time.Hour

func newHost(t *testing.T, interval time.Duration, files ...string) *host {
	h := &host{node: newNode(t), dir: filepath.Join(t.TempDir(), "manifests")}
	h.mkdir(h.dir)
	for _, name := range files {
		h.write(name, podYAML(strings.TrimSuffix(name, ".yaml"), "v1"))
	}
	h.start(h.dir, interval)
	return h
}

func (h *host) start(path string, interval time.Duration) {
	h.Helper()
	d, err := NewDirectory(DirectoryConfig{
		Path: path, Interval: interval, Decode: decode, Sink: h.node, Log: slog.New(slog.NewTextHandler(h.Output(), nil)),
	})
	if err != nil {
		h.Fatal(err)
	}
	ctx, cancel := context.WithCancel(h.Context())
	ended := make(chan error)
	go func() { ended <- d.Run(ctx) }()
	h.stop = func() {
		cancel()
		if ended != nil {
			if err := <-ended; err != nil {
				h.Error(err)
			}
			ended = nil
		}
	}
	h.Cleanup(h.stop)
}

func (h *host) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *host) mkdir(path string) { h.Helper(); h.must(os.MkdirAll(path, 0o755)) }

func (h *host) write(name, data string) {
	h.Helper()
	h.must(os.WriteFile(filepath.Join(h.dir, name), []byte(data), 0o644))
}

func (h *host) remove(name string) { h.Helper(); h.must(os.Remove(filepath.Join(h.dir, name))) }

func TestDirectoryFollowsFiles(t *testing.T) {
	h := newHost(t, never, "a.yaml")
	h.until("a=v1", "")
	h.write("b.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"v1"}]}}`)
	h.until("a=v1 b=v1", "")
	h.write("a.yaml", podYAML("a", "v2"))
	h.until("a=v2 b=v1", "")
	h.remove("b.json")
	h.until("a=v2", "")
	h.must(os.Rename(filepath.Join(h.dir, "a.yaml"), filepath.Join(h.dir, ".a.yaml")))
	h.until("", "")
	h.must(os.Rename(filepath.Join(h.dir, ".a.yaml"), filepath.Join(h.dir, "other")))
	h.until("a=v2", "")
}

// TestFileOfSeveralPods checks that each YAML document in a file is a separate pod. A pod must start and end without an effect on the
// other pods of the file.
func TestFileOfSeveralPods(t *testing.T) {
	h := newHost(t, never, "a.yaml")
	h.until("a=v1", "")
	h.write("a.yaml", podYAML("a", "v1")+"---\n"+podYAML("b", "v1"))
	h.until("a=v1 b=v1", "")
	h.write("a.yaml", podYAML("a", "v1")+"---\n"+strings.Replace(podYAML("b", "v2"), "image:", "imagee:", 1))
	h.until("a=v1 b=v1", "imagee")
	h.write("a.yaml", podYAML("b", "v2"))
	h.until("b=v2", "")
}

func TestBadFilesKeepTheirPodAndDisturbNone(t *testing.T) {
	bad := map[string]struct {
		data    string
		problem string
	}{
		"half written":  {podYAML("b", "v2")[:60], "b.yaml "},
		"empty":         {"", "b.yaml : is empty"},
		"zeroed":        {strings.Repeat("\x00", 4096), "b.yaml : is empty"},
		"only comments": {"# " + strings.ReplaceAll(podYAML("b", "v2"), "\n", "\n# "), "b.yaml : is empty"},
		"foreign":       {"hello\n", "b.yaml "},
		"binary":        {"\x7fELF\x02\x01\x01\x00\xff\xfe", "b.yaml "},
		"unknown field": {strings.Replace(podYAML("b", "v2"), "image:", "imagee:", 1), "imagee"},
		"wrong value":   {podYAML("b", "v2") + "  hostNetwork: maybe\n", "b.yaml spec.hostNetwork: "},
		"other kind":    {"apiVersion: v1\nkind: Service\nmetadata: {name: b}\n", "b.yaml "},
		"huge":          {"#" + strings.Repeat("x", manifest.MaxSize), "b.yaml : "},
	}
	h := newHost(t, never, "a.yaml", "b.yaml")
	h.until("a=v1 b=v1", "")
	for name, c := range bad {
		h.Log(name)
		h.write("b.yaml", c.data)
		h.until("a=v1 b=v1", c.problem)
		h.write("c.yaml", podYAML("c", "v1"))
		h.until("a=v1 b=v1 c=v1", c.problem)
		h.remove("c.yaml")
		h.until("a=v1 b=v1", c.problem)

		// The last valid pod is kept after a restart of the source.
		h.stop()
		h.start(h.dir, never)
		h.until("a=v1 b=v1", c.problem)
	}
	h.write("b.yaml", podYAML("b", "v3"))
	h.until("a=v1 b=v3", "")
	h.remove("b.yaml")
	h.until("a=v1", "")
}

func TestDirectoryIgnoresWhatIsNoFile(t *testing.T) {
	h := newHost(t, never, "a.yaml")
	h.until("a=v1", "")
	h.mkdir(filepath.Join(h.dir, "sub"))
	h.must(os.WriteFile(filepath.Join(h.dir, "sub", "x.yaml"), []byte(podYAML("x", "v1")), 0o644))
	h.write(".hidden.yaml", podYAML("hidden", "v1"))
	h.write("b.yaml", podYAML("b", "v1"))
	h.until("a=v1 b=v1", "")

	h.must(syscall.Mkfifo(filepath.Join(h.dir, "z"), 0o644))
	h.until("a=v1 b=v1", "z : is a named pipe")
	h.remove("z")
	h.until("a=v1 b=v1", "")
	l, err := net.Listen("unix", filepath.Join(h.dir, "z"))
	h.must(err)
	h.until("a=v1 b=v1", "z : is a socket")
	h.must(l.Close())
	h.until("a=v1 b=v1", "")
	h.must(os.Symlink("/dev/zero", filepath.Join(h.dir, "z")))
	h.until("a=v1 b=v1", "z : is a device")
	h.remove("z")
	h.must(os.Symlink("nowhere", filepath.Join(h.dir, "z")))
	h.until("a=v1 b=v1", "z : the symbolic link leads nowhere")
	h.remove("z")
	h.must(os.Symlink("sub", filepath.Join(h.dir, "z")))
	h.until("a=v1 b=v1", "")
}

// TestFilePutBack checks that a pod ends and starts again when its file is removed and created again. The file may be unchanged and may be
// created immediately. Other pods are not affected.
func TestFilePutBack(t *testing.T) {
	h := newHost(t, never)
	h.stop()
	h.lasts = true
	config := "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: wifi, namespace: default}\n"
	h.write("a.yaml", podYAML("a", "v1")+config)
	h.write("b.yaml", podYAML("b", "v1"))
	h.start(h.dir, never)
	h.until("a=v1 b=v1", "")
	pod := func(name string) (p desired.Pod) {
		for _, p = range h.List() {
			if p.Pod.Name == name+"-node" {
				break
			}
		}
		return p
	}
	lives := func(n int) {
		t.Helper()
		for deadline := time.After(2 * time.Minute); pod("a").Lives != n || pod("a").Deleting; {
			select {
			case <-h.told:
			case <-deadline:
				t.Fatalf("a ended and restarted %d times (deleting: %v), not %d times", pod("a").Lives, pod("a").Deleting, n)
			}
		}
		if h.objects() != "ConfigMap/wifi" {
			t.Errorf("there is %q", h.objects())
		}
	}
	uid, other := pod("a").Pod.UID, pod("b")

	h.remove("a.yaml")
	h.write("a.yaml", podYAML("a", "v1")+config)
	lives(1)

	h.must(os.Rename(filepath.Join(h.dir, "a.yaml"), filepath.Join(h.dir, ".backup"))) // as editors do
	h.must(os.Rename(filepath.Join(h.dir, ".backup"), filepath.Join(h.dir, "a.yaml")))
	lives(2)

	h.remove("a.yaml")
	f, err := os.Create(filepath.Join(h.dir, "a.yaml"))
	h.must(err)
	h.until("a=v1 b=v1", "a.yaml : is ")
	_, err = f.WriteString(podYAML("a", "v1") + config)
	h.must(err)
	h.must(f.Close())
	lives(3)

	// If a file is replaced or rewritten with the same content, no pod ends.
	h.write(".new", podYAML("a", "v1")+config)
	h.must(os.Rename(filepath.Join(h.dir, ".new"), filepath.Join(h.dir, "a.yaml")))
	h.write("a.yaml", podYAML("a", "v1")+config)
	h.write("c.yaml", podYAML("c", "v1"))
	h.until("a=v1 b=v1 c=v1", "")
	lives(3)
	if pod("a").Pod.UID != uid || pod("b") != other {
		t.Errorf("the pods are %v and %v, not %s and %v", pod("a"), pod("b"), uid, other)
	}
}

// TestDirectoryFollowsLinks checks a mounted ConfigMap. Its files are symlinks into a directory that is itself a symlink. This symlink is
// replaced atomically.
func TestDirectoryFollowsLinks(t *testing.T) {
	h := newHost(t, never)
	version := func(image string) {
		h.mkdir(filepath.Join(h.dir, "..data_"+image))
		h.write("..data_"+image+"/a.yaml", podYAML("a", image))
		h.must(os.Symlink("..data_"+image, filepath.Join(h.dir, "..data_tmp")))
		h.must(os.Rename(filepath.Join(h.dir, "..data_tmp"), filepath.Join(h.dir, "..data")))
	}
	version("v1")
	h.must(os.Symlink("..data/a.yaml", filepath.Join(h.dir, "a.yaml")))
	h.until("a=v1", "")
	version("v2")
	h.until("a=v2", "")
}

func TestLinkedDirectoryIsReplaced(t *testing.T) {
	h := newHost(t, never, "a.yaml")
	h.until("a=v1", "")
	h.stop()
	link := h.dir + ".link"
	h.must(os.Symlink(h.dir, link))
	h.start(link, never)
	h.until("a=v1", "")

	h.dir = filepath.Join(filepath.Dir(h.dir), "next")
	h.mkdir(h.dir)
	h.write("a.yaml", podYAML("a", "v2"))
	h.must(os.Symlink(h.dir, link+".tmp"))
	h.must(os.Rename(link+".tmp", link))
	h.until("a=v2", "")
	h.write("a.yaml", podYAML("a", "v3")) // the new directory is watched
	h.until("a=v3", "")
}

func TestDirectoryComesAndGoes(t *testing.T) {
	h := newHost(t, never, "a.yaml")
	h.until("a=v1", "")
	h.must(os.RemoveAll(h.dir)) // a removal of a watched directory is intended
	h.until("", "")
	h.mkdir(h.dir)
	h.write("a.yaml", podYAML("a", "v2"))
	h.until("a=v2", "")
	h.must(os.Rename(h.dir, h.dir+".away"))
	h.until("", "")
	h.must(os.Rename(h.dir+".away", h.dir))
	h.until("a=v2", "")
	h.write("b.yaml", podYAML("b", "v1"))
	h.until("a=v2 b=v1", "")

	// If the directory does not exist when the node starts, for example because its disk is not mounted, no pod ends.
	h.stop()
	h.must(os.Rename(h.dir, h.dir+".away"))
	h.start(h.dir, never)
	h.until("a=v2 b=v1", "no such file")
	h.must(os.Rename(h.dir+".away", h.dir))
	h.until("a=v2 b=v1", "")
	h.remove("b.yaml")
	h.until("a=v2", "")
}

func TestSingleFile(t *testing.T) {
	h := newHost(t, never)
	h.stop()
	h.write("pod.yaml", podYAML("a", "v1"))
	h.start(filepath.Join(h.dir, "pod.yaml"), never)
	h.write("neighbour.yaml", podYAML("n", "v1"))
	h.until("a=v1", "")
	h.write(".new", podYAML("a", "v2"))
	h.must(os.Rename(filepath.Join(h.dir, ".new"), filepath.Join(h.dir, "pod.yaml")))
	h.until("a=v2", "")
	h.remove("pod.yaml")
	h.until("", "")
	h.write("pod.yaml", podYAML("a", "v3"))
	h.until("a=v3", "")
}

// TestRegularCheck checks that the regular scan detects changes when there are no events. A network file system sends no events.
func TestRegularCheck(t *testing.T) {
	h := newHost(t, 10*time.Millisecond)
	target := filepath.Join(t.TempDir(), "elsewhere.yaml")
	h.must(os.WriteFile(target, []byte(podYAML("a", "v1")), 0o644))
	h.must(os.Symlink(target, filepath.Join(h.dir, "a.yaml")))
	h.until("a=v1", "")
	h.must(os.WriteFile(target, []byte(podYAML("a", "v2")), 0o644))
	h.until("a=v2", "")
	h.must(os.Remove(target))
	h.until("a=v2", "leads nowhere")
}

// TestRestlessDirectory checks that the other files are read while one file is written continuously.
func TestRestlessDirectory(t *testing.T) {
	h := newHost(t, never)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f, err := os.Create(filepath.Join(h.dir, ".log"))
		for tick := time.NewTicker(quietTime / 10); err == nil && ctx.Err() == nil; <-tick.C {
			_, err = f.WriteString("x")
		}
	}()
	h.write("a.yaml", podYAML("a", "v1"))
	h.until("a=v1", "")
	cancel()
	<-ended
}

func TestUnsetDirectoryIsRefused(t *testing.T) {
	for _, c := range []DirectoryConfig{{Path: "", Interval: 1}, {Path: "/x", Interval: 0}} {
		if _, err := NewDirectory(c); err == nil {
			t.Error(c)
		}
	}
}

// TestRefusedSetIsToldAgain checks that the pods are delivered again after an error of the sink, for example on a full disk.
func TestRefusedSetIsToldAgain(t *testing.T) {
	n := newNode(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(podYAML("a", "v1")), 0o644); err != nil {
		t.Fatal(err)
	}
	full := &fullOnce{node: n}
	d, err := NewDirectory(DirectoryConfig{Path: dir, Interval: never, Decode: decode, Sink: full, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d.check(t.Context())
	if n.pods() != "" || full.sets != 1 {
		t.Error(n.pods(), full.sets)
	}
	d.check(t.Context())
	d.check(t.Context())
	if n.pods() != "a=v1" || full.sets > 3 {
		t.Error(n.pods(), full.sets)
	}
}

type fullOnce struct {
	*node
	sets int
}

func (f *fullOnce) Set(ctx context.Context, source string, pods []desired.SourcePod, problems []desired.Problem) error {
	f.sets++
	if f.sets == 1 {
		return store.ErrFull
	}
	return f.node.Set(ctx, source, pods, problems)
}

// TestFileBeingWrittenIsNotRead checks that a file is not read while it is written. A partial manifest can be valid.
func TestFileBeingWrittenIsNotRead(t *testing.T) {
	h := newHost(t, never, "a.yaml", "b.yaml")
	h.until("a=v1 b=v1", "")
	f, err := os.Create(filepath.Join(h.dir, "a.yaml"))
	h.must(err)
	whole := podYAML("a", "v2") + "  hostNetwork: true\n"
	half := strings.Index(whole, "  hostNetwork")
	_, err = f.WriteString(whole[:half])
	h.must(err)
	h.write("b.yaml", podYAML("b", "v2"))
	h.until("a=v1 b=v2", "a.yaml : is being written")

	// The same applies when the node starts.
	h.stop()
	h.start(h.dir, never)
	<-h.told
	h.until("a=v1 b=v2", "a.yaml : is being written")
	_, err = f.WriteString(whole[half:])
	h.must(err)
	h.must(f.Close())
	h.until("a=v2 b=v2", "")
	for _, p := range h.List() {
		if p.Pod.Name == "a-node" && !p.Pod.Spec.HostNetwork {
			t.Error("a pod of the partial file runs")
		}
	}
}

// TestFileIsClosedLate checks that a manifest is read if its writer closes the file long after the last change to it. After that, the file
// is not read again.
func TestFileIsClosedLate(t *testing.T) {
	h := newHost(t, never) // a new file beside it would be read again, and deliver both
	<-h.told
	f, err := os.Create(filepath.Join(h.dir, "a.yaml"))
	h.must(err)
	_, err = f.WriteString(podYAML("a", "v1"))
	h.must(err)
	long := time.Now().Add(-time.Hour)
	h.must(os.Chtimes(f.Name(), long, long))
	h.until("", "a.yaml : is being written")
	h.must(f.Close())
	h.until("a=v1", "")
}

// TestFileHeldOpenIsReadOnceItRests checks that an unchanged file is read although a program keeps it open for writing.
func TestFileHeldOpenIsReadOnceItRests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.yaml")
	if err := os.WriteFile(path, []byte(podYAML("a", "v1")), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	first, found := readIfChanged(path, file{}, decode)
	if !found || len(first.pods) != 0 || first.open.IsZero() {
		t.Skip("this file system has no leases")
	}
	if again, _ := readIfChanged(path, first, decode); again.open != first.open {
		t.Error("the wait has started again")
	}
	first.open = first.open.Add(-openFileTimeout)
	if rested, _ := readIfChanged(path, first, decode); len(rested.pods) != 1 || !rested.open.IsZero() {
		t.Error(rested)
	}
}
