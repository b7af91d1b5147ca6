package storage

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/runtime/mounts"
)

// A linkDriver is a driver that mounts directories and creates links to devices.
type linkDriver struct{ source string }

func (linkDriver) Plugin() string                           { return "kubernetes.io/csi" }
func (linkDriver) Serves(s *v1.PersistentVolumeSource) bool { return s.CSI != nil }

func (d linkDriver) Publish(_ context.Context, v Volume, _ string, u Use) error {
	if err := os.MkdirAll(filepath.Dir(u.Path), 0o755); err != nil {
		return err
	}
	if v.Block {
		return os.Symlink(d.source, u.Path)
	}
	return bindMount(context.Background(), d.source, u.Path, false, nil)
}

func (linkDriver) Unpublish(_ context.Context, v Volume, _ types.UID, path string) error {
	if v.Block {
		return os.Remove(path)
	}
	return removeBindMount(path)
}

// TestCount checks that a volume is counted as mounted until it is unmounted, even if a previous agent has mounted it. After a reboot it is
// not counted.
func TestCount(t *testing.T) {
	block := v1.PersistentVolumeBlock
	for name, c := range map[string]struct {
		source v1.PersistentVolumeSource
		block  bool
		plugin string
	}{
		"CSI":       {v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}, false, "kubernetes.io/csi:d"},
		"a device":  {v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}}, true, "kubernetes.io/csi:d"},
		"hostPath":  {v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}}, false, "kubernetes.io/host-path"},
		"directory": {v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: t.TempDir()}}, false, "kubernetes.io/local-volume"},
	} {
		t.Run(name, func(t *testing.T) {
			root, o, d := t.TempDir(), &objects{}, linkDriver{t.TempDir()}
			s := openStore(t, t.TempDir())
			defer s.Close()
			claim, pv := o.bound("c", c.source)
			pod := podWith("p", "c")
			vol := &pod.Spec.Volumes[0]
			pod.Spec.Containers[0].VolumeMounts = nil
			if c.block {
				pv.Spec.VolumeMode, claim.Spec.VolumeMode = &block, &block
			}
			k := newMounter(t, root, s, o, d)
			expect := func(when, plugin string, mounted bool) {
				t.Helper()
				if p, m := k.PluginState(pod, vol); p != plugin || m != mounted {
					t.Errorf("%s: %q, %v", when, p, m)
				}
			}
			claim.Status.Phase = v1.ClaimPending
			expect("before the claim is bound", "", false)
			claim.Status.Phase = v1.ClaimBound
			expect("before it is mounted", c.plugin, false)
			path, err := k.SetUp(t.Context(), pod, vol, "")
			requireNoError(t, err)
			expect("mounted", c.plugin, true)
			k = newMounter(t, root, s, o, d)
			expect("after a restart", c.plugin, true)
			if there, err := mounts.FindTopmost(path); err == nil && there != nil {
				requireNoError(t, unix.Unmount(path, 0))
				expect("after a reboot", c.plugin, false)
			}
			requireNoError(t, k.TearDown(t.Context(), pod.UID))
			expect("after its pod", c.plugin, false)
		})
	}
}

// TestISCSILabel checks that an iSCSI PersistentVolume is mounted with a label. An inline iSCSI volume is not.
func TestISCSILabel(t *testing.T) {
	o := &objects{}
	_, pv := o.bound("data", v1.PersistentVolumeSource{ISCSI: &v1.ISCSIPersistentVolumeSource{TargetPortal: "p", IQN: "iqn"}})
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	k, err := New(t.Context(), Config{
		Root: t.TempDir(), Ledger: openStore(t, t.TempDir()), Objects: o, Claim: ephemeral, LabelAll: true,
		Label: func(_, _, _, level string) (string, error) { return level, nil },
	})
	requireNoError(t, err)
	pod := labelled("p", v1.SELinuxChangePolicyMountOption, "s0:c1")
	if v, _, err := k.resolveVolume(pod, &pod.Spec.Volumes[0]); err != nil || v.Label != "s0:c1" {
		t.Errorf("%+v, %v", v, err)
	}
	pod.Spec.Volumes[0].VolumeSource = v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "p", IQN: "iqn"}}
	if v, _, err := k.resolveVolume(pod, &pod.Spec.Volumes[0]); err != nil || v.Label != "" || len(v.MountOptions) != 0 {
		t.Errorf("inline: %+v, %v", v, err)
	}
}
