package plugins

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/islet-edge/islet/internal/readonly"
	"github.com/islet-edge/islet/internal/retry"
)

// The types of plugins, by the names that they give themselves.
const (
	CSI    = "CSIPlugin"
	DRA    = "DRAPlugin"
	Device = "DevicePlugin"
)

// Bounds of what is looked at below the directory.
const (
	maxSockets = 256
	maxDirs    = 64
	maxDepth   = 8
)

// dirName is below --root-dir, as the kubelet has it.
const dirName = "plugins_registry"

// A Plugin is what a plugin says about itself.
type Plugin struct {
	Name string // of a CSI or DRA driver; of a device plugin its resource
	// Endpoint is the socket at which it serves, an absolute path; it was a socket when the
	// plugin registered.
	Endpoint string
	Versions []string // of its API, at least one
	Socket   string   // where it registered
}

// A Handler takes the plugins of one type. Its methods are called from any goroutine, but
// for one socket by only one at a time. A plugin that is replaced may register at another
// socket, under the same name, before the old socket vanishes: Deregister is then of the
// Socket that it names.
type Handler interface {
	// Validate says what is wrong with a plugin. The plugin gets to know.
	Validate(Plugin) error
	// Register takes a plugin up. It may call the plugin, but must end soon after ctx has.
	Register(context.Context, Plugin) error
	// Deregister is called once for each Register that was success, when the socket is gone
	// or was made anew; not when the agent ends.
	Deregister(Plugin)
}

// Config is what a Registry needs.
type Config struct {
	Root     string             // --root-dir
	Handlers map[string]Handler // by type
	Log      *slog.Logger
}

// A Registry knows the plugins of this node.
type Registry struct {
	c    Config
	dir  string
	pods string // where pods make files
	all  sync.WaitGroup

	// These belong to Run.
	dirs    map[string]bool
	full    bool // the log says that there is too much
	retry   *time.Timer
	backoff retry.Backoff
	told    string // the error of the last attempt to open the directory, as it was logged

	mu      sync.Mutex
	sockets map[string]*socket // by path; until all of them is undone
	flaps   map[string]*flap   // by path, of late
}

// New makes the directory.
func New(c Config) (*Registry, error) {
	if c.Root == "" || c.Log == nil {
		return nil, errors.New("plugins: a part of the configuration is missing")
	}
	r := &Registry{c: c, dir: filepath.Join(c.Root, dirName), pods: filepath.Join(c.Root, "pods"), dirs: map[string]bool{}, sockets: map[string]*socket{}, flaps: map[string]*flap{}}
	r.backoff = retry.Backoff{First: time.Second, Most: lastRetry}
	_ = readonly.MkdirAll(r.dir, 0o750) // Run retries it, and logs the error
	return r, nil
}

// Run registers plugins until ctx ends. Without inotify it registers those that are there.
// While the directory cannot be made or watched, Run retries with a back-off.
func (r *Registry) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer r.all.Wait()
	defer stop()
	w, err := fsnotify.NewWatcher()
	if err != nil {
		r.c.Log.Error("no inotify: plugins that start later are not found", "directory", r.dir, "error", err)
		w = &fsnotify.Watcher{}
	} else {
		defer w.Close()
	}
	r.retry = time.NewTimer(0) // the first attempt
	defer r.retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.retry.C:
			r.open(ctx, w)
		case e := <-w.Events:
			r.event(ctx, w, e)
		case err := <-w.Errors: // events were lost, or a file system has none
			r.c.Log.Warn("plugins are looked for anew", "directory", r.dir, "error", err)
			r.scan(ctx, w)
		}
	}
}

func (r *Registry) event(ctx context.Context, w *fsnotify.Watcher, e fsnotify.Event) {
	switch {
	case e.Name == r.c.Root && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)):
		r.gone(ctx, w, r.dir)
		r.open(ctx, w)
	case !within(e.Name, r.dir):
	case e.Has(fsnotify.Create):
		r.look(ctx, w, e.Name, true)
	case e.Has(fsnotify.Remove), e.Has(fsnotify.Rename):
		r.gone(ctx, w, e.Name)
		if e.Name == r.dir {
			r.open(ctx, w)
		}
	}
}

