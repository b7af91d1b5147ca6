package plugins

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// A world is a running registry that records the calls of its handler.
type world struct {
	*testing.T
	*Registry
	root   string
	events chan string

	mu     sync.Mutex
	refuse error // Register returns this error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := os.MkdirTemp("", "plugins") // short, because the path of a socket has a limited length
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(root) })
	w := &world{T: t, root: root, events: make(chan string, 100)}
	w.anew()
	return w
}

// This helper creates the registry again, as a restarted agent does.
func (w *world) anew() {
	w.Helper()
	var err error
	w.Registry, err = New(Config{Root: w.root, Handlers: map[string]Handler{CSI: w}, Log: slog.New(slog.DiscardHandler)})
	must(w.T, err)
}

// run runs the registry until the test ends or the caller calls end.
func (w *world) run() (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- w.Registry.Run(ctx) }()
	end = sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(end)
	return end
}

func (w *world) Validate(p Plugin) error {
	if strings.HasPrefix(p.Name, "bad") {
		return errors.New("it is bad")
	}
	return nil
}

func (w *world) Register(_ context.Context, p Plugin) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse == nil {
		w.events <- "+" + p.Name + " " + strings.Join(p.Versions, ",")
	}
	return w.refuse
}

func (w *world) Deregister(p Plugin) { w.events <- "-" + p.Name }

func (w *world) wait(want ...string) {
	w.Helper()
	for _, e := range want {
		if got := <-w.events; got != e {
			w.Fatalf("%s, not %s", got, e)
		}
	}
}

// A plugin is a server of the registration API with configurable responses.
type plugin struct {
	registration.UnimplementedRegistrationServer
	info   *registration.PluginInfo
	hang   bool
	deaf   bool // the plugin returns an error from NotifyRegistrationStatus
	told   chan *registration.RegistrationStatus
	server *grpc.Server
}

func (p *plugin) GetInfo(ctx context.Context, _ *registration.InfoRequest) (*registration.PluginInfo, error) {
	if p.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return p.info, nil
}

