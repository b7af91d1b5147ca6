package image

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A memory is an implementation of Imports in memory.
type memory struct {
	mu   sync.Mutex
	keys map[string]string
}

func (m *memory) WasImported(_ context.Context, key string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.keys[key]
	return ok, nil
}

func (m *memory) AddImport(_ context.Context, key, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys[key] = name
	return nil
}

// A report contains the arguments of a call of Report.
type report struct {
	file string
	err  error
}

type inboxTest struct {
	*Inbox
	dir     string
	svc     *Service
	imports *memory
	reports chan report
	changes chan struct{}
}

func newInbox(t *testing.T) *inboxTest {
	t.Helper()
	x := &inboxTest{
		dir:     filepath.Join(t.TempDir(), "images"),
		imports: &memory{keys: map[string]string{}},
		reports: make(chan report, 100),
		changes: make(chan struct{}, 100),
	}
	x.svc = newService(t, func(c *Config) { c.OnChange = func() { x.changes <- struct{}{} } })
	if err := os.MkdirAll(x.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return x
}

// start runs a new Inbox with the same storage, like an agent after a restart.
func (x *inboxTest) start(t *testing.T) (stop func()) {
	t.Helper()
	b, err := NewInbox(InboxConfig{
		Dir: x.dir, Service: x.svc, Imports: x.imports, Log: logger(t),
		Report: func(file string, err error) { x.reports <- report{filepath.Base(file), err} },
	})
	if err != nil {
		t.Fatal(err)
	}
	x.Inbox = b
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.Run(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(stop)
	return stop
}

// waitIdle waits until the Inbox has ended its scan.
func (x *inboxTest) waitIdle(t *testing.T) {
	t.Helper()
	for ended := time.After(2 * time.Minute); ; {
		x.mu.Lock()
		turn, idle := x.stepEnded, x.idle
		x.mu.Unlock()
		if idle {
			return
		}
		select {
		case <-turn:
		case <-ended:
			t.Fatal("the scan did not end")
		}
	}
}

// wait waits for an image as a pod does. Then it reports whether the image exists.
func (x *inboxTest) wait(t *testing.T, ref string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := x.WaitImage(ctx, ref); err != nil {
		t.Fatal(err)
	}
	_, err := x.svc.Resolve(ctx, ref)
	return err == nil
}

func recv[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(2 * time.Minute):
		t.Fatal("timed out")
		panic("unreachable")
	}
}

func TestInbox(t *testing.T) {
	x := newInbox(t)
	one := dockerArchive(t, map[string]v1.Image{"one:1": small(t)})
	writeFile(t, filepath.Join(x.dir, "one.tar"), one)
	writeFile(t, filepath.Join(x.dir, "bad.tar"), bytes.Repeat([]byte("no"), 1000))
	writeFile(t, filepath.Join(x.dir, ".hidden.tar"), []byte("not an archive"))
	stop := x.start(t)
	if !x.wait(t, "one:1") {
		t.Fatal("one was not imported")
	}
	if x.wait(t, "absent:1") {
		t.Fatal("absent was imported")
	}
	if r := recv(t, x.reports); r.file != "bad.tar" || r.err == nil || !strings.Contains(r.err.Error(), "not a tar archive") {
		t.Fatalf("report %+v", r)
	}
	recv(t, x.changes)

	// When a new archive is written or moved to the directory, an inotify event starts its import.
	writeFile(t, filepath.Join(x.dir, "two.tar.gz"), gzipped(t, dockerArchive(t, map[string]v1.Image{"two:1": imageOf(t, "")})))
	recv(t, x.changes)
	if !x.wait(t, "two:1") {
		t.Fatal("two was not imported")
	}
	if err := os.Remove(filepath.Join(x.dir, "bad.tar")); err != nil {
		t.Fatal(err)
	}
	if r := recv(t, x.reports); r.file != "bad.tar" || r.err != nil {
		t.Fatalf("report %+v", r)
	}
	stop()

	// No archive is imported again after a restart or under another file name.
	writeFile(t, filepath.Join(x.dir, "copy.tar"), one)
	stop = x.start(t)
	x.wait(t, "absent:1")
	if len(x.changes) > 0 {
		t.Fatal("an archive was imported again")
	}

	// An image that was removed is imported again when a pod needs it, and not before.
	if _, err := x.svc.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: "one:1"}}); err != nil {
		t.Fatal(err)
	}
	stop()
	x.start(t)
	x.wait(t, "absent:1")
	if _, err := x.svc.Resolve(t.Context(), "one:1"); err == nil {
		t.Fatal("the image was imported again, although no pod needs it")
	}
	if !x.wait(t, "one:1") {
		t.Fatal("one was not imported again")
	}
}

