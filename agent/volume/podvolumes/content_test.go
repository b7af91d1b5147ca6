package podvolumes

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/islet-edge/islet/internal/podtest"
	"github.com/islet-edge/islet/runtime/mounts"
)

func setUp(t *testing.T, v *Volumes, p *v1.Pod) string {
	t.Helper()
	mounts, err := mountsOf(t, v, p, v1.VolumeMount{Name: "v", MountPath: "/v"})
	if err != nil {
		t.Fatal(err)
	}
	if !mounts[0].Readonly {
		t.Error("a container can write to the volume")
	}
	return mounts[0].HostPath
}

func isTmpfs(t *testing.T, dir string) bool {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	points, err := mounts.ListBelow(filepath.Dir(dir))
	return err == nil && slices.Contains(points, dir) && st.Type == unix.TMPFS_MAGIC
}

func TestConfigMapVolume(t *testing.T) {
	v, a := withAPI(t)
	p := podWith(configMap("cm"))
	dir := setUp(t, v, p)
	if dir != filepath.Join(v.podDir("u1"), "volumes/kubernetes.io~configmap/v") {
		t.Error(dir)
	}
	shows(t, dir, map[string]string{"a": "-rw-r--r-- 1", "b": "-rw-r--r-- 2", "blob": "-rw-r--r-- \x00\x01"})
	before := hiddenIn(t, dir)
	if len(before) != 2 || before[1] != dataLink {
		t.Error(before)
	}
	setUp(t, v, p)
	if err := v.Refresh(p); err != nil || !slices.Equal(hiddenIn(t, dir), before) {
		t.Error("written again unnecessarily:", err)
	}
	held, err := os.Open(filepath.Join(dir, "a")) // a reader has the file open
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	a.set(func() { a.maps["cm"] = map[string]string{"b": "3", "c": "4"} })
	if err := v.Refresh(p); err != nil {
		t.Fatal(err)
	}
	shows(t, dir, map[string]string{"b": "-rw-r--r-- 3", "c": "-rw-r--r-- 4", "blob": "-rw-r--r-- \x00\x01"})
	if after := hiddenIn(t, dir); len(after) != 2 || slices.Equal(after, before) {
		t.Error(after)
	}
	b := make([]byte, 1)
	if true {
		if _, err := held.Read(b); err != nil || b[0] != '1' {
			t.Error("a reader has lost its file:", err)
		}
	}
	// The ConfigMap can no longer be read, so the files stay.
	a.set(func() { a.unreachable = errors.New("no route") })
	if err := v.Refresh(p); err == nil {
		t.Error("the failure is not reported")
	}
	setUp(t, v, p)
	other := podWith(configMap("cm"))
	other.UID = "u2"
	if err := v.Prepare(t.Context(), other); err == nil || !strings.Contains(err.Error(), "no route") {
		t.Error("a pod without an earlier version:", err)
	}
	if err := v.Refresh(other); err != nil {
		t.Error("a volume that is not set up:", err)
	}
	if err := v.Release(t.Context(), "u1"); err != nil {
		t.Fatal(err)
	}
	requireGone(t, dir)
}

func TestItemsAndModes(t *testing.T) {
	v, _ := withAPI(t)
	vol := configMap("cm", v1.KeyToPath{Key: "b", Path: "x/y/z", Mode: ptr(int32(0o440))}, v1.KeyToPath{Key: "a", Path: "x/a"})
	vol.ConfigMap.DefaultMode = ptr(int32(0o755))
	shows(t, setUp(t, v, podWith(vol)), map[string]string{"x/y/z": "-r--r----- 2", "x/a": "-rwxr-xr-x 1"})

	v, _ = withAPI(t)
	vol.ConfigMap.Items = []v1.KeyToPath{{Key: "none", Path: "n"}}
	if err := v.Prepare(t.Context(), podWith(vol)); err == nil || !strings.Contains(err.Error(), `no key "none"`) {
		t.Error(err)
	}
	vol.ConfigMap.Optional = ptr(true)
	shows(t, setUp(t, v, podWith(vol)), nil)

	v, a := withAPI(t)
	vol = configMap("late")
	if err := v.Prepare(t.Context(), podWith(vol)); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	vol.ConfigMap.Optional = ptr(true)
	dir := setUp(t, v, podWith(vol))
	shows(t, dir, nil)
	a.set(func() { a.maps["late"] = map[string]string{"k": "v"} })
	if err := v.Refresh(podWith(vol)); err != nil {
		t.Error(err)
	}
	shows(t, dir, map[string]string{"k": "-rw-r--r-- v", "blob": "-rw-r--r-- \x00\x01"})
}

