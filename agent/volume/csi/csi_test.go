package csi

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/agent/plugin/plugins"
	"github.com/islet-edge/islet/agent/volume/storage"
	"github.com/islet-edge/islet/internal/eventtest"
	"github.com/islet-edge/islet/runtime/mounts"
)

// TestVolume checks a claim's volume during its whole life. Two pods use it.
func TestVolume(t *testing.T) {
	w := newWorld(t)
	w.info.MaxVolumesPerNode, w.info.AccessibleTopology = 3, &spec.Topology{Segments: map[string]string{"zone.dev/z": "a"}}
	w.register()
	if got := <-w.installed; got != "+"+driverName+" id-of-n 3 map[zone.dev/z:a]" {
		t.Errorf("installed %s", got)
	}
	v := volume()
	v.MountOptions, v.Label = []string{"noatime"}, "system_u:object_r:container_file_t:s0:c1,c2"
	v.Source.CSI.FSType = "ext4"
	v.Source.CSI.NodeStageSecretRef = &v1.SecretReference{Namespace: "ns", Name: "stage"}
	v.Source.CSI.NodePublishSecretRef = &v1.SecretReference{Namespace: "ns", Name: "publish"}
	a, b := w.use(v, podNamed("a")), w.use(v, podNamed("b"))
	if want := w.root + "/pods/uid-of-a/volumes/kubernetes.io~csi/pv/mount"; a.Path != want {
		t.Errorf("at %s, not %s", a.Path, want)
	}
	staged := w.StagePath(v)
	if want := fmt.Sprintf("%s/plugins/kubernetes.io/csi/%s/%x/globalmount", w.root, driverName,
		sha256.Sum256([]byte("h/1"))); staged != want {
		t.Errorf("staged at %s, not %s", staged, want)
	}
	for range 2 {
		requireNoError(t, w.mount(v, a))
		requireNoError(t, w.mount(v, b))
	}
	requireNoError(t, os.WriteFile(filepath.Join(a.Path, "written"), []byte("x"), 0o600))
	if text, err := os.ReadFile(filepath.Join(b.Path, "written")); err != nil || string(text) != "x" {
		t.Errorf("%q, %v", text, err)
	}
	var data map[string]string
	text, err := os.ReadFile(filepath.Join(filepath.Dir(a.Path), "vol_data.json"))
	requireNoError(t, err)
	requireNoError(t, json.Unmarshal(text, &data))
	if data["specVolID"] != "pv" || data["volumeHandle"] != "h/1" || data["driverName"] != driverName ||
		data["nodeName"] != "n" || data["volumeLifecycleMode"] != "Persistent" || !strings.HasPrefix(data["attachmentID"], "csi-") {
		t.Errorf("vol_data.json: %s", text)
	}
	for _, dir := range []string{filepath.Dir(a.Path), filepath.Dir(staged)} { // a kubelet reads the SELinux label from this file
		text, err := os.ReadFile(filepath.Join(dir, "vol_data.json"))
		if err != nil || !strings.Contains(string(text), `"seLinuxMountContext":"`+v.Label+`"`) {
			t.Errorf("vol_data.json: %s, %v", text, err)
		}
	}
	s, p := w.gotStage, w.gotPublish
	if s.VolumeId != "h/1" || s.Secrets["key"] != "ns/stage" || s.VolumeContext["a"] != "b" ||
		s.VolumeCapability.GetMount().FsType != "ext4" ||
		s.VolumeCapability.GetMount().MountFlags[0] != "noatime" || s.StagingTargetPath != staged {
		t.Errorf("staged with %v", s)
	}
	if p.StagingTargetPath != staged || p.TargetPath != b.Path || p.Secrets["key"] != "ns/publish" ||
		p.VolumeContext["csi.storage.k8s.io/pod.name"] != "" {
		t.Errorf("published with %v", p)
	}
	requireNoError(t, w.Unpublish(t.Context(), v, b.Pod.UID, b.Path))
	w.undo(v, a)
	if _, err := os.Stat(filepath.Join(w.data, "written")); err != nil {
		t.Errorf("data was lost: %v", err)
	}
	w.Deregister(plugins.Plugin{Name: driverName, Socket: "another"})
	w.Deregister(w.plugin())
	if got := <-w.installed; got != "-"+driverName {
		t.Errorf("then %s", got)
	}
}