// TestBusyInbox checks that an archive is imported although another archive is still being written.
func TestBusyInbox(t *testing.T) {
	x := newInbox(t)
	x.start(t)
	x.wait(t, "absent:1")
	f, err := os.Create(filepath.Join(x.dir, "long.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stop, writing := make(chan struct{}), make(chan struct{})
	defer func() { close(stop); <-writing }()
	began := make(chan struct{})
	go func() {
		defer close(writing)
		tick := time.NewTicker(settleDelay / 10)
		defer tick.Stop()
		for n := 0; ; n++ {
			if _, err := f.Write([]byte("x")); err != nil {
				t.Error(err)
				return
			}
			if n == 1 {
				close(began)
			}
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	<-began
	writeFile(t, filepath.Join(x.dir, "one.tar"), dockerArchive(t, map[string]v1.Image{"one:1": small(t)}))
	select {
	case <-x.changes:
	case <-time.After(30 * time.Second):
		t.Error("no archive is imported while a file is being written")
	}
}

// TestInboxHalfWritten checks that a file is not read before its writer has closed it.
func TestInboxHalfWritten(t *testing.T) {
	x := newInbox(t)
	data := dockerArchive(t, map[string]v1.Image{"slow:1": small(t)})
	f, err := os.Create(filepath.Join(x.dir, "slow.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(data[:len(data)/2]); err != nil {
		t.Fatal(err)
	}
	x.start(t)
	if x.wait(t, "slow:1") {
		t.Fatal("the archive was imported while it was being written")
	}
	if _, err := f.Write(data[len(data)/2:]); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	recv(t, x.changes)
	if !x.wait(t, "slow:1") {
		t.Fatal("the image was not imported")
	}
	if len(x.reports) > 0 {
		t.Fatalf("report %+v", <-x.reports)
	}
}

// TestInboxStopped checks an Inbox that is stopped during an import. The next start imports the archive, and no other data is left.
func TestInboxStopped(t *testing.T) {
	x := newInbox(t)
	var layers []v1.Layer
	for i := range 8 {
		layers = append(layers, layerOf(t, file{name: "data", body: noise(uint64(20+i), 1<<20)}))
	}
	writeFile(t, filepath.Join(x.dir, "big.tar"), dockerArchive(t, map[string]v1.Image{"big:1": imageOf(t, "", layers...)}))
	for range 5 {
		x.start(t)()
	}
	stop := x.start(t)
	if !x.wait(t, "big:1") {
		t.Fatal("the image was not imported")
	}
	stop() // the import may not have removed its temporary data when the image exists
	if got := left(t, x.svc); count(got, "lease ")+count(got, "download ") > 0 || count(got, "snapshot ") != len(layers) {
		t.Errorf("left over: %q", got)
	}
}

// TestReread checks that archives are imported again after their records were deleted, also while the inbox runs.
func TestReread(t *testing.T) {
	x := newInbox(t)
	writeFile(t, filepath.Join(x.dir, "one.tar"), dockerArchive(t, map[string]v1.Image{"one:1": small(t)}))
	x.start(t)
	if !x.wait(t, "one:1") {
		t.Fatal("the archive was not imported")
	}
	recv(t, x.changes)
	x.waitIdle(t) // the import is recorded after the image exists
	if _, err := x.svc.RemoveImage(t.Context(), &api.RemoveImageRequest{Image: &api.ImageSpec{Image: "one:1"}}); err != nil {
		t.Fatal(err)
	}
	x.imports.mu.Lock()
	clear(x.imports.keys)
	x.imports.mu.Unlock()
	x.Reread()
	recv(t, x.changes)
	if _, err := x.svc.Resolve(t.Context(), "one:1"); err != nil {
		t.Error(err)
	}
}
