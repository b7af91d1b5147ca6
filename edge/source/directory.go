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
	"github.com/islet-edge/islet/internal/clock"
)

const (
	// quietTime is the time without an event after which a directory is read. Before that, a file may be incomplete, because writing a file
	// causes several events. A partially written file may be a valid manifest.
	quietTime = 100 * time.Millisecond
	// maxDelay is the maximum time from an event until the directory is read.
	maxDelay = time.Second
)

// DirectoryConfig contains the dependencies and settings of a Directory.
type DirectoryConfig struct {
	Path     string        // a directory, or a single file (--pod-manifest-path)
	Interval time.Duration // fileCheckFrequency: interval between checks without an event; see checkInterval
	Decode   Decode
	Sink     ManifestSink
	Log      *slog.Logger
}

// A Directory is the source "file". It reads all files of a directory whose names do not begin with a dot.
// It follows symbolic links, and ignores subdirectories. See
// https://kubernetes.io/docs/tasks/configure-pod-container/static-pod/.
type Directory struct {
	DirectoryConfig
	files     map[string]file // the files at the last read, by path
	delivered bool            // the sink has accepted files
	removed   bool            // an event has reported that Path was removed or renamed
	gone      map[string]bool // files that were removed or renamed since the last update of the sink
}

// NewDirectory validates the configuration.
func NewDirectory(c DirectoryConfig) (*Directory, error) {
	path, err := filepath.Abs(c.Path)
	if err != nil || c.Path == "" || c.Interval <= 0 {
		return nil, fmt.Errorf("manifest path %q, checked every %s: both must be set", c.Path, c.Interval)
	}
	c.Path = path // the path is stored with the pods, so it must be absolute
	return &Directory{DirectoryConfig: c, gone: map[string]bool{}}, nil
}

// Run delivers the manifests to the sink at the start and after each change, until ctx ends.
func (d *Directory) Run(ctx context.Context) error {
	w := newWatch(d.Path, d.Log)
	defer w.close()
	next := time.NewTimer(0)
	defer next.Stop()
	var read <-chan time.Time
	var since time.Time // time of the first unhandled event
	for {
		w.updateWatches() // called before files are read, so that no later change is missed
		d.check(ctx)
		next.Reset(clock.UntilMultiple(d.checkInterval(w)))
		if d.hasOpenFile() {
			read, since = time.After(maxDelay), time.Now()
		}
		for again := false; !again; {
			select {
			case <-ctx.Done():
				return nil
			case e := <-w.events():
				if !d.mayChangeSet(e) {
					continue
				}
			case err := <-w.errors(): // for example an overflow of the queue
				d.Log.Debug("inotify", "path", d.Path, "error", err)
			case <-read:
				read, again = nil, true
				continue
			case <-next.C:
				again = true
				continue
			}
			if read == nil {
				since = time.Now()
			}
			read = time.After(min(quietTime, max(0, maxDelay-time.Since(since))))
		}
	}
}

// checkInterval returns the interval until the next check without an event. It is the configured interval, unless inotify reports all
// changes of the manifests. Then the check only covers changes above the directory, such as a mount, and a longer interval is enough.
func (d *Directory) checkInterval(w *watch) time.Duration {
	if !d.delivered || !w.reportsAll() {
		return d.Interval
	}
	return max(d.Interval, min(3*d.Interval, time.Minute))
}

// hasOpenFile reports whether a file was skipped because it was open for writing. Closing it causes no event.
func (d *Directory) hasOpenFile() bool {
	for _, f := range d.files {
		if !f.open.IsZero() {
			return true
		}
	}
	return false
}

// mayChangeSet reports whether an event may change the set of files. It also records the removal of Path and of known files. It ignores
// events of other files in the parent directory, which is watched, too.
func (d *Directory) mayChangeSet(e fsnotify.Event) bool {
	if e.Op&(fsnotify.Remove|fsnotify.Rename) != 0 {
		d.removed = d.removed || e.Name == d.Path
		if _, found := d.files[e.Name]; found {
			d.gone[e.Name] = true
		}
	}
	return e.Name == d.Path || filepath.Dir(e.Name) == d.Path
}

// check reads changed files. It updates the sink if a file has changed, or if the last update of the sink failed.
func (d *Directory) check(ctx context.Context) {
	files, changed, err := scanManifests(d.Path, d.files, d.Decode)
	switch {
	case err == nil:
		d.removed = false
	case errors.Is(err, fs.ErrNotExist) && d.removed:
		// Path was removed while it was watched, so its pods end. If Path was already missing, for example because its disk is not
		// mounted, no pod ends.
		files, changed, err = nil, len(d.files) > 0, nil
	default:
		d.delivered = false
		d.Sink.ReportFailure(desired.File, []desired.Problem{{Origin: d.Path, Message: "its pods stay unchanged: " + err.Error()}})
		return
	}
	d.files = files
	back := d.recreatedFiles()
	if d.delivered && !changed && len(back) == 0 {
		return
	}
	var all, without content
	var problems []desired.Problem
	for name, f := range sortedFiles(files) {
		all.pods = append(all.pods, f.pods...)
		all.objects = append(all.objects, f.objects...)
		problems = append(problems, f.problems...)
		if !back[name] {
			without.pods = append(without.pods, f.pods...)
		}
	}
	// The sink reports its own errors as problems, and the next check retries.
	if len(back) > 0 {
		if d.delivered = d.Sink.Set(ctx, desired.File, without.pods, problems) == nil; !d.delivered {
			return
		}
		maps.DeleteFunc(d.gone, func(name string, _ bool) bool { return back[name] })
	}
	d.delivered = deliver(ctx, d.Sink, desired.File, all, problems) == nil
}

// recreatedFiles returns the files that were removed and created again. As in a kubelet, the pods of such a file end and start again, even
// if the pods are unchanged. A file that cannot be read yet is kept in d.gone.
func (d *Directory) recreatedFiles() map[string]bool {
	back := map[string]bool{}
	for name := range d.gone {
		switch f, found := d.files[name]; {
		case !found:
			delete(d.gone, name)
		case len(f.problems) == 0:
			back[name] = true
		}
	}
	return back
}