// TestSpellingsOfPaths checks that each source accepts every spelling of a path that the API server accepts. The volume is not written
// again without a change, also if two paths are spellings of the same path.
func TestSpellingsOfPaths(t *testing.T) {
	for spelling, want := range map[string]string{
		"./%s": "%s", "d//%s": "d/%s", "d/%s/": "d/%s", "d/./%s//": "d/%s", ".//d/.e/%s/.": "d/.e/%s",
	} {
		at := func(name string) string { return fmt.Sprintf(spelling, name) }
		v, a := withAPI(t)
		a.bundle = "roots"
		p := podWith(projection(
			v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "cm"},
				Items: []v1.KeyToPath{{Key: "a", Path: at("cm")}, {Key: "b", Path: at("twice")}, {Key: "a", Path: at("twice") + "/"}}}},
			v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"},
				Items: []v1.KeyToPath{{Key: "p", Path: at("secret")}}}},
			v1.VolumeProjection{DownwardAPI: &v1.DownwardAPIProjection{Items: []v1.DownwardAPIVolumeFile{
				{Path: at("labels"), FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}}}}},
			v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: at("token"), Audience: "vault"}},
			v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{SignerName: ptr("a.b/c"), Path: at("ca")}},
			v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{CredentialBundlePath: at("bundle")}},
			v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{KeyPath: at("key"), CertificateChainPath: at("chain")}},
		))
		p.Labels = map[string]string{"app": "web"}
		files := map[string]string{}
		for name, content := range map[string]string{"cm": "1", "twice": "1", "secret": "hush", "labels": "web", "token": "ey for vault",
			"ca": "roots of a.b/c", "bundle": "key of v 5\nchain", "key": "key of v 6\n", "chain": "chain"} {
			files[fmt.Sprintf(want, name)] = "-rw-r--r-- " + content
		}
		dir := setUp(t, v, p)
		shows(t, dir, files)
		before := hiddenIn(t, dir)
		for range 20 {
			if err := v.Refresh(p); err != nil || !slices.Equal(hiddenIn(t, dir), before) {
				t.Fatalf("%s: written again without a change, %v", spelling, err)
			}
		}
	}
}

func TestSecretVolume(t *testing.T) {
	v, _ := withAPI(t)
	p := podWith(secret("s"))
	gid := int64(os.Getgid())
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	dir := setUp(t, v, p)
	setUp(t, v, p)
	shows(t, dir, map[string]string{"p": "-r--r----- hush"}) // the pod's group may read the file
	if !isTmpfs(t, dir) {
		t.Error("a secret is on a disk")
	}
	if fi, err := os.Stat(filepath.Join(dir, "..data/")); err != nil || fi.Mode() != fs.ModeDir|fs.ModeSetgid|0o755 {
		t.Error(fi.Mode(), err)
	}
	if err := v.Release(t.Context(), "u1"); err != nil {
		t.Fatal(err)
	}
	requireGone(t, dir)
}

func TestProjectedVolume(t *testing.T) {
	v, a := withAPI(t)
	p := podWith(projection(everything...))
	p.Labels = map[string]string{"app": "web"}
	dir := setUp(t, v, p)
	want := map[string]string{"deep/er/a": "-rw------- 1", "p": "-rw-r--r-- hush", "deep/labels": "-rw-r--r-- web", "cpu": "-rw-r--r-- c limits.cpu", "token": "-rw-r--r-- ey for vault"}
	shows(t, dir, want)
	if !isTmpfs(t, dir) {
		t.Error("a token is on a disk")
	}
	a.set(func() { a.token = "new" })
	p.Labels["app"] = "log"
	if err := v.Refresh(p); err != nil {
		t.Error(err)
	}
	want["token"], want["deep/labels"] = "-rw-r--r-- new for vault", "-rw-r--r-- log"
	shows(t, dir, want)

	refused := podWith(projection(append([]v1.VolumeProjection{{}}, everything...)...))
	refused.UID = "u2"
	if err := v.Prepare(t.Context(), refused); err == nil || !strings.Contains(err.Error(), "this node does not") {
		t.Error(err)
	}
}

