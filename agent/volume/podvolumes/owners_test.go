package podvolumes

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestEmptyDirMode checks that the directory of an emptyDir on disk or in memory has the mode in the volume's spec. The pod's fsGroup
// always has write permission. If the gate is off, the mode is the default.
func TestEmptyDirMode(t *testing.T) {
	group := int64(123)
	for _, tt := range []struct {
		gate   bool
		medium v1.StorageMedium
		mode   *int32
		group  *int64
		want   fs.FileMode
	}{
		{true, "", nil, nil, 0o777},
		{true, "", ptr(int32(0o750)), nil, 0o750},
		{true, "", ptr(int32(0)), nil, 0},
		{true, "", ptr(int32(0o1777)), nil, fs.ModeSticky | 0o777},
		{true, "", ptr(int32(0o700)), &group, fs.ModeSetgid | 0o770},
		{true, "", ptr(int32(-1)), nil, fs.ModeSticky | 0o777},
		{true, "", ptr(int32(0o6755)), nil, 0o755}, // setuid and setgid are ignored
		{true, "Memory", nil, nil, fs.ModeSticky | 0o777},
		{true, "Memory", ptr(int32(0o750)), nil, 0o750},
		{true, "Memory", ptr(int32(0o1700)), &group, fs.ModeSetgid | fs.ModeSticky | 0o770},
		{false, "", ptr(int32(0o750)), nil, 0o777},
		{false, "Memory", ptr(int32(0o750)), nil, fs.ModeSticky | 0o777},
	} {
		v, err := New(Config{Root: t.TempDir(), Hostname: func(*v1.Pod) (string, string) { return "h", "" }, Modes: tt.gate})
		requireNoError(t, err)
		vol := emptyDirVolume("data", tt.medium)
		vol.EmptyDir.Mode = tt.mode
		p := podWith(vol)
		p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: tt.group}
		for range 2 { // the next container has the same result
			requireNoError(t, v.Prepare(t.Context(), p))
			fi, err := os.Stat(filepath.Join(v.podDir("u1"), "volumes/kubernetes.io~empty-dir/data"))
			requireNoError(t, err)
			st := fi.Sys().(*syscall.Stat_t)
			if fi.Mode() != fs.ModeDir|tt.want || tt.group != nil && st.Gid != uint32(*tt.group) {
				t.Errorf("%+v: %v, group %d", tt, fi.Mode(), st.Gid)
			}
		}
		requireNoError(t, v.Release(context.Background(), "u1"))
	}
}

// owners returns the owner and the permissions of each file in a volume.
func owners(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	requireNoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasPrefix(name, "..2") || !d.Type().IsRegular() {
			return err
		}
		fi, err := d.Info()
		_, rest, _ := strings.Cut(name, "/")
		out[rest] = fmt.Sprintf("%d %o", fi.Sys().(*syscall.Stat_t).Uid, fi.Mode().Perm())
		return err
	}))
	return out
}

