package storage

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A labelingDriver is a driver that supports labels only if its field takes is set.
type labelingDriver struct {
	Driver
	takes bool
}

func (labelingDriver) Plugin() string                           { return "kubernetes.io/csi" }
func (labelingDriver) Serves(s *v1.PersistentVolumeSource) bool { return s.CSI != nil }
func (l labelingDriver) MountsLabel(*v1.Pod, Volume) bool       { return l.takes }

// TestLabel checks that a volume is mounted with the SELinux label of its containers if the driver supports labels and the pod does not opt
// out. If the gate SELinuxMount is off, the volume must also be limited to one pod.
func TestLabel(t *testing.T) {
	recursive, mount := v1.SELinuxChangePolicyRecursive, v1.SELinuxChangePolicyMountOption
	options := func(level string) *v1.SELinuxOptions { return &v1.SELinuxOptions{Level: level} }
	for name, c := range map[string]struct {
		change func(*v1.Pod, *v1.PersistentVolume, *Config, *labelingDriver)
		want   string // the expected mount option
		fails  string
	}{
		"the pod's": {func(*v1.Pod, *v1.PersistentVolume, *Config, *labelingDriver) {}, `context="files:s0:c1,c2"`, ""},
		"a container's": {func(p *v1.Pod, _ *v1.PersistentVolume, _ *Config, _ *labelingDriver) {
			p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{SELinuxOptions: options("s0:c9")}
		}, `context="files:s0:c9"`, ""},
		"SELinux is off":      {func(_ *v1.Pod, _ *v1.PersistentVolume, c *Config, _ *labelingDriver) { c.Label = nil }, "", ""},
		"the driver does not": {func(_ *v1.Pod, _ *v1.PersistentVolume, _ *Config, d *labelingDriver) { d.takes = false }, "", ""},
		"of several pods": {func(_ *v1.Pod, pv *v1.PersistentVolume, _ *Config, _ *labelingDriver) {
			pv.Spec.AccessModes[0] = v1.ReadWriteMany
		}, `context="files:s0:c1,c2"`, ""},
		"of several pods, gate off": {func(_ *v1.Pod, pv *v1.PersistentVolume, c *Config, _ *labelingDriver) {
			pv.Spec.AccessModes[0], c.LabelAll = v1.ReadWriteOnce, false
		}, "", ""},
		"two modes, gate off": {func(_ *v1.Pod, pv *v1.PersistentVolume, c *Config, _ *labelingDriver) {
			pv.Spec.AccessModes, c.LabelAll = append(pv.Spec.AccessModes, v1.ReadWriteOnce), false
		}, "", ""},
		"of one pod, gate off": {func(_ *v1.Pod, _ *v1.PersistentVolume, c *Config, _ *labelingDriver) { c.LabelAll = false }, `context="files:s0:c1,c2"`, ""},
		"the default, stated": {func(p *v1.Pod, _ *v1.PersistentVolume, _ *Config, _ *labelingDriver) {
			p.Spec.SecurityContext.SELinuxChangePolicy = &mount
		}, `context="files:s0:c1,c2"`, ""},
		"two labels, recursive": {func(p *v1.Pod, _ *v1.PersistentVolume, _ *Config, _ *labelingDriver) {
			p.Spec.SecurityContext.SELinuxChangePolicy = &recursive
			p.Spec.Containers[1].SecurityContext, p.Spec.Containers[1].VolumeMounts = &v1.SecurityContext{SELinuxOptions: options("s0:c9")}, p.Spec.Containers[0].VolumeMounts
		}, "", ""},
		"a block volume": {func(p *v1.Pod, pv *v1.PersistentVolume, _ *Config, _ *labelingDriver) {
			block := v1.PersistentVolumeBlock
			pv.Spec.VolumeMode, p.Spec.Containers[0].VolumeMounts = &block, nil
			p.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "data", DevicePath: "/dev/x"}}
		}, "", ""},
		"recursive": {func(p *v1.Pod, _ *v1.PersistentVolume, _ *Config, _ *labelingDriver) {
			p.Spec.SecurityContext.SELinuxChangePolicy = &recursive
		}, "", ""},
		"no options": {func(p *v1.Pod, _ *v1.PersistentVolume, _ *Config, _ *labelingDriver) { p.Spec.SecurityContext = nil }, "", ""},
		"no level": {func(p *v1.Pod, _ *v1.PersistentVolume, _ *Config, _ *labelingDriver) {
			p.Spec.SecurityContext.SELinuxOptions = &v1.SELinuxOptions{Type: "t"}
		}, "", ""},
		"not mounted there": {func(p *v1.Pod, _ *v1.PersistentVolume, _ *Config, _ *labelingDriver) {
			p.Spec.Containers[1].SecurityContext = &v1.SecurityContext{SELinuxOptions: options("s0:c9")}
		}, `context="files:s0:c1,c2"`, ""},
		"two labels": {func(p *v1.Pod, _ *v1.PersistentVolume, _ *Config, _ *labelingDriver) {
			p.Spec.Containers[1].SecurityContext, p.Spec.Containers[1].VolumeMounts = &v1.SecurityContext{SELinuxOptions: options("s0:c9")}, p.Spec.Containers[0].VolumeMounts
		}, "", "multiple SELinux labels found"},
		"no policy": {func(_ *v1.Pod, _ *v1.PersistentVolume, c *Config, _ *labelingDriver) {
			c.Label = func(_, _, _, _ string) (string, error) { return "", errors.New("no policy") }
		}, "", "no policy"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &objects{}
			_, pv := o.bound("data", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
			pv.Spec.AccessModes, pv.Spec.MountOptions = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}, []string{"noatime"}
			pod := podWith("p", "data")
			pod.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: options("s0:c1,c2")}
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "other"})
			pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
			d := &labelingDriver{takes: true}
			cfg := Config{Root: t.TempDir(), Ledger: openStore(t, t.TempDir()), Objects: o, Claim: ephemeral, LabelAll: true, Label: func(_, _, _, level string) (string, error) { return "files:" + level, nil }}
			c.change(pod, pv, &cfg, d)
			cfg.Drivers = []Driver{d}
			k, err := New(t.Context(), cfg)
			requireNoError(t, err)
			v, _, err := k.resolveVolume(pod, &pod.Spec.Volumes[0])
			if (err == nil) != (c.fails == "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Fatalf("%v, not %q", err, c.fails)
			}
			want := []string{"noatime", c.want}
			if c.want == "" {
				want = want[:1]
			}
			if err == nil && (!slices.Equal(v.MountOptions, want) || (v.Label != "") != (c.want != "")) {
				t.Errorf("mounted with %q (label %q), not %q", v.MountOptions, v.Label, want)
			}
			if len(pv.Spec.MountOptions) != 1 {
				t.Error("the PersistentVolume was changed")
			}
		})
	}
}

// TestLabelIn checks the label that is read from the options of a mounted file system.
func TestLabelIn(t *testing.T) {
	for options, want := range map[string]string{
		"":                                "",
		"rw,seclabel,fscontext=u:r:t:s0":  "",
		"rw,context=u:r:t:s0,data=x":      "u:r:t:s0",
		`context="u:r:t:s0:c1,c2",data=x`: "u:r:t:s0:c1,c2",
	} {
		if got := labelIn(options); got != want {
			t.Errorf("%s: %q", options, got)
		}
	}
}
