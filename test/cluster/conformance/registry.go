package conformance

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/cluster"
)

// A registry is a mirror of registry.k8s.io that serves only the images of the test suites.
// https://distribution.github.io/distribution/spec/api/
type registry struct {
	blobs map[string][]byte // by digest
	tags  map[string]string // digests of manifests, by name:tag
}

func newRegistry() *registry {
	return &registry{blobs: map[string][]byte{}, tags: map[string]string{}}
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// add adds an image. Its reference must have a tag.
func (r *registry) add(t testing.TB, ref string, config []byte, layers [][]byte) {
	t.Helper()
	put := func(kind string, b []byte) map[string]any {
		r.blobs[digest(b)] = b
		return map[string]any{"mediaType": kind, "digest": digest(b), "size": len(b)}
	}
	var all []any
	for _, l := range layers {
		all = append(all, put(layerType, l))
	}
	manifest := encode(t, map[string]any{"schemaVersion": 2, "mediaType": manifestType, "config": put(configType, config), "layers": all})
	put(manifestType, manifest)
	_, name, _ := strings.Cut(ref, "/")
	r.tags[name] = digest(manifest)
}

// files returns the files from which agnhost's registry server serves this registry's image. The keys are paths below the server's folder.
// This registry must contain exactly one image.
func (r *registry) files() map[string][]byte {
	out := map[string][]byte{}
	for name, manifestDigest := range r.tags {
		name, tag, _ := strings.Cut(name, ":")
		out[name+"/manifests/"+tag] = []byte(manifestDigest + "\n")
		for digest, b := range r.blobs {
			kind := "blobs"
			if digest == manifestDigest {
				kind = "manifests"
			}
			hash := strings.TrimPrefix(digest, "sha256:")
			out[fmt.Sprintf("%s/%s/sha256/%s/%s/data", name, kind, hash[:2], hash)] = b
		}
	}
	return out
}

// ServeHTTP serves /v2/, /v2/NAME/manifests/TAG or DIGEST, and /v2/NAME/blobs/DIGEST.
func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	path, wanted := strings.TrimPrefix(q.URL.Path, "/v2/"), ""
	if name, tag, ok := strings.Cut(path, "/manifests/"); ok {
		w.Header().Set("Content-Type", manifestType)
		if wanted = r.tags[name+":"+tag]; wanted == "" {
			wanted = tag
		}
	} else if _, digest, ok := strings.Cut(path, "/blobs/"); ok {
		w.Header().Set("Content-Type", "application/octet-stream")
		wanted = digest
	}
	b, ok := r.blobs[wanted]
	if !ok && path != "" {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Docker-Content-Digest", wanted)
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	if q.Method != http.MethodHead {
		w.Write(b)
	}
}

// serve starts the registry on the control plane's host until the test ends, and returns its
// address.
func (r *registry) serve(t testing.TB, c *cluster.Cluster) string {
	t.Helper()
	l := c.Listen(t)
	srv, done := &http.Server{Handler: r}, make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// prepareNode prepares a machine before its agent starts. It installs the suites' images, configures the registry as the mirror of
// registry.k8s.io, and adds the runtime handler test-handler, which the RuntimeClass specs use. The machine has no internet access, so
// prepareNode also configures a name server that refuses every query at once. It appends the text edge to the EdgeConfiguration.
func prepareNode(t testing.TB, n *cluster.Node, images, registry, edge string) {
	t.Helper()
	must(t, os.Link(images, filepath.Join(n.Disk, "state/images/suite.tar")))
	n.Run("mkdir", "-p", n.Disk+"/certs.d/registry.k8s.io")
	n.Write("certs.d/registry.k8s.io/hosts.toml", fmt.Sprintf("server = \"http://%[1]s\"\n[host.\"http://%[1]s\"]\ncapabilities "+
		"= [\"pull\", \"resolve\"]\n", registry))
	n.Write("resolv.conf", "nameserver 127.0.0.1\n")
	n.Run("mount", "--bind", n.Disk+"/resolv.conf", "/etc/resolv.conf")
	n.Write("edge.yaml", fmt.Sprintf("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\ncniConfDir: "+
		"%[1]s/cni\nregistryConfigDir: %[1]s/certs.d\nruntimeHandlers: [{name: test-handler, ociRuntime: %[2]s}]\n%[3]s", n.Disk,
		ociRuntime(t), edge))
}

// ociRuntime returns the name of an installed OCI runtime. It prefers runc, because crun does not work if both cgroup versions are mounted.
func ociRuntime(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"runc", "crun"} {
		if _, err := exec.LookPath(name); err == nil {
			return name
		}
	}
	t.Fatal("neither runc nor crun is installed")
	return ""
}