// TestInline checks that an inline volume of a pod is mounted. The driver gets the data of the pod.
func TestInline(t *testing.T) {
	w := newWorld(t)
	w.register()
	v := volume()
	v.Inline, v.Name, v.AccessModes, v.Source.CSI.VolumeHandle = true, "data", nil, ""
	u := w.use(v, podNamed("a"))
	if err := w.mount(v, u); err == nil || !strings.Contains(err.Error(), `volume mode "Ephemeral" not supported by driver`) {
		t.Errorf("mounted: %v", err)
	}
	yes, hour := true, int64(3600)
	w.object.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}
	w.object.Spec.PodInfoOnMount = &yes
	w.object.Spec.TokenRequests = []storagev1.TokenRequest{{Audience: "vault", ExpirationSeconds: &hour}, {}}
	requireNoError(t, w.mount(v, u))
	p := w.gotPublish
	for k, want := range map[string]string{"a": "b", "csi.storage.k8s.io/pod.name": "a",
		"csi.storage.k8s.io/pod.namespace": "default", "csi.storage.k8s.io/pod.uid": "uid-of-a",
		"csi.storage.k8s.io/serviceAccount.name": "robot", "csi.storage.k8s.io/ephemeral": "true",
		tokensKey: `{"":{"token":"a for  0","expirationTimestamp":"2001-09-09T01:46:40Z"},"vault":{"token":"a for vault 3600","expirationTimestamp":"2001-09-09T01:46:40Z"}}`} {
		if p.VolumeContext[k] != want {
			t.Errorf("%s is %q, not %q", k, p.VolumeContext[k], want)
		}
	}
	if !strings.HasPrefix(p.VolumeId, "csi-") || len(p.VolumeId) != 68 || p.StagingTargetPath != "" {
		t.Errorf("published with %v", p)
	}
	w.object.Spec.ServiceAccountTokenInSecrets = &yes
	requireNoError(t, w.mount(v, u))
	if p := w.gotPublish; p.VolumeContext[tokensKey] != "" || !strings.Contains(p.Secrets[tokensKey], "vault") {
		t.Errorf("tokens are not where they should be: %v", p)
	}
	w.undo(v, u)
	w.object = nil
	if err := w.mount(v, u); err == nil || !strings.Contains(err.Error(), "(no CSIDriver object)") {
		t.Errorf("mounted: %v", err)
	}
}

// TestBlock checks that a pod gets the device of a block volume.
func TestBlock(t *testing.T) {
	w := newWorld(t)
	if err := unix.Mknod(filepath.Join(w.data, "device"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))); err != nil {
		t.Skipf("no device can be made here: %v", err)
	}
	w.register()
	v := volume()
	v.Block = true
	u := w.use(v, podNamed("a"))
	requireNoError(t, w.mount(v, u))
	target := w.root + "/plugins/kubernetes.io/csi/volumeDevices/publish/pv/uid-of-a"
	if to, err := os.Readlink(u.Path); err != nil || to != target || w.gotPublish.TargetPath != target {
		t.Errorf("linked to %s, %v, published at %s", to, err, w.gotPublish.TargetPath)
	}
	if want := w.root + "/plugins/kubernetes.io/csi/volumeDevices/staging/pv"; w.gotStage.StagingTargetPath != want ||
		w.gotStage.VolumeCapability.GetBlock() == nil {
		t.Errorf("staged with %v", w.gotStage)
	}
	requireNoError(t, w.Expand(t.Context(), v, w.StagePath(v), u.Path, v1.ResourceList{v1.ResourceStorage: resource.MustParse("2Gi")}))
	if e := w.gotExpand; e.VolumePath != target || e.CapacityRange.RequiredBytes != 2<<30 || e.VolumeCapability.GetBlock() == nil {
		t.Errorf("expanded with %v", e)
	}
	w.undo(v, u)
}

