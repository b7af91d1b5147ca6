package csi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/plugin/plugins"
	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/runtime/mounts/mountstest"
)

// TestMain runs the tests in a separate mount namespace.
func TestMain(m *testing.M) {
	os.Exit(mountstest.Main(func() int { return eventtest.Main(m, "csi") }))
}

func requireNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A world is a node with the API objects and one driver. The driver mounts real file systems.
type world struct {
	*testing.T
	*Drivers
	*faulty
	root, socket, data string

	owed      sync.Map // IDs of the volumes that the driver may have staged, and has not unstaged with success since then
	mu        sync.Mutex
	object    *storagev1.CSIDriver // nil: no CSIDriver exists
	attach    *storagev1.VolumeAttachment
	noSecret  error // error for each read of a Secret
	noToken   error // error for each request of a token
	installed chan string
	retried   chan types.UID

	registered atomic.Bool // Config.Registered was called
	noVolume   atomic.Bool // no PersistentVolume can be read
}

const driverName = "faulty.islet.dev"

func newWorld(t *testing.T) *world {
	t.Helper()
	root, err := os.MkdirTemp("", "csi") // short, because the path of a socket has a limited length
	requireNoError(t, err)
	requireNoError(t, unix.Mount("tmpfs", root, "tmpfs", 0, ""))
	t.Cleanup(func() {
		unix.Unmount(root, unix.MNT_DETACH)
		os.Remove(root)
	})
	no := false
	w := &world{
		T: t, root: root, socket: filepath.Join(root, "csi.sock"), data: filepath.Join(root, "data"),
		installed: make(chan string, 10), retried: make(chan types.UID, 10),
	}
	w.object = &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: driverName}, Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}
	w.Drivers, err = New(Config{
		Root: root, Node: "n", Objects: w, Nodes: w, Retry: func(uid types.UID) { w.retried <- uid },
		Registered: func() { w.registered.Store(true) }, Log: slog.New(slog.DiscardHandler),
	})
	requireNoError(t, err)
	t.Cleanup(func() { w.Drivers.Close() })
	w.serve()
	return w
}

// serve starts or restarts the driver.
func (w *world) serve() {
	w.Helper()
	if w.faulty != nil {
		w.faulty.server.Stop()
	}
	requireNoError(w.T, os.MkdirAll(w.data, 0o755))
	l, err := net.Listen("unix", w.socket)
	requireNoError(w.T, err)
	w.faulty = &faulty{data: w.data, owed: &w.owed, fault: map[string]func(context.Context) error{}, server: grpc.NewServer(),
		info: &spec.NodeGetInfoResponse{NodeId: "id-of-n"}, can: []spec.NodeServiceCapability_RPC_Type{
			spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, spec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
			spec.NodeServiceCapability_RPC_EXPAND_VOLUME, spec.NodeServiceCapability_RPC_VOLUME_CONDITION,
		}}
	spec.RegisterNodeServer(w.server, w.faulty)
	go w.server.Serve(l)
	w.Cleanup(w.server.Stop)
}

func (w *world) plugin() plugins.Plugin {
	return plugins.Plugin{Name: driverName, Endpoint: w.socket, Versions: []string{"1.0.0"}, Socket: "reg"}
}

func (w *world) register() {
	w.Helper()
	requireNoError(w.T, w.Register(w.Context(), w.plugin()))
}

func (w *world) Install(name, id string, limit int64, topology map[string]string) {
	w.installed <- fmt.Sprint("+", name, " ", id, " ", limit, " ", topology)
}

func (w *world) Uninstall(name string) { w.installed <- "-" + name }

func (w *world) CSIDriver(_ *v1.Pod, name string) (*storagev1.CSIDriver, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.object == nil || name != w.object.Name {
		return nil, apierrors.NewNotFound(storagev1.Resource("csidrivers"), name)
	}
	return w.object, nil
}

func (w *world) RenewAttachment(_ context.Context, pod *v1.Pod, name string) (*storagev1.VolumeAttachment, error) {
	return w.Attachment(pod, name)
}

func (w *world) Attachment(_ *v1.Pod, name string) (*storagev1.VolumeAttachment, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.attach == nil {
		return nil, apierrors.NewNotFound(storagev1.Resource("volumeattachments"), name)
	}
	return w.attach, nil
}

func (w *world) VolumeSecret(_ *v1.Pod, namespace, name string) (*v1.Secret, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.noSecret != nil {
		return nil, w.noSecret
	}
	return &v1.Secret{Data: map[string][]byte{"key": []byte(namespace + "/" + name)}}, nil
}

func (w *world) VolumeToken(_ context.Context, pod *v1.Pod, audience string, seconds int64) (string, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.noToken != nil {
		return "", time.Time{}, w.noToken
	}
	return fmt.Sprint(pod.Name, " for ", audience, " ", seconds), time.Unix(1e9, 0), nil
}

func podNamed(name string) *v1.Pod {
	return podtest.New(name, podtest.UID("uid-of-"+name), podtest.ServiceAccount("robot"), podtest.Containers())
}

func volume() storage.Volume {
	return storage.Volume{ID: "kubernetes.io/csi/" + driverName + "^h/1", Name: "pv",
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, Source: v1.PersistentVolumeSource{
			CSI: &v1.CSIPersistentVolumeSource{Driver: driverName, VolumeHandle: "h/1", VolumeAttributes: map[string]string{"a": "b"}},
		}}
}

// This helper returns the paths that the Mounter would use for a pod's volume.
func (w *world) use(v storage.Volume, pod *v1.Pod) storage.Use {
	kind := "volumes"
	if v.Block {
		kind = "volumeDevices"
	}
	return storage.Use{
		Pod: pod, Volume: "data",
		Path: w.PodPath(v, filepath.Join(w.root, "pods", string(pod.UID), kind, "kubernetes.io~csi", v.Name)),
	}
}

