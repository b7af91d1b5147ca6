package plugins

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/fsnotify/fsnotify"

	"github.com/islet-edge/islet/internal/readonly"
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
	dirs map[string]bool
	full bool // the log says that there is too much

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
	if err := readonly.MkdirAll(r.dir, 0o750); err != nil {
		c.Log.Error("the directory in which plugins register cannot be made: none can", "error", err)
	}
	return r, nil
}

// Run registers plugins until ctx ends. Without inotify it registers those that are there.
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
		// While a plugin serves in it, only the directory above tells of the end of this one.
		if err := w.Add(r.c.Root); err != nil {
			r.c.Log.Error("if somebody removes the directory in which plugins register, it stays away until islet is restarted", "directory", r.dir, "error", err)
		}
	}
	r.scan(ctx, w)
	for {
		select {
		case <-ctx.Done():
			return nil
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
	case !within(e.Name, r.dir):
	case e.Has(fsnotify.Create):
		r.look(ctx, w, e.Name, true)
	case e.Has(fsnotify.Remove), e.Has(fsnotify.Rename):
		r.gone(ctx, w, e.Name)
		if e.Name == r.dir {
			r.again(ctx, w)
		}
	}
}

// again makes the directory that somebody removed, so that plugins can register.
func (r *Registry) again(ctx context.Context, w *fsnotify.Watcher) {
	if _, err := os.Lstat(r.dir); err == nil { // two events tell of a directory that was moved
		r.look(ctx, w, r.dir, false)
		return
	}
	if err := os.MkdirAll(r.dir, 0o750); err != nil {
		r.c.Log.Error("the directory in which plugins register was removed: none can until islet is restarted", "directory", r.dir, "error", err)
		return
	}
	r.c.Log.Warn("the directory in which plugins register was removed while islet runs, and has been made again", "directory", r.dir)
	r.look(ctx, w, r.dir, false)
}

// scan compares all that is there with what is known.
func (r *Registry) scan(ctx context.Context, w *fsnotify.Watcher) {
	for _, path := range r.known() {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			r.gone(ctx, w, path)
		}
	}
	r.look(ctx, w, r.dir, false)
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
		r.enter(ctx, w, path)
	case fi.Mode().Type() == fs.ModeSocket:
		r.found(ctx, path, identify(fi), anew)
	}
}

// enter watches a directory, then looks at what is in it already.
func (r *Registry) enter(ctx context.Context, w *fsnotify.Watcher, dir string) {
	below, err := filepath.Rel(r.dir, dir)
	if err != nil || strings.Count(below, string(filepath.Separator)) >= maxDepth || len(r.dirs) >= maxDirs && !r.dirs[dir] {
		r.tooMuch()
		return
	}
	r.dirs[dir] = true
	if w.Events != nil {
		if err := w.Add(dir); err != nil {
			r.c.Log.Error("plugins that register here later are not found", "directory", dir, "error", err)
		}
	}
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	names, err := d.Readdirnames(maxSockets + maxDirs)
	if err != nil {
		return
	}
	if len(names) == maxSockets+maxDirs {
		r.tooMuch()
	}
	for _, name := range names {
		r.look(ctx, w, filepath.Join(dir, name), false)
	}
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