// TestAttached checks that a mount waits for the VolumeAttachment if the driver requires one.
func TestAttached(t *testing.T) {
	w := newWorld(t)
	w.register()
	v := volume()
	u := w.use(v, podNamed("a"))
	requireNoError(t, w.WaitAttached(t.Context(), v, u))
	w.object = nil
	now := metav1.Now()
	for want, a := range map[string]*storagev1.VolumeAttachment{
		"not found": nil,
		"being deleted": {
			ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now},
			Status:     storagev1.VolumeAttachmentStatus{Attached: true},
		},
		"no disk":          {Status: storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "no disk"}}},
		"not attached it ": {},
	} {
		w.mu.Lock()
		w.attach = a
		w.mu.Unlock()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if err := w.WaitAttached(ctx, v, u); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	w.mu.Lock()
	w.attach = &storagev1.VolumeAttachment{
		Status: storagev1.VolumeAttachmentStatus{Attached: true, AttachmentMetadata: map[string]string{"disk": "sdb"}},
	}
	w.mu.Unlock()
	requireNoError(t, w.WaitAttached(t.Context(), v, u))
	requireNoError(t, w.mount(v, u))
	if w.gotStage.PublishContext["disk"] != "sdb" || w.gotPublish.PublishContext["disk"] != "sdb" {
		t.Errorf("staged with %v, published with %v", w.gotStage.PublishContext, w.gotPublish.PublishContext)
	}
	w.undo(v, u)
}

// TestInUse checks that a volume is not mounted before the API server lists it as in use, although it is attached. After that, it is
// mounted again without a link, also by a restarted agent and after a reboot, until it was unmounted.
func TestInUse(t *testing.T) {
	w := newWorld(t)
	w.object, w.attach = nil, &storagev1.VolumeAttachment{Status: storagev1.VolumeAttachmentStatus{Attached: true}}
	accepted := atomic.Bool{}
	waiting := make(chan context.CancelFunc, 1)
	n := &node{world: w, inUse: func(ctx context.Context, _ string) error {
		if accepted.Load() {
			return nil
		}
		(<-waiting)() // the caller stops waiting
		<-ctx.Done()
		return ctx.Err()
	}}
	n.newStore()
	n.start()
	n.register()
	defer func() { n.kill(); n.db.Close() }()
	pod := podNamed("a")
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
	}}}
	setUp := func() error {
		ctx, stop := context.WithCancel(n.life)
		defer stop()
		waiting <- stop
		_, err := n.mounter.SetUp(ctx, pod, &pod.Spec.Volumes[0], "")
		select {
		case <-waiting:
		default:
		}
		return err
	}
	for range 2 {
		for range 2 {
			if err := setUp(); err == nil || w.gotPublish != nil || len(n.mounted()) != 0 {
				t.Errorf("%v, published with %v, mounted: %q", err, w.gotPublish, n.mounted())
			}
		}
		accepted.Store(true)
		requireNoError(t, setUp())
		accepted.Store(false)
		for _, reboot := range []bool{false, true} {
			n.start()
			if reboot {
				requireNoError(t, mounts.DetachBelow(n.root))
			}
			n.register()
			requireNoError(t, setUp())
			if !mounted(w.gotPublish.TargetPath) {
				t.Errorf("reboot %v: the volume is not mounted", reboot)
			}
		}
		requireNoError(t, n.mounter.TearDown(n.life, pod.UID))
		w.gotPublish = nil
	}
}

// TestLimitExceeded checks that a pod is rejected if its volume could not be attached because the node has too many volumes. This applies
// only if the driver has an update period for its limit.
func TestLimitExceeded(t *testing.T) {
	w := newWorld(t)
	v := volume()
	u := w.use(v, podNamed("a"))
	code, other, period := int32(codes.ResourceExhausted), int32(codes.Internal), int64(60)
	ended := ""
	w.Drivers.cfg.Reject = func(pod *v1.Pod, reason, message string) {
		eventtest.RecordEvent(v1.EventTypeWarning, reason, message) // package claims sends the real event
		ended += pod.Name + ": " + reason + ": " + message
	}
	const want = "a: VolumeAttachmentLimitExceeded: Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[data], unattached volumes=[data], failed to process volumes=[]: full"
	for _, c := range []struct {
		what   string
		period *int64
		code   *int32
		late   bool
		want   string
	}{
		{"exhausted", &period, &code, true, want},
		{"no period", nil, &code, true, ""},
		{"another error", &period, &other, true, ""},
		{"no code", &period, nil, true, ""},
		{"not wanted any more", &period, &code, false, ""},
	} {
		ended = ""
		w.object = &storagev1.CSIDriver{
			ObjectMeta: metav1.ObjectMeta{Name: driverName},
			Spec:       storagev1.CSIDriverSpec{NodeAllocatableUpdatePeriodSeconds: c.period},
		}
		w.attach = &storagev1.VolumeAttachment{
			Status: storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{Message: "full", ErrorCode: c.code}},
		}
		ctx, stop := context.WithCancel(t.Context())
		if c.late {
			ctx, stop = context.WithTimeout(t.Context(), 0)
		}
		stop()
		if err := w.WaitAttached(ctx, v, u); err == nil || ended != c.want {
			t.Errorf("%s: %v, ended %q", c.what, err, ended)
		}
	}
}

