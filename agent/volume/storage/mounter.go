package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/store"
)

// Config configures a Mounter.
type Config struct {
	Root    string   // --root-dir
	Node    string   // name of the Node, for messages
	Drivers []Driver // additional drivers
	Ledger  Ledger
	Objects Objects                                              // nil if the node has no API server
	Resizer Resizer                                              // reports expansions to the API server; may be nil
	Labels  func() map[string]string                             // returns the labels of the Node; may be nil
	Claim   func(*v1.Pod, string) string                         // returns the name of the claim of a generic ephemeral volume
	Period  time.Duration                                        // minimum time between two measurements of a volume; negative means never
	Label   func(user, role, kind, level string) (string, error) // returns the SELinux label for files; nil if SELinux is off
	// If LabelAll is true, volumes of every access mode are mounted with an SELinux label. Otherwise only
	// volumes with the access mode ReadWriteOncePod are.
	LabelAll bool
	Event    func(pod *v1.Pod, eventType, reason, message string) // records an event; may be nil
	Log      *slog.Logger                                         // may be nil
}

// A Mounter mounts and unmounts the volumes of this node's pods. It is safe for concurrent use.
type Mounter struct {
	cfg        Config
	root       string          // real path
	life       context.Context //nolint:containedctx // ends with the agent
	operations *prometheus.HistogramVec
	labels     *labelFigures

	updates sync.Mutex // locked before mu while a row is read, changed and stored

	mu         sync.Mutex
	rows       map[store.VolumeKey]record  // copy of the ledger
	ready      map[store.VolumeKey]bool    // volumes that this process has mounted; true for a mount point, false for a directory or link
	inFlight   map[volumeUse]*pendingCalls // unfinished calls, by volume of a pod
	locks      map[volumeUse]*volumeLock   // locks that a call holds or waits for
	probes     map[string]*probeCall       // running probes, by path
	measures   map[string]*measuredUsage   // the last usage of volumes, by path
	expansions map[volumeUse]*expansion    // expansions that are running or have failed
	unstages   map[string]chan struct{}    // wakes the loops that unstage volumes, by ID; capacity 1

	setGroup func(ctx context.Context, dir string, gid int, lazy bool) error // SetGroup; a test replaces it
	orphans  orphanSweep
}

// An orphanSweep unmounts mounts that are not in the ledger.
type orphanSweep struct {
	unmount func() error  // unmountUnrecorded; a test replaces it
	busy    chan struct{} // capacity 1; contains a value while unmount runs
}

// New returns a Mounter with the volumes in the ledger, and those that the drivers find on the disk. It mounts and unmounts nothing. When
// ctx ends, the Mounter cancels the setups whose callers have stopped waiting.
func New(ctx context.Context, cfg Config) (*Mounter, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Labels == nil {
		cfg.Labels = func() map[string]string { return nil }
	}
	root, err := filepath.EvalSymlinks(cfg.Root)
	if err != nil {
		return nil, fmt.Errorf("find the root directory: %w", err)
	}
	cfg.Drivers = append(builtInDrivers(root, cfg.Objects), cfg.Drivers...)
	k := &Mounter{
		cfg: cfg, root: root, life: ctx, ready: map[store.VolumeKey]bool{}, inFlight: map[volumeUse]*pendingCalls{},
		locks: map[volumeUse]*volumeLock{}, probes: map[string]*probeCall{}, measures: map[string]*measuredUsage{},
		expansions: map[volumeUse]*expansion{}, unstages: map[string]chan struct{}{}, operations: newOperationSeconds(),
		labels: newLabelFigures(), setGroup: SetGroup,
	}
	k.orphans = orphanSweep{k.unmountUnrecorded, make(chan struct{}, 1)}
	if k.rows, err = loadLedger(ctx, cfg.Ledger, cfg.Log); err == nil {
		k.recordFound(ctx)
	}
	return k, err
}

// mountVolume mounts a volume for a pod. It does nothing if this process has already mounted it.
func (k *Mounter) mountVolume(ctx context.Context, v Volume, d Driver, u Use) error {
	key := store.VolumeKey{Volume: v.ID, Pod: string(u.Pod.UID), Path: u.Path}
	if k.isReady(key) {
		return nil
	}
	use := volumeUse{v.ID, u.Pod.UID}
	return k.withUse(ctx, use, func(ctx context.Context, unlock func()) error {
		if k.isReady(key) {
			return nil
		}
		ctx, o, end := k.beginOperation(ctx, use)
		defer end()
		operation := "volume_mount"
		if v.Block {
			operation = "map_volume"
		}
		// While the volume is locked, no other pod starts to use it.
		r := record{Plugin: d.Plugin(), Volume: v, GroupPending: k.mustChangeGroup(v, d, u), Size: k.sizeOnNode(v)}
		if err := k.observeCall(operation, d.Plugin(), v, func() error {
			if err := k.publishVolume(ctx, v, d, u, key, r); err != nil {
				return err
			}
			unlock() // the change of the group may take long, and must not delay the end of other pods
			return k.applyFSGroup(ctx, d, u, key, r)
		}); err != nil {
			k.reportLate(ctx, o, u.Pod, err)
			return err
		}
		k.setReady(key, true)
		return nil
	})
}

