package bundle

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/islet-edge/islet/edge/desired"
	"github.com/islet-edge/islet/edge/local"
	format "github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/podspec"
)

const claimPod = `apiVersion: v1
kind: Pod
metadata: {name: log}
spec:
  containers: [{name: a, image: "localhost/db:1", volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`

const dataClaim = `---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
`

// withClaim adds a pod with a claim to a source directory.
func withClaim(dir string) {
	if err := os.WriteFile(filepath.Join(dir, "manifests", "log.yaml"), []byte(claimPod+dataClaim), 0o600); err != nil {
		panic(err)
	}
}

// foreignObjects are objects of other sources.
type foreignObjects []local.Info

func (f foreignObjects) List() []local.Info { return f }

// TestClaims checks that the node has the claim of a bundle until another bundle is in force. A bundle without a claim that its pod needs,
// or with a claim of another source, is refused.
func TestClaims(t *testing.T) {
	w := newWorld(t)
	n := w.boot(nil)
	claims := func() (names []string) {
		(&loop{Node: n}).round(t.Context())
		for _, o := range w.objects {
			if c, is := o.Object.(*v1.PersistentVolumeClaim); is {
				names = append(names, c.Namespace+"/"+c.Name+" of "+o.Origin)
			}
		}
		return names
	}
	a, err := format.Assemble(&format.Contents{Name: "kiosk", Number: 1}, []format.Part{
		format.NewFile("log.yaml", format.MediaManifest, []byte(claimPod))}, nil)
	w.must(err)
	const missing = "image localhost/db:1 is missing; PersistentVolumeClaim default/data, which pod default/log needs, is missing: build it again"
	if _, err := apply(n, w.sign(a), false); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("a bundle without the claim: %v", err)
	}
	one := w.bundle(1, withClaim)
	n.c.Objects = foreignObjects{{Key: local.Key{Source: desired.File, Kind: podspec.Claim, Namespace: "default", Name: "data"},
		Origin: "/etc/data.yaml"}}
	const twice = "PersistentVolumeClaim default/data is in log.yaml of bundle kiosk, and is already defined by /etc/data.yaml"
	if _, err := apply(n, one, false); err == nil || !strings.Contains(err.Error(), twice) {
		t.Errorf("a claim of another source: %v", err)
	}
	if len(w.folders())+len(w.imported) > 0 {
		t.Errorf("something was written: %v, %v", w.folders(), w.imported)
	}
	n.c.Objects = noObjects{}
	_, err = apply(n, one, false)
	w.must(err)
	keep(n)
	want := []string{"default/data of log.yaml of bundle kiosk"}
	if got := claims(); !slices.Equal(got, want) {
		t.Errorf("claims %q, want %q", got, want)
	}
	_, err = apply(n, w.bundle(2, nil), false)
	w.must(err)
	if got := claims(); len(got) > 0 {
		t.Errorf("claims %q of a bundle that is not in force", got)
	}
	_, err = n.Revert(t.Context())
	w.must(err)
	if got := claims(); !slices.Equal(got, want) {
		t.Errorf("after a revert: claims %q, want %q", got, want)
	}
}
