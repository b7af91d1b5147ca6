package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/islet-edge/islet/runtime/mounts"
)

// labelDisk is a driver whose volumes are file systems. In the kernel, a file system has only one label from its first mount to its last
// unmount.
type labelDisk struct {
	root       string
	label      string // label of the staged file system; "-" if it is not staged
	stuck      bool   // Unstage returns an error
	takes      bool
	conflicted error
}

func (*labelDisk) Plugin() string                           { return "kubernetes.io/csi" }
func (*labelDisk) Serves(s *v1.PersistentVolumeSource) bool { return s.CSI != nil }
func (d *labelDisk) MountsLabel(*v1.Pod, Volume) bool       { return d.takes }
func (d *labelDisk) StagePath(v Volume) string              { return d.root + "/staged/" + v.Name }

func (d *labelDisk) Stage(_ context.Context, v Volume, path string, _ Use) error {
	wanted := ""
	for _, o := range v.MountOptions {
		wanted += strings.TrimPrefix(o, "context=")
	}
	if d.label == "-" {
		d.label = wanted
	}
	if d.label != wanted {
		d.conflicted = fmt.Errorf("mounted with %s and %s", d.label, wanted)
	}
	return os.MkdirAll(path, 0o755)
}

func (d *labelDisk) Unstage(_ context.Context, _ Volume, path string) error {
	if d.stuck {
		return errors.New("it is stuck")
	}
	d.label = "-"
	return os.RemoveAll(path)
}

func (d *labelDisk) Publish(_ context.Context, _ Volume, staged string, u Use) error {
	if there, err := mounts.FindTopmost(u.Path); err != nil || there != nil {
		return err
	}
	if err := os.MkdirAll(u.Path, 0o755); err != nil {
		return err
	}
	return unix.Mount(staged, u.Path, "", unix.MS_BIND, "")
}

func (d *labelDisk) Unpublish(_ context.Context, _ Volume, _ types.UID, path string) error {
	return removeBindMount(path)
}

// A labelNode is a node with SELinux. It has one volume of a labelDisk.
type labelNode struct {
	*testing.T
	*Mounter
	disk *labelDisk
	cfg  Config
}

func newLabelNode(t *testing.T, mode v1.PersistentVolumeAccessMode) *labelNode {
	t.Helper()
	root, o := t.TempDir(), &objects{}
	_, pv := o.bound("data", v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}})
	pv.Spec.AccessModes = []v1.PersistentVolumeAccessMode{mode}
	n := &labelNode{T: t, disk: &labelDisk{root: root, label: "-", takes: true}}
	s := openStore(t, t.TempDir())
	t.Cleanup(func() { s.Close() })
	n.cfg = Config{
		Root: root, Drivers: []Driver{n.disk}, Ledger: s, Objects: o, Claim: ephemeral, LabelAll: true,
		Label: func(_, _, _, level string) (string, error) {
			if level == "bad" {
				return "", errors.New("no such level")
			}
			return level, nil
		},
	}
	n.restart()
	return n
}

func (n *labelNode) restart() {
	n.Helper()
	var err error
	n.Mounter, err = New(n.Context(), n.cfg)
	requireNoError(n.T, err)
}

// This helper returns a pod that mounts the volume. The pod has a container for each of the given levels.
func labelled(name string, policy v1.PodSELinuxChangePolicy, levels ...string) *v1.Pod {
	p := podWith(name, "data")
	p.Spec.Containers, p.Spec.SecurityContext = nil, &v1.PodSecurityContext{SELinuxChangePolicy: &policy}
	for i, level := range levels {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{
			Name: fmt.Sprint("c", i), VolumeMounts: []v1.VolumeMount{{Name: "data", MountPath: "/data"}},
			SecurityContext: &v1.SecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: level}},
		})
	}
	return p
}

// setUp mounts the volume for a pod. It returns "labelled", "relabel" or the text of an error.
func (n *labelNode) setUp(p *v1.Pod) string {
	n.Helper()
	vol := &p.Spec.Volumes[0]
	if _, err := n.SetUp(n.Context(), p, vol, ""); err != nil {
		return err.Error()
	}
	_, _, relabel, err := n.MountPath(p, vol)
	requireNoError(n.T, err)
	if n.disk.conflicted != nil {
		n.Error(n.disk.conflicted)
	}
	if relabel {
		return "relabel"
	}
	return "labelled"
}