// TestExpandErrors checks that the driver's error code decides whether the expansion of a volume is retried.
func TestExpandErrors(t *testing.T) {
	for code, want := range map[codes.Code]storage.ExpandError{
		codes.Unavailable: {}, codes.DeadlineExceeded: {}, codes.Aborted: {}, codes.ResourceExhausted: {}, codes.Canceled: {},
		codes.Internal: {Final: true}, codes.Unknown: {Final: true},
		codes.InvalidArgument: {Final: true, Infeasible: true},
		codes.OutOfRange:      {Final: true, Infeasible: true}, codes.NotFound: {Final: true, Infeasible: true},
		codes.FailedPrecondition: {Final: true, InUse: true},
	} {
		want.Err = status.Error(code, "no")
		var got *storage.ExpandError
		if err := expandError(want.Err); !errors.As(err, &got) || *got != want {
			t.Errorf("%s: %+v, not %+v", code, got, want)
		}
	}
}

func TestAccessModes(t *testing.T) {
	both := &driver{
		capabilities: map[spec.NodeServiceCapability_RPC_Type]bool{spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER: true},
	}
	for mode, want := range map[v1.PersistentVolumeAccessMode][2]spec.VolumeCapability_AccessMode_Mode{
		v1.ReadWriteOnce: {
			spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
			spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
		},
		v1.ReadWriteOncePod: {
			spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
			spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		},
		v1.ReadOnlyMany: {
			spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
			spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		},
		v1.ReadWriteMany: {
			spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
			spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
		},
		"":          {spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		"Sometimes": {spec.VolumeCapability_AccessMode_UNKNOWN, spec.VolumeCapability_AccessMode_UNKNOWN},
	} {
		v := storage.Volume{}
		if mode != "" {
			v.AccessModes = []v1.PersistentVolumeAccessMode{mode}
		}
		if a, b := (&driver{}).accessMode(v), both.accessMode(v); a != want[0] || b != want[1] {
			t.Errorf("%s: %v and %v", mode, a, b)
		}
	}
}

// TestGroup checks whether the node, the driver or neither of them sets the fsGroup of a volume.
func TestGroup(t *testing.T) {
	w := newWorld(t)
	gid := int64(77)
	pod := podNamed("a")
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	for _, delegated := range []bool{false, true} {
		if delegated {
			w.can = append(w.can, spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP)
		}
		w.register()
		for policy, want := range map[storagev1.FSGroupPolicy][2]bool{ // the values apply without and with a file system type
			"": {false, true}, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy: {false, true},
			storagev1.FileFSGroupPolicy: {true, true}, storagev1.NoneFSGroupPolicy: {false, false},
		} {
			w.object.Spec.FSGroupPolicy = nil
			if policy != "" {
				w.object.Spec.FSGroupPolicy = &policy
			}
			for i, fs := range []string{"", "ext4"} {
				v := volume()
				v.Source.CSI.FSType = fs
				u := w.use(v, pod)
				if got := w.SetsGroup(v, u); got != (want[i] && !delegated) {
					t.Errorf("policy %q, type %q, delegated %v: the node sets it: %v", policy, fs, delegated, got)
				}
			}
		}
		v := volume()
		u := w.use(v, pod)
		requireNoError(t, w.mount(v, u))
		want := map[bool]string{true: "77"}[delegated]
		if a, b := w.gotStage.VolumeCapability.GetMount().VolumeMountGroup,
			w.gotPublish.VolumeCapability.GetMount().VolumeMountGroup; a != want || b != want {
			t.Errorf("delegated %v: the driver gets %q and %q", delegated, a, b)
		}
		w.undo(v, u)
	}
}

func TestUsage(t *testing.T) {
	w := newWorld(t)
	w.register()
	v := volume()
	u := w.use(v, podNamed("a"))
	requireNoError(t, w.mount(v, u))
	got, err := w.Usage(t.Context(), v, u.Path)
	if want := (storage.Usage{
		Capacity: 100, Used: 30, Available: 70, Inodes: -1, InodesUsed: -1, InodeFree: -1,
		Abnormal: "it smells",
	}); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	w.undo(v, u)
	w.can = nil
	w.register()
	if _, err := w.Usage(t.Context(), v, u.Path); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
	requireNoError(t, w.Expand(t.Context(), v, "", u.Path, nil)) // no change is necessary
}

// TestRepublish checks that a driver that requires republishing is called with new tokens in each round. A failed call does not remove the
// volume from the pod.
func TestRepublish(t *testing.T) {
	w := newWorld(t)
	w.register()
	yes := true
	w.object.Spec.RequiresRepublish, w.object.Spec.TokenRequests = &yes, []storagev1.TokenRequest{{Audience: "a"}}
	v := volume()
	u := w.use(v, podNamed("a"))
	requireNoError(t, w.mount(v, u))
	var all sync.WaitGroup
	asked := 0
	w.fails("publish", func(context.Context) error { asked++; return status.Error(codes.Internal, "not today") })
	if !w.republishAll(t.Context(), &all) {
		t.Error("no volume is republished")
	}
	all.Wait()
	if asked != 1 || !mounted(u.Path) {
		t.Errorf("%d calls; mounted: %v", asked, mounted(u.Path))
	}
	hanging, resume := make(chan struct{}), make(chan struct{})
	w.fails("publish", func(context.Context) error { close(hanging); <-resume; return nil })
	w.republishAll(t.Context(), &all)
	<-hanging
	w.republishAll(t.Context(), &all) // a running call is not repeated
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := w.Unpublish(ctx, v, u.Pod.UID, u.Path); !errors.Is(err, context.Canceled) {
		t.Errorf("unpublished during another call: %v", err)
	}
	close(resume)
	w.fails("publish", nil)
	w.undo(v, u)
	if w.republishAll(t.Context(), &all) {
		t.Error("a removed volume is republished")
	}
	all.Wait()
}

// TestAdopt checks that a restarted agent adopts a published volume. It republishes the volume when the driver registers.
func TestAdopt(t *testing.T) {
	w := newWorld(t)
	w.register()
	yes := true
	w.object.Spec.RequiresRepublish = &yes
	v := volume()
	u := w.use(v, podNamed("a"))
	requireNoError(t, w.mount(v, u))
	after, err := New(w.cfg)
	requireNoError(t, err)
	w.Drivers = after // the agent is restarted
	var all sync.WaitGroup
	if w.republishAll(t.Context(), &all) {
		t.Error("a volume is republished before it is adopted")
	}
	w.Adopt(v, w.StagePath(v), u)
	w.Adopt(v, "elsewhere", u)
	asked := 0
	w.fails("publish", func(context.Context) error { asked++; return nil })
	if !w.republishAll(t.Context(), &all) {
		t.Error("the adopted volume is not republished")
	}
	all.Wait()
	if asked != 0 {
		t.Error("a driver that is not registered was called")
	}
	w.register()
	if !w.republishAll(t.Context(), &all) {
		t.Error("the volume is not republished after its driver has registered")
	}
	all.Wait()
	if asked != 1 || w.published[u.Path].staged != w.StagePath(v) {
		t.Errorf("%d calls with %q", asked, w.published[u.Path].staged)
	}
	w.fails("publish", nil)
	w.undo(v, u)
	no := false
	w.object.Spec.RequiresRepublish = &no
	w.Adopt(v, "", u)
	if w.republishAll(t.Context(), &all) {
		t.Error("the volume is republished although the driver does not require it")
	}
}

// TestHostileNames checks that names in a manifest cannot lead out of the directories of the volumes.
func TestHostileNames(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"", ".", "..", "a/b", "../../x", strings.Repeat("x", 64)} {
		v := volume()
		v.Source.CSI.Driver = name
		u := w.use(v, podNamed("a"))
		ctx := t.Context()
		for i, err := range []error{
			w.Stage(ctx, v, w.StagePath(v), u), w.Publish(ctx, v, "", u),
			w.Unpublish(ctx, v, types.UID("x"), w.root), w.Unstage(ctx, v, w.root), // something is mounted there
			w.WaitAttached(ctx, v, u),
		} {
			if err == nil || !strings.Contains(err.Error(), "names no CSI driver") {
				t.Errorf("%q: %d: %v", name, i, err)
			}
		}
		if err := errors.Join(w.Unpublish(ctx, v, types.UID("x"), u.Path), w.Unstage(ctx, v, w.StagePath(v))); err != nil {
			t.Errorf("%q: not mounted: %v", name, err)
		}
	}
}