// mount performs all steps of a mount.
func (w *world) mount(v storage.Volume, u storage.Use) error {
	staged := w.StagePath(v)
	if staged != "" {
		if err := w.Stage(w.Context(), v, staged, u); err != nil {
			return err
		}
	}
	return w.Publish(w.Context(), v, staged, u)
}

// checkUnstaged checks that the driver has unstaged all volumes.
func (w *world) checkUnstaged() {
	w.Helper()
	w.owed.Range(func(id, _ any) bool {
		w.Errorf("the driver has not unstaged %v", id)
		return true
	})
}

// This helper unmounts the volume twice and checks that nothing is left.
func (w *world) undo(v storage.Volume, u storage.Use) {
	w.Helper()
	for range 2 {
		requireNoError(w.T, w.Unpublish(w.Context(), v, u.Pod.UID, u.Path))
		if staged := w.StagePath(v); staged != "" {
			requireNoError(w.T, w.Unstage(w.Context(), v, staged))
		}
	}
	w.checkUnstaged()
	for _, dir := range []string{filepath.Join(w.root, "pods"), filepath.Join(w.root, "plugins")} {
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() || filepath.Base(path) == "mount" || filepath.Base(path) == "globalmount" {
				w.Errorf("left: %s", path)
			}
			return err
		})
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			w.Error(err)
		}
	}
}

// A faulty is a driver that mounts directories. The test can make it fail.
type faulty struct {
	spec.UnimplementedNodeServer
	data   string
	owed   *sync.Map
	server *grpc.Server

	mu sync.Mutex
	// The key is the method, or "after unstage" for a driver that removes the directory before a later step of this method. errLie: the method
	// reports success without an effect.
	fault      map[string]func(context.Context) error
	info       *spec.NodeGetInfoResponse
	can        []spec.NodeServiceCapability_RPC_Type
	gotStage   *spec.NodeStageVolumeRequest // the last request
	gotPublish *spec.NodePublishVolumeRequest
	gotExpand  *spec.NodeExpandVolumeRequest
}

var errLie = errors.New("a lie")

func (f *faulty) fails(method string, how func(context.Context) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault[method] = how
}

func (f *faulty) do(ctx context.Context, method string, deed func() error) error {
	f.mu.Lock()
	how := f.fault[method]
	f.mu.Unlock()
	if how != nil {
		if err := how(ctx); errors.Is(err, errLie) {
			return nil
		} else if err != nil {
			return err
		}
	}
	if err := deed(); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

func (f *faulty) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return f.info, nil
}

func (f *faulty) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	out := &spec.NodeGetCapabilitiesResponse{}
	for _, c := range f.can {
		out.Capabilities = append(out.Capabilities,
			&spec.NodeServiceCapability{Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: c}}})
	}
	return out, nil
}

func mounted(path string) bool {
	var a, b unix.Stat_t
	var st unix.Statx_t
	if unix.Lstat(path, &a) != nil || unix.Lstat(filepath.Dir(path), &b) != nil {
		return false
	}
	return unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &st) == nil && st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0
}

func (f *faulty) bind(to string, block bool) error {
	if mounted(to) {
		return nil
	}
	from := f.data
	if block {
		from = filepath.Join(f.data, "device")
		if err := os.WriteFile(to, nil, 0o600); err != nil {
			return err
		}
	} else if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return unix.Mount(from, to, "", unix.MS_BIND, "")
}

func unbind(path string, remove bool) error {
	if mounted(path) {
		if err := unix.Unmount(path, 0); err != nil {
			return err
		}
	}
	if remove {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (f *faulty) NodeStageVolume(ctx context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	f.owed.Store(r.VolumeId, true)
	f.mu.Lock()
	f.gotStage = r
	f.mu.Unlock()
	return &spec.NodeStageVolumeResponse{}, f.do(ctx, "stage", func() error {
		if r.VolumeCapability.GetBlock() != nil {
			return nil
		}
		return f.bind(r.StagingTargetPath, false)
	})
}

func (f *faulty) NodeUnstageVolume(ctx context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	f.mu.Lock()
	late := f.fault["after unstage"]
	f.mu.Unlock()
	err := f.do(ctx, "unstage", func() error { return unbind(r.StagingTargetPath, late != nil) })
	if err == nil && late != nil {
		err = f.do(ctx, "after unstage", func() error { return nil })
	}
	if err == nil {
		f.owed.Delete(r.VolumeId)
	}
	return &spec.NodeUnstageVolumeResponse{}, err
}

func (f *faulty) NodePublishVolume(ctx context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	f.mu.Lock()
	f.gotPublish = r
	f.mu.Unlock()
	return &spec.NodePublishVolumeResponse{}, f.do(ctx, "publish",
		func() error { return f.bind(r.TargetPath, r.VolumeCapability.GetBlock() != nil) })
}

func (f *faulty) NodeUnpublishVolume(ctx context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	return &spec.NodeUnpublishVolumeResponse{}, f.do(ctx, "unpublish", func() error { return unbind(r.TargetPath, true) })
}

func (f *faulty) NodeExpandVolume(_ context.Context, r *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gotExpand = r
	return &spec.NodeExpandVolumeResponse{}, nil
}

func (f *faulty) NodeGetVolumeStats(context.Context, *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	return &spec.NodeGetVolumeStatsResponse{
		Usage:           []*spec.VolumeUsage{{Unit: spec.VolumeUsage_BYTES, Total: 100, Used: 30, Available: 70}, nil},
		VolumeCondition: &spec.VolumeCondition{Abnormal: true, Message: "it smells"},
	}, nil
}
