package csinode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/edge/kube"
	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/retry"
)

// nodeIDs is the annotation of the Node that contains the driver-specific node IDs as JSON.
const nodeIDs = "csi.volume.kubernetes.io/nodeid"

const (
	firstRetry = 500 * time.Millisecond
	lastRetry  = time.Minute
	maxKnown   = 256     // maximum number of drivers, including uninstalled ones
	maxMemory  = 1 << 20 // maximum size of the decoded annotation, in bytes; all annotations together have at most 256 KiB
)

// migratedPlugins is the list of in-tree plugins whose volumes are handled by CSI drivers. A kubelet has the same list.
const migratedPlugins = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder," +
	"kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume"

// Config contains the dependencies of a Node.
type Config struct {
	Client *kube.Client
	Name   string
	Node   func() *v1.Node // returns the last known Node, or nil
	Retry  kube.LinkSignal // a value means that the server may answer again; if zero, only a timer triggers retries
	Log    *slog.Logger
}

// A Node writes the CSI drivers of this node to the CSINode and Node objects. It is safe for concurrent use.
type Node struct {
	Config
	wake chan struct{} // capacity 1; also receives the values of Retry

	mu       sync.Mutex
	drivers  map[string]*driver // the drivers of this node; a nil value means uninstalled
	reported map[string]*driver // the drivers that were last written to the API server
	owner    types.UID          // UID of the Node for which reported is valid
}

type driver struct {
	storagev1.CSINodeDriver
	topology map[string]string
}

// New returns a Node. It sends no request.
func New(c Config) (*Node, error) {
	if c.Client == nil || c.Name == "" || c.Node == nil || c.Log == nil {
		return nil, errors.New("csinode: a part of the configuration is missing")
	}
	return &Node{Config: c, wake: make(chan struct{}, 1), drivers: map[string]*driver{}, reported: map[string]*driver{}}, nil
}

// Install adds a driver, with the ID that the driver uses for this node and the maximum number of volumes. A maximum of 0 means unlimited.
func (n *Node) Install(name, id string, limit int64, topology map[string]string) {
	spec := storagev1.CSINodeDriver{Name: name, NodeID: id, TopologyKeys: slices.Sorted(maps.Keys(topology))}
	d := &driver{CSINodeDriver: spec, topology: maps.Clone(topology)}
	if limit > 0 {
		count := int32(min(limit, math.MaxInt32))
		d.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
	}
	n.set(name, d)
}

// Uninstall removes a driver.
func (n *Node) Uninstall(name string) { n.set(name, nil) }

func (n *Node) set(name string, d *driver) {
	n.mu.Lock()
	n.drivers[name] = d
	delete(n.reported, name)
	n.mu.Unlock()
	n.Poke()
}

// Poke makes Run check for unwritten drivers. Call it when the Node may have changed, or when the server may answer again.
func (n *Node) Poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// passRetry forwards the values of Retry to wake.
func (n *Node) passRetry(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.Retry.C:
			n.Poke()
		}
	}
}

// Run writes the drivers to the API server until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { n.passRetry(ctx) })
	again := retry.Backoff{FirstWindow: firstRetry, SecondWindow: lastRetry / 4, MaxWindow: lastRetry}
	failing := false // true during an outage, which is logged once
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.wake:
		}
		for {
			err := n.sync(ctx)
			if err == nil {
				again.Reset()
				failing = false
				break
			}
			if ctx.Err() == nil && !failing {
				failing = true
				n.Log.Warn("this node's CSI drivers cannot be written to the API server and are retried", "node", n.Name, "error", err)
			}
			if _, ended := kube.WaitForRetry(ctx, &again, err, kube.LinkSignal{C: n.wake}); ended != nil {
				return nil
			}
		}
	}
}

// pendingDrivers returns the drivers that are not written to the API server yet.
func (n *Node) pendingDrivers(owner types.UID) map[string]*driver {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.owner != owner { // nothing was written to the new Node yet
		n.owner = owner
		clear(n.reported)
	}
	out := map[string]*driver{}
	for name, d := range n.drivers {
		if reported, found := n.reported[name]; !found || reported != d {
			out[name] = d
		}
	}
	return out
}

var errNoNode = errors.New("there is no Node yet")

// sync updates CSINode and Node.
func (n *Node) sync(ctx context.Context) error {
	n.mu.Lock()
	idle := len(n.drivers) == 0
	n.mu.Unlock()
	if idle {
		return nil
	}
	node := n.Node()
	if node == nil || node.UID == "" {
		return errNoNode
	}
	todo := n.pendingDrivers(node.UID)
	if len(todo) == 0 {
		return nil
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(todo)) { // one request per driver, because the server may reject the labels of one driver
		d := todo[name]
		err := n.labelNode(ctx, node, name, d)
		if err == nil {
			err = n.updateCSINode(ctx, node, name, d)
		}
		n.mu.Lock()
		if err != nil {
			errs = append(errs, fmt.Errorf("driver %s: %w", name, err))
		} else if n.drivers[name] == d { // if they differ, the driver has changed during the request
			n.reported[name] = d
		}
		n.mu.Unlock()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.drivers) > maxKnown { // label removes the entries of uninstalled drivers, so they are kept, but only a limited number
		maps.DeleteFunc(n.drivers, func(_ string, d *driver) bool { return d == nil })
	}
	return errors.Join(errs...)
}