// TestFileOwners checks that a file belongs to the user in its own entry, or otherwise to the volume's user. A file with a token or a
// certificate is readable only for that user. If the gate is off, these users have no effect.
func TestFileOwners(t *testing.T) {
	seven, eight := ptr(int64(7)), ptr(int64(8))
	items := []v1.KeyToPath{{Key: "a", Path: "own/a", User: eight, Mode: ptr(int32(0o400))}, {Key: "b", Path: "b"}}
	fields := []v1.DownwardAPIVolumeFile{
		{Path: "own/l", User: eight, FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
		{Path: "l", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.labels"}},
	}
	signer := "s"
	cm, sec := configMap("cm", items...), secret("s")
	cm.ConfigMap.DefaultUser, sec.Secret.DefaultUser = seven, seven
	sources := []v1.VolumeProjection{
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Items: items}},
		{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}},
		{DownwardAPI: &v1.DownwardAPIProjection{Items: fields}},
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}},
		{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "own/token", User: eight}},
		{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "own/bundle", SignerName: &signer, User: eight}},
		{PodCertificate: &v1.PodCertificateProjection{KeyPath: "own/key", CertificateChainPath: "own/chain", User: eight}},
	}
	projected := func(user *int64) v1.Volume {
		return v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources, DefaultUser: user}}}
	}
	for _, tt := range []struct {
		name  string
		vol   v1.Volume
		runAs *int64 // user in the pod's security context
		want  map[string]string
		off   map[string]string // result if the gate is off
	}{
		{"ConfigMap", cm, nil, map[string]string{"own/a": "8 400", "b": "7 644"}, map[string]string{"own/a": "0 400", "b": "0 644"}},
		{"Secret", sec, nil, map[string]string{"p": "7 400"}, map[string]string{"p": "0 400"}},
		{
			"downwardAPI", v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: fields, DefaultUser: seven}}}, nil,
			map[string]string{"own/l": "8 644", "l": "7 644"}, map[string]string{"own/l": "0 644", "l": "0 644"},
		},
		{
			"projected", projected(seven), nil,
			map[string]string{"own/a": "8 400", "b": "7 644", "p": "7 644", "own/l": "8 644", "l": "7 644",
				"token": "7 600", "own/token": "8 600", "own/bundle": "8 600", "own/key": "8 600", "own/chain": "8 600"},
			map[string]string{"own/a": "0 400", "b": "0 644", "p": "0 644", "own/l": "0 644", "l": "0 644",
				"token": "0 644", "own/token": "0 644", "own/bundle": "0 644", "own/key": "0 644", "own/chain": "0 644"},
		},
		{
			"projected, the pod has one user", projected(nil), ptr(int64(9)),
			map[string]string{"own/a": "8 400", "b": "0 644", "p": "0 644", "own/l": "8 644", "l": "0 644",
				"token": "9 600", "own/token": "8 600", "own/bundle": "8 600", "own/key": "8 600", "own/chain": "8 600"},
			map[string]string{"own/a": "0 400", "b": "0 644", "p": "0 644", "own/l": "0 644", "l": "0 644",
				"token": "9 600", "own/token": "9 600", "own/bundle": "9 600", "own/key": "9 600", "own/chain": "9 600"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v, a := withAPI(t)
			p := podWith(tt.vol)
			p.Labels = map[string]string{"app": "x"}
			p.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: tt.runAs}
			check := func(want map[string]string) {
				t.Helper()
				got := owners(t, setUp(t, v, p))
				maps.DeleteFunc(got, func(name, _ string) bool { return name == "blob" })
				if !maps.Equal(got, want) {
					t.Errorf("%v, not %v", got, want)
				}
			}
			check(tt.off)
			var err error
			v, err = New(Config{Root: filepath.Dir(v.podsDir), Hostname: v.cfg.Hostname, Objects: a, Fields: a, Owners: true})
			requireNoError(t, err)
			requireNoError(t, v.Refresh(p)) // an agent without the gate wrote these files; now they get their owners
			check(tt.want)
			dir := v.volumeDir(p, &p.Spec.Volumes[0], v.kindOf(&p.Spec.Volumes[0]))
			before := hiddenIn(t, dir)
			requireNoError(t, v.Refresh(p))
			if after := hiddenIn(t, dir); !slices.Equal(after, before) {
				t.Errorf("written again without a change: %q, %q", before, after)
			}
		})
	}
}

// TestOwnerOutOfRange checks that a file is rejected if the kernel does not support the ID of its owner. An unchanged file is not written
// again, regardless of its owner.
func TestOwnerOutOfRange(t *testing.T) {
	for uid, valid := range map[int64]bool{
		0: true, 1: true, 65536: true, 1<<31 - 1: true, -1: false, -2: false, 1 << 31: false, 1<<32 - 1: false, 1<<32 + 5: false,
	} {
		dir := t.TempDir()
		f := files{"a": {data: []byte("x"), mode: 0o600, uid: int(uid)}}
		var links []string
		for range 2 {
			if err := f.write(dir, -1); (err == nil) != valid {
				t.Errorf("user %d: %v", uid, err)
			}
			if !valid {
				continue
			}
			link, err := os.Readlink(filepath.Join(dir, dataLink))
			requireNoError(t, err)
			links = append(links, link)
		}
		if len(slices.Compact(links)) > 1 {
			t.Errorf("user %d: written twice: %q", uid, links)
		}
	}
}
