package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/islet-edge/islet/edge/desired"
)

const (
	// quiet is how long a directory must rest before it is read: writing a file
	// makes several events, and half a file may parse.
	quiet = 100 * time.Millisecond
	// restless is after how long it is read although it does not rest.
	restless = time.Second
)

// DirectoryConfig says where manifests are.
type DirectoryConfig struct {
	Path     string        // a directory, or a single file (--pod-manifest-path)
	Interval time.Duration // fileCheckFrequency: how often to look without an event
	Decode   Decode
	Sink     ManifestSink
	Log      *slog.Logger
}

// A Directory is the source "file". It reads all files of a directory but those
// whose names begin with a dot, and follows symbolic links; directories in it are
// ignored. See https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/.
type Directory struct {
	DirectoryConfig
	files   map[string]file // by path, as last read
	told    bool            // the sink has the set of files
	removed bool            // Path itself was seen to be removed or renamed
	gone    map[string]bool // files that were seen to be removed or renamed, until it is told
}

// NewDirectory checks the configuration.
func NewDirectory(c DirectoryConfig) (*Directory, error) {
	path, err := filepath.Abs(c.Path)
	if err != nil || c.Path == "" || c.Interval <= 0 {
		return nil, fmt.Errorf("manifest path %q, checked every %s: both must be set", c.Path, c.Interval)
	}
	c.Path = path // stored with the pods, so it must not depend on how it was written
	return &Directory{DirectoryConfig: c, gone: map[string]bool{}}, nil
}

// Run tells the sink what is there, now and at every change, until ctx ends.
func (d *Directory) Run(ctx context.Context) error {
	w := newWatch(d.Path, d.Log)
	defer w.close()
	tick := time.NewTicker(d.Interval)
	defer tick.Stop()
	var read <-chan time.Time
	var since time.Time // of the first event that is not looked at yet
	for {
		w.follow() // before reading: a change after it makes an event
		if d.check(ctx); d.open() {
			read, since = time.After(restless), time.Now()
		}
		for again := false; !again; {
			select {
			case <-ctx.Done():
				return nil
			case e := <-w.events():
				if !d.concerns(e) {
					continue
				}
			case err := <-w.errors(): // such as events that were lost
				d.Log.Debug("inotify", "path", d.Path, "error", err)
			case <-read:
				read, again = nil, true
				continue
			case <-tick.C:
				again = true
				continue
			}
			if read == nil {
				since = time.Now()
			}
			read = time.After(min(quiet, max(0, restless-time.Since(since))))
		}
	}
}

// open says whether a file was not read since it was being written, the end of
// which makes no event.
func (d *Directory) open() bool {
	for _, f := range d.files {
		if !f.open.IsZero() {
			return true
		}
	}
	return false
}

// concerns says whether an event may change the set, and notes when it is the end
// of Path itself or of a file that was read. The watch of its parent tells of its
// neighbours, too.
func (d *Directory) concerns(e fsnotify.Event) bool {
	if e.Op&(fsnotify.Remove|fsnotify.Rename) != 0 {
		d.removed = d.removed || e.Name == d.Path
		if _, known := d.files[e.Name]; known {
			d.gone[e.Name] = true
		}
	}
	return e.Name == d.Path || filepath.Dir(e.Name) == d.Path
}

// check reads what changed and tells the sink if anything did, or if it refused
// to take it the last time.
func (d *Directory) check(ctx context.Context) {
	files, changed, err := scan(d.Path, d.files, d.Decode)
	switch {
	case err == nil:
		d.removed = false
	case errors.Is(err, fs.ErrNotExist) && d.removed:
		// Someone took it away before our eyes, with all that was in it. One that is
		// merely absent, as when its disk is not mounted, ends no pod.
		files, changed, err = nil, len(d.files) > 0, nil
	default:
		d.told = false
		d.Sink.Fail(desired.File, []desired.Problem{{Origin: d.Path, Message: "its pods stay as they are: " + err.Error()}})
		return
	}
	d.files = files
	back := d.back()
	if d.told && !changed && len(back) == 0 {
		return
	}
	var all, without content
	var problems []desired.Problem
	for name, f := range inOrder(files) {
		all.claims = append(all.claims, f.claims...)
		all.objects = append(all.objects, f.objects...)
		problems = append(problems, f.problems...)
		if !back[name] {
			without.claims = append(without.claims, f.claims...)
		}
	}
	// The sink shows an error of its own as a problem; the next check tries again.
	if len(back) > 0 {
		if d.told = d.Sink.Set(ctx, desired.File, without.claims, problems) == nil; !d.told {
			return
		}
		maps.DeleteFunc(d.gone, func(name string, _ bool) bool { return back[name] })
	}
	d.told = tell(ctx, d.Sink, desired.File, all, problems) == nil
}

// back gives the files that were removed and put back: the pods of such a one end and
// start anew, also those that are the same, as under a kubelet. One that is there again
// but cannot be read yet is kept for later.
func (d *Directory) back() map[string]bool {
	back := map[string]bool{}
	for name := range d.gone {
		switch f, there := d.files[name]; {
		case !there:
			delete(d.gone, name)
		case len(f.problems) == 0:
			back[name] = true
		}
	}
	return back
}