// labelNode sets the annotation and the labels of the Node. It does not change a label that another program has set to another value.
func (n *Node) labelNode(ctx context.Context, node *v1.Node, name string, d *driver) error {
	ids := map[string]string{}
	if text := node.Annotations[nodeIDs]; text != "" {
		err := inputweight.JSON([]byte(text), &ids, maxMemory)
		if err == nil {
			err = json.Unmarshal([]byte(text), &ids)
		}
		if err != nil {
			n.Log.Warn("the Node's annotation with the IDs of CSI drivers cannot be decoded and is replaced",
				"annotation", nodeIDs, "error", err)
			ids = map[string]string{}
		}
	}
	before := maps.Clone(ids)
	labels := map[string]string{}
	n.mu.Lock()
	for name, d := range n.drivers { // add all drivers, because the known Node may be older than the last change
		delete(ids, name)
		if d != nil {
			ids[name] = d.NodeID
		}
	}
	n.mu.Unlock()
	if d != nil {
		for key, value := range d.topology {
			switch has, found := node.Labels[key]; {
			case !found:
				labels[key] = value
			case has != value:
				n.Log.Warn("topology value collision: another program has set this label of the Node, which is not changed",
					"driver", name, "label", key, "reported", value, "existing", has)
			}
		}
	}
	change := map[string]any{}
	if len(labels) > 0 {
		change["labels"] = labels
	}
	if !maps.Equal(before, ids) {
		var text any // a JSON null removes the annotation
		if len(ids) > 0 {
			data, err := json.Marshal(ids)
			if err != nil {
				return fmt.Errorf("encode the IDs: %w", err)
			}
			text = string(data)
		}
		change["annotations"] = map[string]any{nodeIDs: text}
	}
	if len(change) == 0 {
		return nil
	}
	data, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return fmt.Errorf("encode labels: %w", err)
	}
	if _, err := kube.Patch[v1.Node](ctx, n.Client, "", n.Name, types.MergePatchType, data, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("set the labels of the Node: %w", err)
	}
	return nil
}

// updateCSINode updates or creates the CSINode.
func (n *Node) updateCSINode(ctx context.Context, node *v1.Node, name string, d *driver) error {
	todo := map[string]*driver{name: d}
	has, err := kube.Get[storagev1.CSINode](ctx, n.Client, "", n.Name)
	owned := func(o metav1.OwnerReference) bool { return o.Kind == "Node" && o.UID == node.UID }
	if err == nil && !slices.ContainsFunc(has.OwnerReferences, owned) {
		o := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(has.UID))}
		if err := kube.Delete[storagev1.CSINode](ctx, n.Client, "", n.Name, o); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete the CSINode of an earlier Node: %w", err)
		}
		n.mu.Lock()
		todo = maps.Clone(n.drivers) // write all drivers to the new object
		n.mu.Unlock()
		err = apierrors.NewNotFound(storagev1.Resource("csinodes"), n.Name)
	}
	if apierrors.IsNotFound(err) {
		return n.create(ctx, node, todo)
	}
	if err != nil {
		return fmt.Errorf("read the CSINode: %w", err)
	}
	return n.changeDriver(ctx, has.Spec.Drivers, name, d)
}

// changeDriver updates a driver's entry in the existing CSINode. API servers since 1.35 accept a change of the limit (KEP-4876). For other
// changes, the entry is deleted and added again.
func (n *Node) changeDriver(ctx context.Context, has []storagev1.CSINodeDriver, name string, d *driver) error {
	var removed, added []any
	i := slices.IndexFunc(has, func(d storagev1.CSINodeDriver) bool { return d.Name == name })
	if i >= 0 && d != nil && equalDriver(has[i], d.CSINodeDriver) {
		return nil
	}
	if i >= 0 {
		removed = append(removed, map[string]any{"$patch": "delete", "name": name})
	}
	if d != nil {
		added = append(added, d.CSINodeDriver)
	}
	if i >= 0 && d != nil && d.Allocatable != nil {
		other := *d
		other.Allocatable = has[i].Allocatable
		if equalDriver(has[i], other.CSINodeDriver) {
			if err := n.patch(ctx, added); err == nil || !apierrors.IsInvalid(err) {
				return err
			}
		}
	}
	for _, drivers := range [][]any{removed, added} {
		if len(drivers) == 0 {
			continue
		}
		if err := n.patch(ctx, drivers); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) patch(ctx context.Context, drivers []any) error {
	data, err := json.Marshal(map[string]any{"spec": map[string]any{"drivers": drivers}})
	if err != nil {
		return fmt.Errorf("encode the drivers: %w", err)
	}
	o := metav1.PatchOptions{}
	if _, err := kube.Patch[storagev1.CSINode](ctx, n.Client, "", n.Name, types.StrategicMergePatchType, data, o); err != nil {
		return fmt.Errorf("change the CSINode: %w", err)
	}
	return nil
}

func (n *Node) create(ctx context.Context, node *v1.Node, todo map[string]*driver) error {
	made := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name: n.Name, Annotations: map[string]string{v1.MigratedPluginsAnnotationKey: migratedPlugins},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
	}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}}
	for _, name := range slices.Sorted(maps.Keys(todo)) {
		if d := todo[name]; d != nil {
			made.Spec.Drivers = append(made.Spec.Drivers, d.CSINodeDriver)
		}
	}
	if _, err := kube.Create(ctx, n.Client, made); err != nil {
		return fmt.Errorf("create the CSINode: %w", err)
	}
	return nil
}

func equalDriver(a, b storagev1.CSINodeDriver) bool {
	count := func(d storagev1.CSINodeDriver) int32 {
		if d.Allocatable == nil || d.Allocatable.Count == nil {
			return -1
		}
		return *d.Allocatable.Count
	}
	return a.NodeID == b.NodeID && slices.Equal(slices.Sorted(slices.Values(a.TopologyKeys)), b.TopologyKeys) && count(a) == count(b)
}
