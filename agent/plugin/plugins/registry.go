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

// The types of plugins, as in PluginInfo.
const (
	CSI    = "CSIPlugin"
	DRA    = "DRAPlugin"
	Device = "DevicePlugin"
)

// Limits of scanning the directory.
const (
	maxSockets = 256
	maxDirs    = 64
	maxDepth   = 8
)

// dirName is the directory below --root-dir for the sockets of plugins, as in a kubelet.
const dirName = "plugins_registry"

// A Plugin contains the information that a plugin reports.
type Plugin struct {
	Name string // the name of a CSI or DRA driver, or the resource of a device plugin
	// Endpoint is the absolute path of the socket at which the plugin serves. The existence of the socket is checked
	// only when the plugin registers.
	Endpoint string
	Versions []string // supported versions of its API, at least one
	Socket   string   // the socket at which the plugin has registered
}

// A Handler handles the plugins of one type. Its methods are called from several goroutines, but never
// concurrently for the same socket. A new version of a plugin may register under the same name at another
// socket before the old socket is removed. Deregister applies only to the plugin's Socket.
type Handler interface {
	// Validate returns an error for a plugin that cannot be used. The error is sent to the plugin.
	Validate(Plugin) error
	// Register registers a plugin. It may call the plugin, but must return soon after ctx ends.
	Register(context.Context, Plugin) error
	// Deregister is called once for each successful Register, when the socket is removed or recreated. It is not
	// called when the agent ends.
	Deregister(Plugin)
}

// Config is the input of New.
type Config struct {
	Root     string             // --root-dir
	Handlers map[string]Handler // by type
	Log      *slog.Logger
}

// A Registry registers the plugins of this node.
type Registry struct {
	c    Config
	dir  string
	pods string // the directory of pods, in which pods can create files
	all  sync.WaitGroup

	// Only Run's goroutine uses the following fields.
	dirs       map[string]bool
	overLimits bool // the limits were exceeded, and this was logged
	retry      *time.Timer
	backoff    retry.Backoff
	logged     string // the last error in opening the directory that was logged

	mu                  sync.Mutex
	sockets             map[string]*socket             // by path; an entry stays until the socket is removed and its plugin is deregistered
	recentRegistrations map[string]*recentRegistration // recent registrations, by path

	newWatcher   func() (*fsnotify.Watcher, error)
	scanInterval time.Duration // see defaultScanInterval
}

// New returns a Registry. It creates the directory.
func New(c Config) (*Registry, error) {
	if c.Root == "" || c.Log == nil {
		return nil, errors.New("plugins: Root or Log is missing")
	}
	r := &Registry{c: c, dir: filepath.Join(c.Root, dirName), pods: filepath.Join(c.Root, "pods"), dirs: map[string]bool{},
		sockets: map[string]*socket{}, recentRegistrations: map[string]*recentRegistration{}, newWatcher: fsnotify.NewWatcher,
		scanInterval: defaultScanInterval}
	r.backoff = retry.Backoff{FirstWindow: time.Second, MaxWindow: lastRetry}
	_ = readonly.MkdirAll(r.dir, 0o750) // Run retries this, and logs the error
	return r, nil
}

// defaultScanInterval is the interval between scans while inotify cannot be used, for example because other programs use all of its
// instances (fs.inotify.max_user_instances).
const defaultScanInterval = 5 * time.Second

// Run registers plugins until ctx ends. Without inotify it scans the directory at intervals. If the directory cannot be created or watched,
// Run retries with backoff.
func (r *Registry) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer r.all.Wait()
	defer stop()
	w, err := r.newWatcher()
	var scan <-chan time.Time
	if err != nil {
		r.c.Log.Warn("cannot use inotify: the directory of plugins is scanned", "directory", r.dir, "every", r.scanInterval, "error", err)
		w = &fsnotify.Watcher{}
		ticker := time.NewTicker(r.scanInterval)
		defer ticker.Stop()
		scan = ticker.C
	}
	defer func() {
		if w.Events != nil {
			w.Close()
		}
	}()
	r.retry = time.NewTimer(0) // the first attempt
	defer r.retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-scan:
			if again, err := r.newWatcher(); err == nil {
				w, scan = again, nil
			}
			r.scan(ctx, w)
		case <-r.retry.C:
			r.scan(ctx, w)
		case e := <-w.Events:
			r.event(ctx, w, e)
		case err := <-w.Errors: // events were lost, or the file system supports none
			r.c.Log.Warn("scanning for plugins again", "directory", r.dir, "error", err)
			r.scan(ctx, w)
		}
	}
}

func (r *Registry) event(ctx context.Context, w *fsnotify.Watcher, e fsnotify.Event) {
	switch {
	case e.Name == r.c.Root && (e.Has(fsnotify.Remove) || e.Has(fsnotify.Rename)):
		r.removePlugins(ctx, w, r.dir)
		r.openDirectory(ctx, w)
	case !isWithin(e.Name, r.dir):
	case e.Has(fsnotify.Create):
		r.checkFile(ctx, w, e.Name, true)
	case e.Has(fsnotify.Remove), e.Has(fsnotify.Rename):
		r.removePlugins(ctx, w, e.Name)
		if e.Name == r.dir {
			r.openDirectory(ctx, w)
		}
	}
}