// TestProjectedCertificates checks the files with a pod's certificates and the certificates that it trusts. They are readable only for
// users that may read a token. The pod waits for a missing certificate. An existing certificate stays in use if it cannot be renewed.
func TestProjectedCertificates(t *testing.T) {
	uid := int64(os.Getuid())
	for _, tt := range []struct {
		user *int64
		mode string
	}{{nil, "-rw-r--r--"}, {&uid, "-rw-------"}} {
		v, a := withAPI(t)
		p := podWith(projection(
			v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{SignerName: ptr("a.b/c"), Path: "trust/ca.pem"}},
			v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{CredentialBundlePath: "bundle.pem"}},
			v1.VolumeProjection{PodCertificate: &v1.PodCertificateProjection{KeyPath: "key.pem", CertificateChainPath: "chain.pem"}},
		))
		p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: tt.user}
		a.set(func() { a.bundle, a.cert = "roots", errors.New("the signer has not issued it yet") })
		if err := v.Prepare(t.Context(), p); err == nil || !strings.Contains(err.Error(), "has not issued it yet") {
			t.Error(err)
		}
		a.set(func() { a.cert = nil })
		dir, name := setUp(t, v, p), p.Spec.Volumes[0].Name
		want := map[string]string{
			"trust/ca.pem": tt.mode + " roots of a.b/c", "bundle.pem": tt.mode + " key of " + name + " 1\nchain",
			"key.pem": tt.mode + " key of " + name + " 2\n", "chain.pem": tt.mode + " chain",
		}
		shows(t, dir, want)
		if !isTmpfs(t, dir) {
			t.Error("the volume is not in memory")
		}
		a.set(func() { a.bundle, a.cert = "others", errors.New("denied") })
		if err := v.Refresh(p); err == nil {
			t.Error("no error for a certificate that cannot be renewed")
		}
		shows(t, dir, want)
		a.set(func() { a.cert = nil })
		if err := v.Refresh(p); err != nil {
			t.Error(err)
		}
		want["trust/ca.pem"] = tt.mode + " others of a.b/c"
		shows(t, dir, want)
	}
}

// TestTokenModes checks who can read a token. If all containers of the pod have the same user, this user can read it. If the pod has an
// fsGroup, this group can read it. If neither is the case, everyone can read it.
func TestTokenModes(t *testing.T) {
	uid, gid := int64(os.Getuid()), int64(os.Getgid())
	for _, tt := range []struct {
		user, own, group *int64
		want             string
	}{
		{nil, nil, nil, "-rw-r--r--"},
		{&uid, nil, nil, "-rw-------"},
		{nil, &uid, nil, "-rw-------"},
		{&uid, ptr(uid + 1), nil, "-rw-r--r--"},
		{&uid, nil, &gid, "-rw-r-----"},
		{nil, nil, &gid, "-rw-r-----"},
	} {
		v, _ := withAPI(t)
		p := podWith(projection(everything[4]))
		p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: tt.user, FSGroup: tt.group}
		p.Spec.Containers[0].SecurityContext = &v1.SecurityContext{RunAsUser: tt.own}
		if tt.user != nil {
			p.Spec.InitContainers = []v1.Container{{Name: "i"}}
		}
		shows(t, setUp(t, v, p), map[string]string{"token": tt.want + " ey for vault"})
	}
}

// TestSubPathOfConfigMap checks that a subPath shows the file as it was at the container's start. The next attempt of the container gets
// the new file.
func TestSubPathOfConfigMap(t *testing.T) {
	v, a := withAPI(t)
	p := podWith(configMap("cm"))
	mount := v1.VolumeMount{Name: "v", MountPath: "/etc/app.conf", SubPath: "a"}
	mounts, err := mountsOf(t, v, p, mount)
	if err != nil {
		t.Fatal(err)
	}
	has := func(want string) {
		t.Helper()
		if b, err := os.ReadFile(mounts[0].HostPath); err != nil || string(b) != want || !mounts[0].Readonly {
			t.Errorf("%q, %v", b, err)
		}
	}
	has("1")
	a.set(func() { a.maps["cm"] = map[string]string{"a": "2"} })
	if err := v.Refresh(p); err != nil {
		t.Fatal(err)
	}
	has("1")
	if mounts, err = mountsOf(t, v, p, mount); err != nil {
		t.Fatal(err)
	}
	has("2")
}

// TestNestedMounts checks that a read-only volume contains the mount point for a mount inside it.
func TestNestedMounts(t *testing.T) {
	v, a := withAPI(t)
	p := podWith(configMap("cm"), emptyDirVolume("data", ""))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/etc/app"}, {Name: "data", MountPath: "/etc/app/cache/one"},
		{Name: "data", MountPath: "/etc/application"}, {Name: "data", MountPath: "/etc/app/../x"}, {Name: "data", MountPath: "/etc/app/a"}}
	dir := setUp(t, v, p)
	for range 2 {
		if fi, err := os.Stat(filepath.Join(dir, "cache/one")); err != nil || !fi.IsDir() {
			t.Error(err)
		}
		a.set(func() { a.maps["cm"] = map[string]string{"a": "2"} })
		if err := v.Refresh(p); err != nil {
			t.Fatal(err)
		}
	}
	shows(t, dir, map[string]string{"a": "-rw-r--r-- 2", "blob": "-rw-r--r-- \x00\x01"})
}

