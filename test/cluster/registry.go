package cluster

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

// A Registry serves the test image to clients that send the user and the password.
type Registry struct {
	Addr     string // host and port; the cluster's CA has signed its certificate
	Image    string // the reference of the image
	User     string
	Password string
}

// Registry starts a registry that runs until the test ends.
// https://distribution.github.io/distribution/spec/api/
func (c *Cluster) Registry(t testing.TB) *Registry {
	t.Helper()
	l := c.Listen(t)
	r := &Registry{Addr: l.Addr().String(), User: "tester", Password: "open sesame"}
	r.Image = r.Addr + "/private/podtool:v1"
	blobs := r.readBlobs(t)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if user, password, _ := q.BasicAuth(); user != r.User || password != r.Password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		name := q.URL.Path[strings.LastIndex(q.URL.Path, "/")+1:]
		b, ok := blobs[name]
		if !ok && q.URL.Path != "/v2/" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Docker-Content-Digest", digest(b))
		if strings.Contains(q.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", manifestType)
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		if q.Method != http.MethodHead {
			w.Write(b)
		}
	})}
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(l, c.path("pki/apiserver.crt"), c.path("pki/apiserver.key")) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return r
}

// Listen listens on a port of the control plane's host, to which all machines can connect.
func (c *Cluster) Listen(t testing.TB) (l net.Listener) {
	t.Helper()
	c.mu.Lock()
	c.ports++
	addr := fmt.Sprintf("%s:%d", gateway, 7000+c.ports)
	c.mu.Unlock()
	err := machine.InNetwork(c.host.Pid(), func() (err error) { l, err = net.Listen("tcp", addr); return err })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const manifestType = "application/vnd.oci.image.manifest.v1+json"

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// readBlobs returns the config, layers and manifest of the test image by digest. It also returns
// the manifest by its tag.
func (r *Registry) readBlobs(t testing.TB) map[string][]byte {
	t.Helper()
	f, err := os.Open(machine.Archive(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	files := map[string][]byte{}
	for in := tar.NewReader(f); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
	var images []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(files["manifest.json"], &images); err != nil || len(images) != 1 {
		t.Fatalf("the archive's manifest: %v, %v", images, err)
	}
	blobs := map[string][]byte{}
	add := func(kind string, b []byte) map[string]any {
		blobs[digest(b)] = b
		return map[string]any{"mediaType": kind, "digest": digest(b), "size": len(b)}
	}
	var layers []any
	for _, l := range images[0].Layers {
		layers = append(layers, add("application/vnd.oci.image.layer.v1.tar+gzip", files[l]))
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "layers": layers,
		"config": add("application/vnd.oci.image.config.v1+json", files[images[0].Config]),
	})
	if err != nil {
		t.Fatal(err)
	}
	add(manifestType, manifest)
	blobs["v1"] = manifest
	return blobs
}

// HostsFile returns a hosts.toml with which a machine trusts the registry's certificate.
func (r *Registry) HostsFile(ca string) string {
	return fmt.Sprintf("server = \"https://%[1]s\"\n[host.\"https://%[1]s\"]\ncapabilities = [\"pull\", \"resolve\"]\nca = %[2]q\n",
		r.Addr, ca)
}