func (n *labelNode) tearDown(name string) {
	n.Helper()
	requireNoError(n.T, n.TearDown(n.Context(), types.UID("uid-"+name)))
}

// figures returns the metrics about SELinux labels whose values are not 0.
func (n *labelNode) figures() (all []string) {
	n.Helper()
	r := prometheus.NewRegistry()
	for _, c := range n.labels.collectors() {
		requireNoError(n.T, r.Register(c))
	}
	families, err := r.Gather()
	requireNoError(n.T, err)
	for _, f := range families {
		for _, m := range f.Metric {
			line := strings.TrimPrefix(f.GetName(), "volume_manager_selinux_")
			for _, l := range m.Label {
				line += " " + l.GetValue()
			}
			all = append(all, fmt.Sprint(line, " ", m.Gauge.GetValue()))
		}
	}
	return all
}

// TestLabelsOfTwoPods checks that two pods share a volume only if they require the same label. When the first pod is removed, the volume is
// mounted with the label that the second pod requires.
func TestLabelsOfTwoPods(t *testing.T) {
	const mount, recursive = v1.SELinuxChangePolicyMountOption, v1.SELinuxChangePolicyRecursive
	for name, c := range map[string]struct {
		mode              v1.PersistentVolumeAccessMode
		first, second     *v1.Pod
		want, then, after string
	}{
		"the same": {v1.ReadWriteMany, labelled("p", mount, "s0:c1"), labelled("q", mount, "s0:c1"), "labelled", "labelled", "labelled"},
		"another": {v1.ReadWriteMany, labelled("p", mount, "s0:c1"), labelled("q", mount, "s0:c2"),
			"labelled", `conflicting SELinux labels of volume pv-data: "s0:c1" and "s0:c2"`, "labelled"},
		"none": {v1.ReadWriteOnce, labelled("p", mount, "s0:c1"), labelled("q", mount),
			"labelled", `conflicting SELinux labels of volume pv-data: "s0:c1" and ""`, "relabel"},
		"none first": {v1.ReadWriteOnce, labelled("p", mount), labelled("q", mount, "s0:c1"),
			"relabel", `conflicting SELinux labels of volume pv-data: "" and "s0:c1"`, "labelled"},
		"another policy": {v1.ReadWriteOnce, labelled("p", mount, "s0:c1"), labelled("q", recursive, "s0:c1"),
			"labelled", `conflicting SELinux labels of volume pv-data: "s0:c1" and ""`, "relabel"},
		"both recursive": {v1.ReadWriteMany, labelled("p", recursive, "s0:c1"), labelled("q", recursive, "s0:c2"), "relabel", "relabel", "relabel"},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", restart: ", restarts), func(t *testing.T) {
				n := newLabelNode(t, c.mode)
				expect := func(p *v1.Pod, want string) {
					t.Helper()
					if restarts {
						n.restart()
					}
					if got := n.setUp(p); got != want && !strings.HasSuffix(got, "failed to process volumes=[data]: "+want) {
						t.Errorf("%s: %s, not %s", p.Name, got, want)
					}
				}
				expect(c.first, c.want)
				expect(c.second, c.then)
				expect(c.first, c.want)
				n.tearDown("p")
				expect(c.second, c.after)
				n.tearDown("q")
				if n.disk.label != "-" {
					t.Errorf("still staged with %s", n.disk.label)
				}
			})
		}
	}
}

// TestLabelThatIsNoLongerSet checks a volume that is mounted with a label when its driver stops mounting with labels. The volume keeps its
// label. After the removal of its pod, another pod gets the volume without a label.
func TestLabelThatIsNoLongerSet(t *testing.T) {
	for name, turnOff := range map[string]func(*labelNode){
		"driver":  func(n *labelNode) { n.disk.takes = false },
		"gate":    func(n *labelNode) { n.cfg.LabelAll = false },
		"SELinux": func(n *labelNode) { n.cfg.Label = nil },
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", restart: ", restarts), func(t *testing.T) {
				n := newLabelNode(t, v1.ReadWriteMany)
				p := labelled("p", v1.SELinuxChangePolicyMountOption, "s0:c1")
				q := labelled("q", v1.SELinuxChangePolicyMountOption, "s0:c2")
				if got := n.setUp(p); got != "labelled" {
					t.Fatal(got)
				}
				turnOff(n)
				if restarts {
					n.restart()
				} else {
					n.Mounter.cfg.Label, n.Mounter.cfg.LabelAll = n.cfg.Label, n.cfg.LabelAll
				}
				if got := n.setUp(p); got != "labelled" {
					t.Errorf("the mounted volume: %s", got)
				}
				if got := n.setUp(q); !strings.Contains(got, `conflicting SELinux labels of volume pv-data: "s0:c1" and ""`) {
					t.Errorf("the other pod: %s", got)
				}
				n.tearDown("p")
				if got := n.setUp(q); got != "relabel" || n.disk.label != "" {
					t.Errorf("after the first pod: %s, label %q", got, n.disk.label)
				}
				n.tearDown("q")
			})
		}
	}
}

