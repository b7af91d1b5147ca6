package bundletest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/internal/bundle/sealed"
	"github.com/islet-edge/islet/internal/release"
)

// Version is the version of islet in the bundle of FullSource.
const Version = "0.1.0"

// configurations are the files of a bundle that configure the node.
const (
	kubeletText = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailSwapOn: false\nmaxPods: 17\n"
	edgeText    = "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nshimPods: 3\n"
)

// claim is the manifest of a claim that the pod of FullSource uses.
const claim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// Identity returns the key of the only node that can open the Secret of FullSource.
func Identity(t testing.TB) *sealed.Identity {
	t.Helper()
	id, err := sealed.NewIdentity(bytes.Repeat([]byte{1}, sealed.IdentitySize))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// SealedSecret returns the manifest of the Secret default/wifi. Only the node with Identity can open it.
func SealedSecret(t testing.TB) []byte {
	t.Helper()
	to, err := sealed.Recipients(Identity(t).Recipient())
	if err != nil {
		t.Fatal(err)
	}
	text, err := sealed.Seal([]sealed.Secret{{Namespace: "default", Name: "wifi", Type: "Opaque", Keys: []string{"password"},
		JSON: []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"wifi","namespace":"default"},"type":"Opaque",` +
			`"data":{"password":"aG9yc2U="}}`)}}, to)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// ProgramKey returns the key that has signed the release of FullSource.
func ProgramKey() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed([]byte(strings.Repeat("p", ed25519.SeedSize)))
}

// FullSource writes a source directory with a file of each kind: the pod of Pod, which also uses a sealed Secret and a claim; both
// configurations; and an archive of islet with its release. The architecture of the archive is GOARCH.
func FullSource(t testing.TB, dir, arch string) {
	t.Helper()
	Source(t, dir)
	pod := strings.Replace(Pod, "spec:\n", "spec:\n  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]\n", 1)
	pod = strings.Replace(pod, `"localhost/db:1"}`,
		`"localhost/db:1", envFrom: [{secretRef: {name: wifi}}], volumeMounts: [{name: data, mountPath: /data}]}`, 1)
	archive := programArchive(t)
	r, err := release.Describe(Version, arch, bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "manifests/web.yaml")); err != nil {
		t.Fatal(err)
	}
	Write(t, dir, File{"manifests/web.yaml", []byte(pod)}, File{"manifests/data.yaml", []byte(claim)},
		File{"manifests/wifi.sealed.yaml", SealedSecret(t)}, File{"kubelet.yaml", []byte(kubeletText)}, File{"edge.yaml", []byte(edgeText)},
		File{"islet/islet.tar.gz", archive}, File{"islet/islet.tar.gz.release", r.Sign(ProgramKey())})
}

// programArchive returns an archive with a file that is not a program.
func programArchive(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	text := []byte("no program")
	err := w.WriteHeader(&tar.Header{Name: "islet-" + Version + "/islet", Size: int64(len(text)), Mode: 0o755, Typeflag: tar.TypeReg})
	if err == nil {
		_, err = w.Write(text)
	}
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
