package medium

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/islet-edge/islet/internal/api"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/bundle/bundletest"
	"github.com/islet-edge/islet/internal/led"
)

func TestMain(m *testing.M) {
	if os.Args[0] == Program {
		os.Exit(Main())
	}
	os.Exit(m.Run())
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// A stick is a loop device with ext4.
type stick struct {
	t      *testing.T
	label  string
	image  string
	device string // such as /dev/loop3; empty while the stick is not plugged in
}

// newStick makes a stick with a label of its own and the given files. It skips the test where that is impossible.
func newStick(t *testing.T, files map[string]string) *stick {
	t.Helper()
	for _, program := range []string{"mkfs.ext4", "losetup", "debugfs"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	if f, err := os.Open("/dev/loop-control"); err != nil || os.Getuid() != 0 {
		t.Skip("needs root and loop devices")
	} else {
		f.Close()
	}
	dir := t.TempDir()
	s := &stick{t: t, label: fmt.Sprintf("T%d", os.Getpid()), image: filepath.Join(t.TempDir(), "image")}
	for name, text := range files {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link.tar")), os.Symlink("/etc", filepath.Join(dir, "away")),
		syscall.Mkfifo(filepath.Join(dir, "fifo.tar"), 0o600))
	must(t, os.WriteFile(s.image, nil, 0o600), os.Truncate(s.image, 8<<20))
	s.run("mkfs.ext4", "-q", "-L", s.label, "-d", dir, s.image)
	t.Cleanup(s.pull)
	return s
}

func (s *stick) run(args ...string) string {
	s.t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// plug attaches the loop device. The kernel sends an event.
func (s *stick) plug() {
	s.t.Helper()
	s.device = s.run("losetup", "--find", "--show", s.image)
}

func (s *stick) pull() {
	s.t.Helper()
	if s.device != "" {
		s.run("losetup", "-d", s.device)
	}
	s.device = ""
}

// cat returns the content of a file on the stick, which must not be mounted.
func (s *stick) cat(name string) string {
	s.t.Helper()
	out, err := exec.Command("debugfs", "-R", "cat "+name, s.image).Output()
	must(s.t, err)
	return string(out)
}

// A node applies every offer whose name is not "bad.tar". It reads the file index.json of each bundle.
type node struct {
	mu      sync.Mutex
	seen    []string
	reports int
	fail    error
	busy    int           // calls of ApplyNewest that return ErrBusy
	during  func()        // is called after the first byte of a bundle was read; may be nil
	done    chan struct{} // a value for each call of ApplyNewest
}

func (n *node) ApplyNewest(_ context.Context, offers []Offer) (string, api.Bundle, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy--; n.busy >= 0 {
		return offers[0].Name, api.Bundle{}, fmt.Errorf("unpacking: %w", ErrBusy)
	}
	defer func() { n.done <- struct{}{} }()
	for _, o := range offers {
		l, err := o.Open()
		if err != nil {
			return o.Name, api.Bundle{}, err
		}
		r, size, err := l.Open("index.json")
		if err != nil {
			return o.Name, api.Bundle{}, err
		}
		text := make([]byte, 1, size+1)
		_, err = io.ReadFull(r, text)
		if n.during != nil {
			n.during()
		}
		if err == nil {
			var rest []byte
			rest, err = io.ReadAll(r)
			text = append(text, rest...)
		}
		if err = errors.Join(err, r.Close(), l.Close()); err != nil || int64(len(text)) != size {
			return o.Name, api.Bundle{}, fmt.Errorf("%d bytes instead of %d: %w", len(text), size, err)
		}
		n.seen = append(n.seen, fmt.Sprintf("%s %d %.4s", o.Name, size, text))
	}
	return offers[0].Name, api.Bundle{Name: "kiosk", Number: 1, Digest: "d"}, n.fail
}

func (n *node) AwaitTrial(context.Context) (*api.BundleOutcome, error) {
	return &api.BundleOutcome{Bundle: api.Bundle{Digest: "d"}, Result: "kept"}, nil
}

func (n *node) Report(context.Context) ([]byte, error) {
	n.reports++
	return fmt.Appendf(nil, "report %d\n", n.reports), nil
}

// start runs a Medium until the test ends. The function await waits for a result.
func start(t *testing.T, label string, n *node) (await func(what, result string) *api.BundleMedium) {
	_, await = startWith(t, label, n, led.New("", ""))
	return await
}

// startWith runs a Medium with an LED until the test ends. The function await waits for a result.
func startWith(t *testing.T, label string, n *node, light *led.LED) (m *Medium, await func(what, result string) *api.BundleMedium) {
	m = New(Config{Label: label, Result: true, Node: "edge", Bundles: n, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		busyPause: time.Millisecond})
	m.led = light
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return m, func(what, result string) *api.BundleMedium {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; {
			s := m.Status()
			m.mu.Lock()
			idle := len(m.waiting) == 0 && !m.busy
			m.mu.Unlock()
			if s != nil && s.Result == result && idle {
				return s
			}
			if time.Now().After(end) {
				t.Fatalf("%s: %+v, want %s", what, s, result)
			}
			select { // there is no event for the status
			case <-t.Context().Done():
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
}

// TestStick plugs in a stick with a tar, a directory, and names that are not bundles. The node reads both bundles and writes its result.
// The same stick is read again only after it was pulled out. The mount is in no mount namespace. A stick whose bytes cannot be read is
// refused, and is read again when it is plugged in again.
func TestStick(t *testing.T) {
	large := strings.Repeat("0123", 200_000)
	tar := string(bundletest.Tar(t, bundletest.File{Name: "oci-layout", Data: []byte("{}")},
		bundletest.File{Name: "index.json", Data: []byte(large)}))
	s := newStick(t, map[string]string{"b.tar": tar, "dir/oci-layout": "{}", "dir/index.json": "[]", "other/index.json": "",
		".hidden.tar": tar, "photo.jpg": "", "lost+found/x": ""})
	s.plug()                                           // before the start
	n := &node{done: make(chan struct{}, 10), busy: 3} // it waits until the node has ended what it does
	await := start(t, s.label, n)
	<-n.done
	got := await("plugged in before the start", "kept")
	if got.File != "b.tar" || got.Bundle.Number != 1 || got.Why != "" || got.Device != filepath.Base(s.device) {
		t.Errorf("%+v", got)
	}
	want := []string{fmt.Sprint("b.tar ", len(large), " 0123"), "dir 2 []"}
	if !slices.Equal(n.seen, want) {
		t.Errorf("%q, want %q", n.seen, want)
	}
	repull := func() {
		t.Helper()
		s.pull()
		n.mu.Lock()
		n.seen = nil
		n.mu.Unlock()
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err, os.WriteFile(filepath.Join("/sys/class/block", got.Device, "uevent"), []byte("change"), 0))
	if strings.Contains(string(mountinfo), s.device) {
		t.Error("the mount is visible")
	}
	repull()
	if got := s.cat("islet-edge.json"); got != "report 1\n" {
		t.Errorf("the result file has %q", got)
	}
	n.fail = errors.New("not signed")
	s.plug()
	<-n.done
	if got := await("a refusal", Refused); got.Why != "not signed" || got.Bundle == nil {
		t.Errorf("%+v", got)
	}
	repull()
	if len(n.done) > 0 || s.cat("islet-edge.json") != "report 2\n" {
		t.Errorf("%d more uses, result %q", len(n.done), s.cat("islet-edge.json"))
	}
}

// TestNothing checks a stick without bundles: the node writes its state.
func TestNothing(t *testing.T) {
	s := newStick(t, nil)
	await := start(t, s.label, &node{})
	s.plug()
	await("an empty stick", Nothing)
}

// suspend stops all threads of a helper, as a device that does not answer would.
func suspend(t *testing.T, s *session) {
	t.Helper()
	must(t, s.process.Process.Signal(syscall.SIGSTOP), unix.Waitid(unix.P_PID, s.process.Process.Pid, nil, unix.WSTOPPED, nil))
}

// TestSession checks errors of the helper, and that a helper that hangs or is killed delays nothing.
func TestSession(t *testing.T) {
	s := newStick(t, map[string]string{"b.tar": string(bundletest.Tar(t, bundletest.File{Name: "index.json", Data: []byte("[]")}))})
	s.plug()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open := func() (*session, format.Layout) {
		t.Helper()
		c, err := startSession(ctx, time.Minute)
		must(t, err)
		if _, _, err := c.do(request{Do: "layout"}, nil); err == nil {
			t.Error("a layout without a mount")
		}
		if a, _, err := c.do(request{Do: "mount", Device: s.device, Label: "OTHER"}, nil); err != nil || a.FileSystem != "" {
			t.Errorf("another label: %+v, %v", a, err)
		}
		a, _, err := c.do(request{Do: "mount", Device: s.device, Label: s.label}, nil)
		if err != nil || a.FileSystem != ext4 || !slices.Equal(a.Names, []string{"b.tar"}) {
			t.Fatalf("%+v, %v", a, err)
		}
		l, err := c.openLayout("b.tar")
		must(t, err)
		return c, l
	}
	c, l := open()
	if _, _, err := l.Open("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	for _, name := range []string{"link.tar", "away", "../etc", "/etc", "fifo.tar", "none"} {
		if l, err := c.openLayout(name); err == nil {
			t.Errorf("%s was opened: %v", name, l)
		}
	}
	if _, _, err := c.do(request{Do: "write", Name: "x", Data: []byte("x")}, nil); !errors.Is(err, syscall.EROFS) {
		t.Errorf("a file was written: %v", err)
	}
	c.close()
	if _, _, err := l.Open("index.json"); err == nil {
		t.Error("a file was opened after the end")
	}

	c, l = open()
	c.answerTime = 50 * time.Millisecond
	suspend(t, c)
	if _, _, err := l.Open("index.json"); !errors.Is(err, errSilent) {
		t.Errorf("a helper that hangs: %v", err)
	}
	c.close()
	<-c.ended

	c, l = open()
	r, _, err := l.Open("index.json")
	must(t, err)
	suspend(t, c)
	go cancel()
	if _, err := r.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the end of the agent: %v", err)
	}
	c.close()
	<-c.ended
}

// TestOtherDevices checks which devices are not opened at all.
func TestOtherDevices(t *testing.T) {
	names, err := listDevices()
	must(t, err)
	for _, name := range append(names, "none", "..", "../loop0", "") {
		d, ok := readDevice(name)
		if ok && (d.node == "" || d.medium == "") || ok && (name == "" || strings.Contains(name, ".") || name == "none") {
			t.Errorf("%q: %+v", name, d)
		}
	}
}

// TestAdvice checks that only an error of a medium that is gone or defective gets advice.
func TestAdvice(t *testing.T) {
	for err, want := range map[error]bool{
		&helperError{"read", syscall.EIO}: true, &helperError{"read", syscall.ENODEV}: true, &helperError{"open", syscall.ENOENT}: false,
		&helperError{"not signed", 0}: false, errSilent: false,
	} {
		if got := advise(fmt.Errorf("image: %w", err)); strings.Contains(got.Error(), "plug it in again") != want || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestMessage checks that an error of a medium names no open file of the helper.
func TestMessage(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "junk.tar"), bytes.Repeat([]byte("junk"), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	h := &helper{root: root, layouts: map[int]format.Layout{}}
	_, _, err = h.serve(&request{Do: "layout", Name: "junk.tar"})
	if err == nil || !strings.Contains(err.Error(), "/proc") {
		t.Fatalf("%v: the test proves nothing", err)
	}
	if got := message(err); strings.Contains(got, "/proc") || !strings.Contains(got, "it is not a tar") {
		t.Error(got)
	}
}