// TestLabelOfAStagedVolume checks a volume whose unmount failed at its pod's end. It is unmounted before another pod gets it with another
// label.
func TestLabelOfAStagedVolume(t *testing.T) {
	n := newLabelNode(t, v1.ReadWriteOnce)
	if got := n.setUp(labelled("p", v1.SELinuxChangePolicyMountOption, "s0:c1")); got != "labelled" {
		t.Fatal(got)
	}
	n.disk.stuck = true
	if err := n.TearDown(t.Context(), "uid-p"); err == nil {
		t.Fatal("TearDown succeeded although Unstage fails")
	}
	q := labelled("q", v1.SELinuxChangePolicyMountOption, "s0:c2")
	for range 2 {
		if got := n.setUp(q); !strings.Contains(got, "it is stuck") {
			t.Errorf("mounted: %s", got)
		}
	}
	n.disk.stuck = false
	if got := n.setUp(q); got != "labelled" || n.disk.label != `"s0:c2"` {
		t.Errorf("%s, staged with %s", got, n.disk.label)
	}
	n.tearDown("q")
}

// TestLabelOfAMountedVolume checks that a mounted volume keeps its label even if the gate or the CSIDriver changes. Otherwise the runtime
// would relabel files of a mount that does not permit this, or would not relabel files that need it.
func TestLabelOfAMountedVolume(t *testing.T) {
	n := newLabelNode(t, v1.ReadWriteOnce)
	n.cfg.LabelAll = false
	n.restart()
	p := labelled("p", v1.SELinuxChangePolicyMountOption, "s0:c1")
	if got := n.setUp(p); got != "relabel" {
		t.Fatal(got)
	}
	n.cfg.LabelAll = true
	n.restart()
	if got := n.setUp(p); got != "relabel" {
		t.Errorf("then %s", got)
	}
	v, d, err := n.resolveVolume(p, &p.Spec.Volumes[0])
	requireNoError(t, err)
	requireNoError(t, unix.Unmount(n.volumePath(p, v, d), 0)) // the machine reboots
	n.disk.label = "-"
	n.restart()
	if got := n.setUp(p); got != "labelled" || n.disk.label != `"s0:c1"` {
		t.Errorf("after a reboot %s, staged with %s", got, n.disk.label)
	}
	n.tearDown("p")
}

// TestLabelFigures checks that each attempt that fails because of a label is counted once. Each volume that is mounted with a label is
// counted too.
func TestLabelFigures(t *testing.T) {
	const policy = v1.SELinuxChangePolicyMountOption
	n := newLabelNode(t, v1.ReadWriteOnce)
	for _, p := range []*v1.Pod{
		labelled("a", policy, "bad"), labelled("b", policy, "s0:c1", "s0:c2"), labelled("p", policy, "s0:c1"), labelled("r", policy, "s0:c1"),
		labelled("q", policy, "s0:c2"), labelled("q", policy, "s0:c2"),
	} {
		n.setUp(p)
	}
	want := []string{
		"container_errors_total RWO 1", "pod_context_mismatch_errors_total RWO 1",
		"volume_context_mismatch_errors_total RWO kubernetes.io/csi/d 2", "volumes_admitted_total RWO kubernetes.io/csi/d 1",
	}
	if got := n.figures(); !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
	n.tearDown("p")
	n.tearDown("r")
	for mode, short := range map[v1.PersistentVolumeAccessMode]string{v1.ReadOnlyMany: "ROX", v1.ReadWriteMany: "RWX", v1.ReadWriteOncePod: "RWOP"} {
		if got := accessMode(&Volume{AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod, mode}}); got != short {
			t.Errorf("%s: %s", mode, got)
		}
	}
}