// open makes the directory if it is missing, watches it and looks at what is in it. After a
// failure Run calls it again.
func (r *Registry) open(ctx context.Context, w *fsnotify.Watcher) {
	err := r.watch(ctx, w)
	if err == nil {
		r.backoff.Reset()
		r.told = ""
		return
	}
	if err.Error() != r.told {
		r.told = err.Error()
		r.c.Log.Error("no plugin can register until the directory for their sockets can be made and watched: islet retries", "directory", r.dir, "error", err)
	}
	r.retry.Reset(r.backoff.Next(0))
}

func (r *Registry) watch(ctx context.Context, w *fsnotify.Watcher) error {
	_, missing := os.Lstat(r.dir)
	if err := readonly.MkdirAll(r.dir, 0o750); err != nil {
		return err
	}
	if missing != nil {
		r.c.Log.Warn("the directory in which plugins register was missing and has been made again", "directory", r.dir)
	}
	if w.Events != nil {
		// While a plugin serves in r.dir, only the directory above raises an event when r.dir is removed.
		_ = w.Remove(r.c.Root) // the watch may be of a directory that was removed
		if err := w.Add(r.c.Root); err != nil {
			return err
		}
	}
	return r.enter(ctx, w, r.dir)
}

// scan compares all that is there with what is known.
func (r *Registry) scan(ctx context.Context, w *fsnotify.Watcher) {
	for _, path := range r.known() {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			r.gone(ctx, w, path)
		}
	}
	r.open(ctx, w)
}

// look takes what a path is. Anew says that it was made at this moment: a socket that is
// known is then another one.
func (r *Registry) look(ctx context.Context, w *fsnotify.Watcher, path string, anew bool) {
	if strings.HasPrefix(filepath.Base(path), ".") && path != r.dir {
		return
	}
	fi, err := os.Lstat(path)
	switch {
	case err != nil: // it is gone again
	case fi.IsDir():
		if err := r.enter(ctx, w, path); err != nil {
			r.c.Log.Error("plugins that register here are not found", "directory", path, "error", err)
		}
	case fi.Mode().Type() == fs.ModeSocket:
		r.found(ctx, path, identify(fi), anew)
	}
}

// enter watches a directory, then looks at what is in it already.
func (r *Registry) enter(ctx context.Context, w *fsnotify.Watcher, dir string) error {
	below, err := filepath.Rel(r.dir, dir)
	if err != nil || strings.Count(below, string(filepath.Separator)) >= maxDepth || len(r.dirs) >= maxDirs && !r.dirs[dir] {
		r.tooMuch()
		return nil
	}
	r.dirs[dir] = true
	var unwatched error
	if w.Events != nil {
		unwatched = w.Add(dir)
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	names, err := d.Readdirnames(maxSockets + maxDirs)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if len(names) == maxSockets+maxDirs {
		r.tooMuch()
	}
	for _, name := range names {
		r.look(ctx, w, filepath.Join(dir, name), false)
	}
	return unwatched
}

func (r *Registry) tooMuch() {
	if !r.full {
		r.c.Log.Error("there is too much in the directory in which plugins register: not all are", "directory", r.dir, "sockets", maxSockets, "directories", maxDirs)
	}
	r.full = true
}

// known lists the paths of all sockets.
func (r *Registry) known() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.sockets))
}

// found has a socket registered.
func (r *Registry) found(ctx context.Context, path string, id identity, anew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sockets[path]
	switch {
	case s != nil && s.there && !anew && s.id == id:
		return
	case s == nil && len(r.sockets) >= maxSockets:
		r.tooMuch()
		return
	case s == nil:
		s = &socket{path: path}
		r.sockets[path] = s
	}
	s.id, s.there = id, true
	s.made++
	r.settle(ctx, s)
}

// gone ends what registered at a path or below.
func (r *Registry) gone(ctx context.Context, w *fsnotify.Watcher, path string) {
	for d := range r.dirs {
		if within(d, path) {
			delete(r.dirs, d)
			if w.Events != nil {
				_ = w.Remove(d) // it may be gone already
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, s := range r.sockets {
		if within(p, path) && s.there {
			s.there = false
			r.settle(ctx, s)
		}
	}
}

// within reports whether a path is another or below it.
func within(path, of string) bool { return path == of || strings.HasPrefix(path, of+"/") }

// An identity tells a file from another that had the same path.
type identity struct {
	dev, ino uint64
	changed  syscall.Timespec
}

func identify(fi os.FileInfo) identity {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{uint64(st.Dev), st.Ino, st.Ctim}
}