// openDirectory creates the directory if it is missing, watches it, and registers the sockets in it. If it cannot be watched, it registers
// the sockets nevertheless. After a failure Run scans again.
func (r *Registry) openDirectory(ctx context.Context, w *fsnotify.Watcher) {
	err := r.watch(ctx, w)
	if err == nil {
		r.backoff.Reset()
		r.logged = ""
		return
	}
	if err.Error() != r.logged {
		r.logged = err.Error()
		r.c.Log.Error("the directory in which plugins register cannot be created or watched: islet retries, and plugins register late",
			"directory", r.dir, "error", err)
	}
	r.retry.Reset(r.backoff.Next(0))
}

func (r *Registry) watch(ctx context.Context, w *fsnotify.Watcher) error {
	_, missing := os.Lstat(r.dir)
	if err := readonly.MkdirAll(r.dir, 0o750); err != nil {
		return err
	}
	if missing != nil {
		r.c.Log.Warn("the directory in which plugins register was missing and has been recreated", "directory", r.dir)
	}
	var unwatched error // for example beyond fs.inotify.max_user_watches; the plugins that are there register nevertheless
	if w.Events != nil {
		// While a plugin has a socket open in r.dir, only a watch of the parent directory reports the removal of
		// r.dir.
		_ = w.Remove(r.c.Root) // an existing watch may be of a removed directory
		unwatched = w.Add(r.c.Root)
	}
	return errors.Join(unwatched, r.watchDirectory(ctx, w, r.dir))
}

// scan compares the directory with the known sockets and directories. Without inotify, only scan notices that a directory was removed.
// Otherwise removed directories would count for maxDirs until the agent ends.
func (r *Registry) scan(ctx context.Context, w *fsnotify.Watcher) {
	for _, path := range slices.AppendSeq(r.knownSockets(), maps.Keys(r.dirs)) {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			r.removePlugins(ctx, w, path)
		}
	}
	r.openDirectory(ctx, w)
}

// checkFile handles the file at a path. If the parameter anew is true, the file was just created, so it has replaced
// any known socket at this path.
func (r *Registry) checkFile(ctx context.Context, w *fsnotify.Watcher, path string, anew bool) {
	if strings.HasPrefix(filepath.Base(path), ".") && path != r.dir {
		return
	}
	fi, err := os.Lstat(path)
	switch {
	case err != nil: // removed meanwhile
	case fi.IsDir():
		if err := r.watchDirectory(ctx, w, path); err != nil {
			r.c.Log.Error("cannot watch a directory of plugins: plugins in it may not be registered", "directory", path, "error", err)
		}
	case fi.Mode().Type() == fs.ModeSocket:
		r.addSocket(ctx, path, identityOf(fi), anew)
	}
}

// watchDirectory watches a directory, and then handles the files that are already in it.
func (r *Registry) watchDirectory(ctx context.Context, w *fsnotify.Watcher, dir string) error {
	below, err := filepath.Rel(r.dir, dir)
	if err != nil || strings.Count(below, string(filepath.Separator)) >= maxDepth || len(r.dirs) >= maxDirs && !r.dirs[dir] {
		r.reportLimits()
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
		r.reportLimits()
	}
	for _, name := range names {
		r.checkFile(ctx, w, filepath.Join(dir, name), false)
	}
	return unwatched
}

func (r *Registry) reportLimits() {
	if !r.overLimits {
		r.c.Log.Error("the directory in which plugins register has too many files: some plugins are not registered",
			"directory", r.dir, "sockets", maxSockets, "directories", maxDirs)
	}
	r.overLimits = true
}

// knownSockets returns the paths of all known sockets.
func (r *Registry) knownSockets() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.sockets))
}

// addSocket registers a socket, unless it is known and has not been replaced.
func (r *Registry) addSocket(ctx context.Context, path string, id identity, anew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.sockets[path]
	switch {
	case s != nil && s.exists && !anew && s.id == id:
		return
	case s == nil && len(r.sockets) >= maxSockets:
		r.reportLimits()
		return
	case s == nil:
		s = &socket{path: path}
		r.sockets[path] = s
	}
	s.id, s.exists = id, true
	s.made++
	r.startPending(ctx, s)
}

// removePlugins deregisters the plugins whose sockets are at a path or below it.
func (r *Registry) removePlugins(ctx context.Context, w *fsnotify.Watcher, path string) {
	for d := range r.dirs {
		if isWithin(d, path) {
			delete(r.dirs, d)
			if w.Events != nil {
				_ = w.Remove(d) // fails if the watch no longer exists
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for p, s := range r.sockets {
		if isWithin(p, path) && s.exists {
			s.exists = false
			r.startPending(ctx, s)
		}
	}
}

// isWithin reports whether a path equals another path or is below it.
func isWithin(path, of string) bool { return path == of || strings.HasPrefix(path, of+"/") }

// An identity distinguishes different files at the same path.
type identity struct {
	dev, ino   uint64
	changeTime syscall.Timespec
}

func identityOf(fi os.FileInfo) identity {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return identity{}
	}
	return identity{uint64(st.Dev), st.Ino, st.Ctim}
}
