package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/diff/apply"
	"github.com/containerd/containerd/v2/core/metadata"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/plugins/content/local"
	"github.com/containerd/containerd/v2/plugins/diff/walking"
	"github.com/containerd/containerd/v2/plugins/snapshots/native"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay"
	"github.com/containerd/containerd/v2/plugins/snapshots/overlay/overlayutils"
	"github.com/sirupsen/logrus"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// Namespace is containerd's namespace for the objects of the CRI.
const Namespace = "k8s.io"

// Names of snapshotters.
const (
	Overlay = "overlayfs"
	Native  = "native"
)

// lockTimeout is how long Start waits for the lock of the database.
const lockTimeout = 2 * time.Second

// Config configures Start.
type Config struct {
	// Root is the directory of the storage. It is created if it does not exist.
	Root string
	// Snapshotter is Overlay or Native. The default is Overlay if the file system of Root supports
	// overlayfs, and Native otherwise.
	Snapshotter string
	// Containers is a directory with a subdirectory for each container. If the storage is damaged, the layers of these containers remain
	// until the subdirectories are removed. If it is empty, there are no containers.
	Containers string
	Log        *slog.Logger
}

// A Daemon is containerd's opened storage.
type Daemon struct {
	client      *client.Client
	snapshotter string
	damage      string
	disk        storage
	collector   *collector
	closers     []io.Closer
}

// Start opens the storage under c.Root. It fails if another process has the storage open. The
// storage stays open until Close, even if ctx ends. A database that bbolt cannot open is set aside
// together with the layers, and the storage begins empty: see Damage.
func Start(ctx context.Context, c Config) (_ *Daemon, err error) {
	if c.Root == "" || c.Log == nil {
		return nil, errors.New("daemon: Root and Log are needed")
	}
	if err := CreatePrivateDir(c.Root); err != nil {
		return nil, fmt.Errorf("create containerd's root: %w", err)
	}
	forwardLogs(c.Log)
	d := &Daemon{snapshotter: c.Snapshotter}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if d.snapshotter == "" {
		d.snapshotter = Overlay
		dir := filepath.Join(c.Root, Overlay) // may be a mount point
		if _, err := os.Stat(dir); err != nil {
			dir = c.Root
		}
		// A full disk does not show whether overlayfs is supported. With another snapshotter, the layers on the disk would be unknown.
		if err := overlayutils.Supported(dir); err != nil && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
			c.Log.Warn("overlayfs is not supported: image files are copied for each container, which needs more time and disk space",
				"dir", dir, "error", err)
			d.snapshotter = Native
		}
	}
	d.disk = storage{root: c.Root, dir: filepath.Join(c.Root, d.snapshotter), containers: c.Containers}
	if d.damage, err = d.disk.setAsideDamaged(); err != nil {
		return nil, err
	}
	if d.damage != "" {
		c.Log.Error("the storage of images was damaged and has been replaced", "error", d.damage)
	}
	db, err := d.open(ctx, c)
	if err != nil {
		return nil, err
	}
	if err := db.Init(ctx); err != nil {
		return nil, fmt.Errorf("prepare containerd's database: %w", err)
	}
	d.collector = newCollector(db, d.disk, c.Log)
	cs := db.ContentStore()
	d.client, err = client.New("", client.WithDefaultNamespace(Namespace), client.WithServices(
		client.WithContentStore(cs),
		client.WithImageStore(metadata.NewImageStore(db)),
		client.WithSnapshotters(db.Snapshotters()),
		client.WithLeasesService(leaseManager{metadata.NewLeaseManager(db), d.collector}),
		client.WithDiffService(differ{walking.NewWalkingDiff(cs), apply.NewFileSystemApplier(cs)}),
		client.WithIntrospectionService(introspectionService{d.snapshotter}),
	))
	if err != nil {
		return nil, fmt.Errorf("create containerd client: %w", err)
	}
	return d, nil
}

// open opens the stores and the database. If it fails, the caller must call Close.
func (d *Daemon) open(ctx context.Context, c Config) (*metadata.DB, error) {
	content := filepath.Join(c.Root, "content")
	blobs, err := local.NewStore(content)
	if err != nil {
		return nil, fmt.Errorf("open content store: %w", err)
	}
	var sn snapshots.Snapshotter
	dir := filepath.Join(c.Root, d.snapshotter)
	switch d.snapshotter {
	case Overlay:
		// A collection then deletes records while it holds containerd's lock, and files after that (Cleanup). If the process dies in
		// between, the next collection that deletes a snapshot also removes the files that are left.
		sn, err = overlay.NewSnapshotter(dir, overlay.AsynchronousRemove)
	case Native:
		sn, err = native.NewSnapshotter(dir)
	default:
		err = errors.New("no such snapshotter")
	}
	if err != nil {
		return nil, fmt.Errorf("open snapshotter %s: %w", d.snapshotter, err)
	}
	d.closers = append(d.closers, sn)
	o := *bolt.DefaultOptions
	o.NoFreelistSync = true // fewer page writes; bbolt rebuilds the list when it opens the database
	o.Timeout = lockTimeout
	path := filepath.Join(c.Root, metaFile)
	b, err := bolt.Open(path, 0o600, &o)
	if err != nil {
		return nil, fmt.Errorf("open %s (is another agent using it?): %w", path, err)
	}
	d.closers = append(d.closers, b)
	// The lock of the database is held, so no other process uses the storage.
	if err := removeDamaged(content); err != nil {
		c.Log.Warn("unfinished blobs that a power cut damaged could not be removed", "error", err)
	}
	if err := removeChecks(c.Root, dir); err != nil {
		c.Log.Warn("the remains of an interrupted overlayfs test could not be removed", "error", err)
	}
	if err := renameLeftovers(ctx, dir); err != nil {
		c.Log.Warn("the remains of a snapshot that was not completed could not be renamed", "error", err)
	}
	return metadata.NewDB(b, blobs, map[string]snapshots.Snapshotter{d.snapshotter: sn}), nil
}

// Client returns containerd's client for the storage. It does not support tasks, containers and
// sandboxes.
func (d *Daemon) Client() *client.Client { return d.client }

// Snapshotter returns the name of the snapshotter in use.
func (d *Daemon) Snapshotter() string { return d.snapshotter }

// Damage describes why the storage was replaced by an empty one, by this call of Start or by an earlier one without ForgetDamage. It
// returns "" if it was not.
func (d *Daemon) Damage() string { return d.damage }

// ForgetDamage records that the caller knows the damage. Later calls of Start do not report it again.
func (d *Daemon) ForgetDamage() error { return d.disk.forgetDamage() }

// Close waits for a running collection and closes the storage.
func (d *Daemon) Close() error {
	if d.collector != nil {
		d.collector.stop()
	}
	var errs []error
	for i := len(d.closers) - 1; i >= 0; i-- {
		errs = append(errs, d.closers[i].Close())
	}
	d.closers = nil
	return errors.Join(errs...)
}

type differ struct {
	diff.Comparer
	diff.Applier
}

// forwardLogs forwards the warnings and errors of containerd to log. containerd uses the standard
// logger of logrus.
func forwardLogs(log *slog.Logger) {
	l := logrus.StandardLogger()
	l.SetOutput(io.Discard)
	l.SetLevel(logrus.WarnLevel)
	l.ReplaceHooks(logrus.LevelHooks{logrus.WarnLevel: {logHook{log}}, logrus.ErrorLevel: {logHook{log}}})
}