// publishVolume attaches, stages and publishes a volume for a pod, and stores its row. The caller holds the volume's lock.
func (k *Mounter) publishVolume(ctx context.Context, v Volume, d Driver, u Use, key store.VolumeKey, r record) error {
	// A pod with a row has passed this check already, or ran beside the other one before an update, when both were different volumes.
	if slices.Contains(v.AccessModes, v1.ReadWriteOncePod) && len(k.rowsFor(v.ID, key.Pod)) == 0 && k.usedByOthers(v.ID, key.Pod) {
		return setUpFailed(v, errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod"))
	}
	if err := k.admitLabel(ctx, v, d, u); err != nil {
		return err
	}
	if a, ok := d.(Attacher); ok {
		u.Recorded = k.isRecorded(v.ID)
		if err := a.WaitAttached(ctx, v, u); err != nil {
			return fmt.Errorf("MountVolume.WaitForAttach failed for volume %q : %w", v.Name, err)
		}
	}
	if err := ctx.Err(); err != nil { // the caller may have called TearDown before the operation began, so nothing would cancel it
		return err
	}
	if err := k.putRow(ctx, key, r); err != nil { // recorded before staging, so that TearDown also unstages the volume
		return setUpFailed(v, err)
	}
	staged, err := k.stageVolume(ctx, v, d, u)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // a long step has continued without its caller: the next call publishes the volume
		return err
	}
	if err := d.Publish(ctx, v, staged, u); err != nil {
		return setUpFailed(v, err)
	}
	return nil
}

// stageVolume mounts a volume for the node if its driver is a Stager. It returns the path of the mount.
func (k *Mounter) stageVolume(ctx context.Context, v Volume, d Driver, u Use) (string, error) {
	s, ok := d.(Stager)
	if !ok {
		return "", nil
	}
	path := s.StagePath(v)
	if path == "" {
		return "", nil
	}
	key := store.VolumeKey{Volume: v.ID, Path: path}
	if k.isReady(key) {
		return path, nil
	}
	v.Source = k.keepPortals(key, v.Source)
	if err := k.putRow(ctx, key, record{Plugin: d.Plugin(), Volume: v}); err != nil {
		return "", setUpFailed(v, err)
	}
	if err := s.Stage(ctx, v, path, u); err != nil {
		if v.Block {
			return "", &mapError{fmt.Errorf("MapVolume.SetUpDevice failed for volume %q : %w", v.Name, err)}
		}
		return "", fmt.Errorf("MountVolume.MountDevice failed for volume %q : %w", v.Name, err)
	}
	k.setReady(key, true)
	return path, nil
}

// keepPortals adds the portals of a disk's row, if there is one, to the source of an iSCSI disk. Stage may have logged in to them, and
// Unstage must log out of them. The portals of the source stay, because the portals of the row may never have worked. keepPortals returns
// other sources unchanged.
func (k *Mounter) keepPortals(key store.VolumeKey, source v1.PersistentVolumeSource) v1.PersistentVolumeSource {
	k.mu.Lock()
	old := k.rows[key].Volume.Source.ISCSI
	k.mu.Unlock()
	if source.ISCSI != nil && old != nil {
		s := *source.ISCSI
		s.TargetPortal, s.Portals = old.TargetPortal, slices.Concat(old.Portals, listPortals(source.ISCSI))
		s.Portals = listPortals(&s)[1:] // each one once
		source.ISCSI = &s
	}
	return source
}

// InUse returns the IDs of the volumes that are mounted or being mounted. The Node's volumesInUse lists them, so that
// the attach-detach controller does not detach them.
func (k *Mounter) InUse() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var ids []string
	for key := range k.rows {
		ids = append(ids, key.Volume)
	}
	for u := range k.inFlight {
		ids = append(ids, u.id)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// findDriver returns the driver with the given name, or nil.
func (k *Mounter) findDriver(plugin string) Driver {
	if i := slices.IndexFunc(k.cfg.Drivers, func(d Driver) bool { return d.Plugin() == plugin }); i >= 0 {
		return k.cfg.Drivers[i]
	}
	return nil
}

// belowRoot reports whether a path is below the root directory.
func (k *Mounter) belowRoot(path string) bool {
	return strings.HasPrefix(filepath.Clean(path), k.root+string(os.PathSeparator))
}

// A mapError is an error that occurred while a block volume was set up.
type mapError struct{ error }

func (e *mapError) Unwrap() error { return e.error }

// EventReason returns the reason that kubelets use for the event of this error.
func (*mapError) EventReason() string { return "FailedMapVolume" }

func setUpFailed(v Volume, err error) error {
	if v.Block {
		return &mapError{fmt.Errorf("MapVolume.MapPodDevice failed for volume %q : %w", v.Name, err)}
	}
	return fmt.Errorf("MountVolume.SetUp failed for volume %q : %w", v.Name, err)
}