// TestConcurrentSetUp checks that several containers of a pod can start at the same time while the pod's objects change.
func TestConcurrentSetUp(t *testing.T) {
	v, a := withAPI(t)
	p := podWith(projection(everything...))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				a.set(func() { a.token = strings.Repeat("t", i+1) })
				if err := errors.Join(v.Prepare(t.Context(), p), v.Refresh(p)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	dir := setUp(t, v, p)
	if h := hiddenIn(t, dir); len(h) != 2 || !isTmpfs(t, dir) {
		t.Error(h)
	}
}

// TestDeletedObjects checks that the files of a required object stay when the object is deleted. The files of an optional object are
// removed.
func TestDeletedObjects(t *testing.T) {
	yes := true
	for _, optional := range []*bool{nil, &yes} {
		api := &fakeAPI{maps: map[string]map[string]string{"m": {"a": "1"}}, secrets: map[string]map[string]string{"s": {"b": "2"}}}
		v, err := New(Config{Root: t.TempDir(), Objects: api, Hostname: func(*v1.Pod) (string, string) { return "h", "" }})
		if err != nil {
			t.Fatal(err)
		}
		local := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
		p := podWith(
			v1.Volume{Name: "m", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: local("m"), Optional: optional}}},
			v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s", Optional: optional}}},
			v1.Volume{Name: "p", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: local("m"), Optional: optional}},
				{Secret: &v1.SecretProjection{LocalObjectReference: local("s"), Optional: optional}},
			}}}},
		)
		if err := v.Prepare(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(v.podDir("u1"), "volumes")
		all := []string{"kubernetes.io~configmap/m/a", "kubernetes.io~secret/s/b", "kubernetes.io~projected/p/a", "kubernetes.io~projected/p/b"}
		there := func(want bool, which ...string) {
			t.Helper()
			for _, f := range which {
				for _, path := range []string{f, filepath.Join(filepath.Dir(f), dataLink, filepath.Base(f))} {
					if _, err := os.Stat(filepath.Join(dir, path)); (err == nil) != want {
						t.Errorf("optional %v: %s is there: %v", optional != nil, path, err == nil)
					}
				}
			}
		}
		there(true, all...)
		api.set(func() { api.deleted = []string{"ConfigMap/m"} })
		if err := v.Refresh(p); err != nil {
			t.Fatal(err)
		}
		there(optional == nil, all[0], all[2])
		there(true, all[1], all[3])
		api.set(func() { api.deleted = []string{"ConfigMap/m", "Secret/s"} })
		if err := v.Refresh(p); err != nil {
			t.Fatal(err)
		}
		there(optional == nil, all...)
		api.set(func() { api.deleted, api.unreachable = nil, errors.New("no route") }) // the objects exist again
		v.Refresh(p)
		api.set(func() { api.unreachable = nil })
		if err := v.Refresh(p); err != nil {
			t.Fatal(err)
		}
		there(true, all...)
		if err := v.Release(t.Context(), "u1"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestContainerTakesWhatPrepareMade checks that the start of a container writes a volume only if the volume does not exist. An existing
// volume is written only by Prepare and Refresh.
func TestContainerTakesWhatPrepareMade(t *testing.T) {
	v, a := withAPI(t)
	p := podtest.New("web", podtest.Volumes(configMap("cm", v1.KeyToPath{Key: "a", Path: "a"})))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	mount := func() *api.Mount {
		t.Helper()
		out := &api.ContainerConfig{Metadata: &api.ContainerMetadata{}}
		if err := v.Container(t.Context(), p, &p.Spec.Containers[0], out); err != nil {
			t.Fatal(err)
		}
		return out.Mounts[0]
	}
	m := mount() // the volume does not exist, as after a reboot
	if !m.Readonly || !m.SelinuxRelabel {
		t.Errorf("mounted as %v", m)
	}
	shows(t, m.HostPath, map[string]string{"a": "-rw-r--r-- 1"})
	a.set(func() { a.maps["cm"]["a"] = "2" })
	if again := mount(); again.String() != m.String() {
		t.Errorf("mounted as %v, and then as %v", m, again)
	}
	shows(t, m.HostPath, map[string]string{"a": "-rw-r--r-- 1"})
	if err := v.Prepare(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	shows(t, m.HostPath, map[string]string{"a": "-rw-r--r-- 2"})
}