func (p *plugin) NotifyRegistrationStatus(_ context.Context,
	s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	p.told <- s
	if p.deaf {
		return nil, errors.New("what?")
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func csi(name string) *registration.PluginInfo {
	return &registration.PluginInfo{Type: CSI, Name: name, SupportedVersions: []string{"1.0.0"}}
}

// serve starts a plugin whose socket is at the given path below the plugin directory.
func (w *world) serve(name string, p *plugin) *plugin {
	w.Helper()
	path := filepath.Join(w.dir, name)
	must(w.T, os.MkdirAll(filepath.Dir(path), 0o755))
	l, err := net.Listen("unix", path)
	must(w.T, err)
	p.told, p.server = make(chan *registration.RegistrationStatus, 100), grpc.NewServer()
	registration.RegisterRegistrationServer(p.server, p)
	go p.server.Serve(l)
	w.Cleanup(p.server.Stop)
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestLife checks that plugins in all directories are registered, regardless of whether they start before or after the agent. Plugins are
// deregistered when they end. They are registered again after a restart of the plugin or of the agent.
func TestLife(t *testing.T) {
	w := newWorld(t)
	first := w.serve("first.sock", &plugin{info: csi("first")})
	must(t, os.WriteFile(filepath.Join(w.dir, "no-socket"), nil, 0o644))
	w.serve(".hidden.sock", &plugin{info: csi("hidden")})
	end := w.run()
	w.wait("+first 1.0.0")
	if s := <-first.told; !s.PluginRegistered || s.Error != "" {
		t.Errorf("notified of %v", s)
	}
	w.serve("a/b/second.sock", &plugin{info: csi("second")})
	w.wait("+second 1.0.0")
	first.server.Stop() // this call removes the socket
	w.wait("-first")
	again := w.serve("first.sock", &plugin{info: csi("again")})
	w.wait("+again 1.0.0")
	<-again.told
	// A rename replaces the socket atomically.
	w.serve(".new.sock", &plugin{info: csi("new")})
	must(t, os.Rename(filepath.Join(w.dir, ".new.sock"), filepath.Join(w.dir, "first.sock")))
	w.wait("-again", "+new 1.0.0")
	must(t, os.RemoveAll(filepath.Join(w.dir, "a")))
	w.wait("-second")
	w.serve("a/b/third.sock", &plugin{info: csi("third")})
	w.wait("+third 1.0.0")
	must(t, os.RemoveAll(filepath.Join(w.dir, "a")))
	w.wait("-third")
	end()
	select {
	case e := <-w.events:
		t.Errorf("%s at the end", e)
	default:
	}
	w.anew()
	w.run()
	w.wait("+new 1.0.0")
}

// TestRefused checks that a plugin is notified of the error if it cannot be registered. It does not delay other plugins.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	pods := filepath.Join(w.root, "pods", "uid")
	must(t, os.MkdirAll(pods, 0o755))
	l, err := net.Listen("unix", filepath.Join(pods, "s"))
	must(t, err)
	defer l.Close()
	must(t, os.Symlink(pods, filepath.Join(w.root, "link")))
	file := filepath.Join(w.root, "file")
	must(t, os.WriteFile(file, nil, 0o644))
	with := func(change func(*registration.PluginInfo)) *registration.PluginInfo {
		i := csi("x")
		change(i)
		return i
	}
	endpoint := func(e string) *registration.PluginInfo {
		return with(func(i *registration.PluginInfo) { i.Endpoint = e })
	}
	cases := map[string]*registration.PluginInfo{
		"no handler registered for plugin type": with(func(i *registration.PluginInfo) { i.Type = "Toaster" }),
		"it is bad":                             csi("bad"),
		"is invalid":                            csi("a\nb"),
		"is invalid ":                           csi(strings.Repeat("a", 300)),
		"reports 0 supported versions":          with(func(i *registration.PluginInfo) { i.SupportedVersions = nil }),
		"reports 33 supported versions":         with(func(i *registration.PluginInfo) { i.SupportedVersions = make([]string, 33) }),
		"the invalid version":                   with(func(i *registration.PluginInfo) { i.SupportedVersions = []string{strings.Repeat("1", 99)} }),
		"not an absolute path":                  endpoint("s"),
		"not an absolute path of":               endpoint("/a/../s"),
		"at most 107":                           endpoint("/" + strings.Repeat("a", 107)),
		"no such file":                          endpoint(filepath.Join(w.root, "none")),
		"is not a socket":                       endpoint(file),
		"in a directory of a pod":               endpoint(filepath.Join(pods, "s")),
		"a directory of a pod":                  endpoint(filepath.Join(w.root, "link", "s")),
	}
	refused, n := map[string]*plugin{}, 0
	for want, info := range cases {
		n++
		refused[want] = w.serve(fmt.Sprint(n), &plugin{info: info})
	}
	w.run()
	for want, p := range refused {
		if s := <-p.told; s.PluginRegistered || !strings.Contains(s.Error, strings.TrimSpace(want)) {
			t.Errorf("%s: notified of %v", want, s)
		}
	}
	w.serve("good", &plugin{info: with(func(i *registration.PluginInfo) { i.Name, i.Endpoint = "good", filepath.Join(w.dir, "1") })})
	w.wait("+good 1.0.0")
}

// TestHostile checks that a socket that hangs, sends invalid data or closes connections does not delay other plugins or the agent's end.
func TestHostile(t *testing.T) {
	w := newWorld(t)
	for name, talk := range map[string]func(net.Conn){
		"silent": func(net.Conn) {},
		"closes": func(c net.Conn) { c.Close() },
		"noise":  func(c net.Conn) { c.Write([]byte(strings.Repeat("no HTTP/2", 1000))) },
	} {
		l, err := net.Listen("unix", filepath.Join(w.dir, name))
		must(t, err)
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				talk(c)
			}
		}()
	}
	w.serve("hangs", &plugin{info: csi("hangs"), hang: true})
	w.serve("huge", &plugin{info: csi(strings.Repeat("x", maxAnswer))})
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(w.dir, "left-over"), Net: "unix"})
	must(t, err)
	left.SetUnlinkOnClose(false)
	left.Close()
	w.run()
	w.serve("good", &plugin{info: csi("good")})
	w.wait("+good 1.0.0")
	// A plugin now listens at the path of a stale socket.
	must(t, os.Remove(filepath.Join(w.dir, "left-over")))
	w.serve("left-over", &plugin{info: csi("back")})
	w.wait("+back 1.0.0")
}

// TestAgain checks that a failed registration is retried. A registered plugin is deregistered if it cannot be notified of its registration.
func TestAgain(t *testing.T) {
	w := newWorld(t)
	w.refuse = errors.New("not now")
	p := w.serve("p", &plugin{info: csi("p")})
	w.run()
	for range 2 {
		if s := <-p.told; s.PluginRegistered || !strings.Contains(s.Error, "not now") {
			t.Errorf("notified of %v", s)
		}
	}
	w.mu.Lock()
	w.refuse = nil
	w.mu.Unlock()
	w.wait("+p 1.0.0")
	w.serve("deaf", &plugin{info: csi("deaf"), deaf: true})
	w.wait("+deaf 1.0.0", "-deaf", "+deaf 1.0.0")
}

// TestDirectoryRemoved checks that plugins register again after their directory was removed.
func TestDirectoryRemoved(t *testing.T) {
	w := newWorld(t)
	w.serve("first", &plugin{info: csi("first")})
	w.run()
	w.wait("+first 1.0.0")
	made, err := fsnotify.NewWatcher()
	must(t, err)
	defer made.Close()
	must(t, made.Add(w.root))
	for _, remove := range []func() error{
		func() error { return os.RemoveAll(w.dir) },
		func() error { return os.Rename(w.dir, w.dir+".old") },
	} {
		must(t, remove())
		for late := time.After(time.Minute); ; {
			select {
			case e := <-made.Events:
				if e.Name != w.dir || !e.Has(fsnotify.Create) {
					continue
				}
			case <-late:
				t.Fatal("the directory was not created again")
			}
			break
		}
		w.serve("again", &plugin{info: csi("again")})
		for e := range w.events { // the first plugin is deregistered
			if e == "+again 1.0.0" {
				break
			}
		}
	}
}

