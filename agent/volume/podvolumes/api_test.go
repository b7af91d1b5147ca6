package podvolumes

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

func ptr[T any](v T) *T { return &v }

// fakeAPI contains the API objects of a test.
type fakeAPI struct {
	mu          sync.Mutex
	maps        map[string]map[string]string
	secrets     map[string]map[string]string
	token       string
	unreachable error
	bundle      string
	cert        error
	deleted     []string // kind/name of deleted objects that pods still read
}

func (a *fakeAPI) Deleted(_ *v1.Pod, kind, name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Contains(a.deleted, kind+"/"+name)
}

func (a *fakeAPI) TrustAnchors(_ *v1.Pod, p *v1.ClusterTrustBundleProjection) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return []byte(a.bundle + " of " + *p.SignerName), a.unreachable
}

func (a *fakeAPI) Credentials(_ *v1.Pod, volume string, source int) (key, chain []byte, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Appendf(nil, "key of %s %d\n", volume, source), []byte("chain"), a.cert
}

func (a *fakeAPI) ConfigMap(_ *v1.Pod, name string) (*v1.ConfigMap, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unreachable != nil {
		return nil, a.unreachable
	}
	m, ok := a.maps[name]
	if !ok {
		return nil, apierrors.NewNotFound(v1.Resource("configmaps"), name)
	}
	return &v1.ConfigMap{Data: m, BinaryData: map[string][]byte{"blob": {0, 1}}}, nil
}

func (a *fakeAPI) Secret(_ *v1.Pod, name string) (*v1.Secret, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok := a.secrets[name]
	if !ok {
		return nil, apierrors.NewNotFound(v1.Resource("secrets"), name)
	}
	data := map[string][]byte{}
	for k, v := range m {
		data[k] = []byte(v)
	}
	return &v1.Secret{Data: data}, nil
}

func (a *fakeAPI) Token(_ *v1.Pod, p *v1.ServiceAccountTokenProjection) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.token + " for " + p.Audience, a.unreachable
}

func (a *fakeAPI) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

func (a *fakeAPI) Field(pod *v1.Pod, path string) (string, error) {
	if path == "metadata.labels" {
		return pod.Labels["app"], nil
	}
	return "", errors.New("no field " + path)
}

func (a *fakeAPI) Resource(_ *v1.Pod, sel *v1.ResourceFieldSelector) (string, error) {
	return sel.ContainerName + " " + sel.Resource, nil
}

func withAPI(t *testing.T) (*Volumes, *fakeAPI) {
	t.Helper()
	a := &fakeAPI{maps: map[string]map[string]string{"cm": {"a": "1", "b": "2"}}, secrets: map[string]map[string]string{"s": {"p": "hush"}}, token: "ey"}
	v, err := New(Config{Root: t.TempDir(), Hostname: func(p *v1.Pod) (string, string) { return p.Name, "" }, Objects: a, Fields: a})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // unmount the volumes
		if err := v.Sweep(context.Background(), func(types.UID) bool { return false }); err != nil {
			t.Error(err)
		}
	})
	return v, a
}

func configMap(name string, items ...v1.KeyToPath) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: name}, Items: items}}}
}

func secret(name string) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: name, DefaultMode: ptr(int32(0o400))}}}
}

func projection(sources ...v1.VolumeProjection) v1.Volume {
	return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}}}
}

var everything = []v1.VolumeProjection{
	{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Items: []v1.KeyToPath{{Key: "a", Path: "deep/er/a", Mode: ptr(int32(0o600))}}}},
	{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}},
	{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "none"}, Optional: ptr(true)}},
	{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{{Path: "deep/labels", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "c", Resource: "limits.cpu"}}}}},
	{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token", Audience: "vault"}},
}

// readVolume returns the regular files in a volume that a user sees. The keys are their paths, and the values contain their modes.
func readVolume(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	var walk func(at, as string)
	walk = func(at, as string) {
		entries, err := os.ReadDir(at)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name, path := filepath.Join(as, e.Name()), filepath.Join(at, e.Name())
			fi, err := os.Stat(path)
			switch {
			case strings.HasPrefix(name, ".."):
			case err != nil:
				t.Error(err)
			case fi.IsDir():
				walk(path, name)
			default:
				b, err := os.ReadFile(path)
				if err != nil {
					t.Error(err)
				}
				all[name] = fi.Mode().String() + " " + string(b)
			}
		}
	}
	walk(dir, "")
	return all
}

func shows(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	got := readVolume(t, dir)
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %q, not %q", k, got[k], v)
		}
	}
	if len(got) != len(want) {
		t.Errorf("shows %q", got)
	}
}

// This helper returns the names of the data directories and links of a volume.
func hiddenIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			names = append(names, e.Name())
		}
	}
	return names
}