// TestDirectoryCannotBeMade checks that the plugin directory is created later if the agent could not create it at its start. The same
// applies after the root directory was moved away. Plugins can then register in the new directory.
func TestDirectoryCannotBeMade(t *testing.T) {
	w := newWorld(t)
	made, err := fsnotify.NewWatcher()
	must(t, err)
	defer made.Close()
	must(t, made.Add(w.root))
	disk := filepath.Join(w.root, "disk")
	w.root = filepath.Join(disk, "islet")
	must(t, os.WriteFile(disk, nil, 0o600)) // mkdir fails, as it does on a full or read-only disk
	w.anew()
	w.run()
	must(t, os.Remove(disk))
	for late := time.After(time.Minute); ; {
		if fi, err := os.Lstat(disk); err == nil && fi.IsDir() {
			break // the registry creates the directory with its parents
		}
		select {
		case <-made.Events:
		case <-late:
			t.Fatal("the directory was not made")
		}
	}
	w.serve("first", &plugin{info: csi("first")})
	w.wait("+first 1.0.0")
	must(t, os.Rename(w.root, w.root+".old"))
	w.wait("-first")
	w.serve("second", &plugin{info: csi("second")})
	w.wait("+second 1.0.0")
}

// TestTooMuch checks that the number of watched sockets and directories is limited.
func TestTooMuch(t *testing.T) {
	w := newWorld(t)
	for i := range maxSockets + 20 {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(w.dir, fmt.Sprint(i)), Net: "unix"})
		must(t, err)
		l.SetUnlinkOnClose(false)
		l.Close()
	}
	must(t, os.MkdirAll(filepath.Join(w.dir, strings.Repeat("/d", maxDepth+3)), 0o755))
	end := w.run()
	for len(w.knownSockets()) < maxSockets { // the scan has found the maximum number of sockets
	}
	end()
	if n := len(w.knownSockets()); n != maxSockets || !w.overLimits {
		t.Errorf("%d sockets are known, the limit is reached: %v", n, w.overLimits)
	}
	if len(w.dirs) > maxDepth+1 {
		t.Errorf("watched: %v", w.dirs)
	}
}

// TestNoInotify checks that plugins register, restart and end also while other programs use all inotify instances, and that the registry
// uses inotify as soon as it can.
func TestNoInotify(t *testing.T) {
	w := newWorld(t)
	var free atomic.Bool
	w.scanInterval = 20 * time.Millisecond
	watches := make(chan struct{}, 1)
	w.newWatcher = func() (*fsnotify.Watcher, error) {
		if !free.Load() {
			return nil, unix.EMFILE
		}
		watcher, err := fsnotify.NewWatcher()
		watches <- struct{}{}
		return watcher, err
	}
	w.run()
	first := w.serve("a.sock", &plugin{info: csi("a")})
	w.wait("+a 1.0.0")
	first.server.Stop()
	w.wait("-a")
	w.serve("a.sock", &plugin{info: csi("a")})
	w.wait("+a 1.0.0")
	free.Store(true)
	<-watches
	w.serve("b.sock", &plugin{info: csi("b")})
	w.wait("+b 1.0.0")
}

// TestRemovedDirectories checks that directories which were removed while inotify could not be used do not count for the limit.
func TestRemovedDirectories(t *testing.T) {
	w := newWorld(t)
	for i := range 2 * maxDirs {
		dir := filepath.Join(w.dir, fmt.Sprint(i))
		must(t, os.Mkdir(dir, 0o755))
		w.scan(t.Context(), &fsnotify.Watcher{})
		if !w.dirs[dir] {
			t.Fatalf("directory %d is ignored", i)
		}
		must(t, os.Remove(dir))
	}
}

// TestNoWatches checks that each scan finds the plugins that have started and ended also while other programs use all inotify watches
// (fs.inotify.max_user_watches). The test uses a closed watcher, with which each watch fails.
func TestNoWatches(t *testing.T) {
	w := newWorld(t)
	full, err := fsnotify.NewWatcher()
	must(t, err)
	must(t, full.Close())
	w.retry = time.NewTimer(time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	defer w.all.Wait()
	defer stop()
	first := w.serve("a.sock", &plugin{info: csi("a")})
	w.scan(ctx, full)
	if len(w.knownSockets()) != 1 {
		t.Fatal("the plugin was not found")
	}
	w.wait("+a 1.0.0")
	first.server.Stop()
	w.scan(ctx, full)
	w.wait("-a")
}
