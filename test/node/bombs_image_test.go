package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/islet-edge/islet/test/machine"
)

const (
	ociIndex    = "application/vnd.oci.image.index.v1+json"
	ociManifest = "application/vnd.oci.image.manifest.v1+json"
	ociConfig   = "application/vnd.oci.image.config.v1+json"
	ociLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// A depot is a registry that stores the documents and layers of images by digest.
type depot struct {
	blobs map[string][]byte
	kinds map[string]string // media types
	tags  map[string]string // digests by image name
	asked sync.Map          // names of the images that a client has requested
}

// put stores a blob and returns its descriptor.
func (d *depot) put(kind string, body []byte) string {
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(body))
	d.blobs[digest], d.kinds[digest] = body, kind
	return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d}`, kind, digest, len(body))
}

// tag stores a document and makes it the content of an image name.
func (d *depot) tag(name, kind, body string) {
	d.put(kind, []byte(body))
	d.tags[name] = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(body)))
}

// image stores an image with one layer and returns its manifest. The first argument contains additional fields of the image's
// configuration.
func (d *depot) image(more string, layer []byte) string {
	config := d.put(ociConfig,
		fmt.Appendf(nil, `{"architecture":%q,"os":"linux","rootfs":{"type":"layers","diff_ids":["sha256:%x"]}%s}`, runtime.GOARCH,
			sha256.Sum256(layer), more))
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]}`, ociManifest, config, d.put(ociLayer, layer))
}

func ociIndexOf(manifests string) string {
	return fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[%s]}`, ociIndex, manifests)
}

// packed returns the output of write, compressed with gzip.
func packed(t *testing.T, write func(w io.Writer) error) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err == nil {
		err = write(z)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// longNames returns an archive whose entries have names of one megabyte. The entries are copies of one entry, with another number at the
// beginning of the name. The name is in the data of a PAX header, which has no checksum.
func longNames(t *testing.T) []byte {
	t.Helper()
	const number = "000"
	var one bytes.Buffer
	header := &tar.Header{Name: number + "/" + strings.Repeat(strings.Repeat("x", 200)+"/", 4990) + "x", Typeflag: tar.TypeReg, Mode: 0o644,
		Format: tar.FormatPAX}
	if err := tar.NewWriter(&one).WriteHeader(header); err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(one.Bytes(), []byte("path="+number)) + len("path=")
	return packed(t, func(w io.Writer) error {
		for i := range 300 {
			copy(one.Bytes()[at:], fmt.Sprintf("%03d", i))
			if _, err := w.Write(one.Bytes()); err != nil {
				return err
			}
		}
		return tar.NewWriter(w).Close()
	})
}

// zeros returns 256 MiB of zeros, compressed. To a reader it is an empty archive with a long padding.
func zeros(t *testing.T) []byte {
	return packed(t, func(w io.Writer) error {
		for range 256 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
		return nil
	})
}

// imageBombs returns a registry with images that are small to download and large in memory. The last argument is the layer with long names.
// In the short form the registry has only two of the images.
func imageBombs(t *testing.T, short bool, names []byte) *depot {
	t.Helper()
	d := &depot{blobs: map[string][]byte{}, kinds: map[string]string{}, tags: map[string]string{}}
	small := packed(t, func(w io.Writer) error { return tar.NewWriter(w).Close() })
	d.tag("config", ociManifest, d.image(`,"history":[`+strings.Repeat("{},", 2_700_000)+"{}]", small))
	d.tag("names", ociManifest, d.image("", names))
	if short {
		return d
	}
	d.tag("wide", ociIndex, ociIndexOf(strings.Repeat("{},", 2_700_000)+"{}"))
	var nested []string
	for i := range 40 {
		child := fmt.Sprintf(`{"n":%d,`, i) + strings.TrimPrefix(ociIndexOf(strings.Repeat("{},", 300_000)+"{}"), "{")
		nested = append(nested, d.put(ociIndex, []byte(child)))
	}
	d.tag("nested", ociIndex, ociIndexOf(strings.Join(nested, ",")))
	d.tag("deep", ociIndex, strings.Repeat(`{"manifests":[`, 500_000))
	d.tag("name", ociManifest, `{"`+strings.Repeat("x", 7<<20)+`":0}`)
	d.tag("layers", ociManifest, fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":{},"layers":[%s{}]}`, ociManifest,
		strings.Repeat("{},", 1_300_000)))
	d.tag("annotations", ociManifest, `{"schemaVersion":2,"annotations":{`+strings.Repeat(`"":"",`, 600_000)+`"":""}}`)
	d.tag("history", ociManifest, d.image(`,"history":[`+strings.Repeat("{},", 300_000)+"{}]", small))
	var labels strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&labels, `"%x":"",`, i)
	}
	d.tag("labels", ociManifest, d.image(`,"config":{"Labels":{`+labels.String()+`"z":""}}`, small))
	d.tag("zeros", ociManifest, d.image("", zeros(t)))
	return d
}

// ServeHTTP implements a registry that compresses documents. Some images have endless headers or endless documents.
func (d *depot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.Split(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")[0]
	d.asked.Store(name, true)
	digest := path.Base(r.URL.Path)
	if tagged := d.tags[name]; digest == "1" && tagged != "" {
		digest = tagged
	}
	body, known := d.blobs[digest]
	switch {
	case r.URL.Path == "/v2/":
	case name == "headers":
		c, out, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = out.WriteString("HTTP/1.1 200 OK\r\n" + strings.Repeat("a:\r\n", 2<<20) + "\r\n")
		_ = out.Flush()
	case name == "endless":
		w.Header().Set("Content-Type", ociManifest)
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		for block := bytes.Repeat([]byte("{"), 64<<10); ; {
			if _, err := z.Write(block); err != nil {
				return
			}
		}
	case !known:
		http.NotFound(w, r)
	default:
		w.Header().Set("Content-Type", d.kinds[digest])
		w.Header().Set("Docker-Content-Digest", digest)
		if r.Method == http.MethodHead {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		} else if d.kinds[digest] != ociLayer && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(body)
			_ = z.Close()
		} else {
			_, _ = w.Write(body)
		}
	}
}

// archive returns an image as an OCI layout with all blobs to which the image refers.
func (d *depot) archive(t *testing.T, name string) []byte {
	return packed(t, func(w io.Writer) error {
		out := tar.NewWriter(w)
		add := func(name string, body []byte) error {
			if err := out.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(body))}); err != nil {
				return err
			}
			_, err := out.Write(body)
			return err
		}
		top := d.tags[name]
		err := add("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
		index := d.blobs[top]
		if err == nil && name == "wide" {
			err = add("index.json", index)
		} else if err == nil {
			err = add("index.json",
				[]byte(ociIndexOf(fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d,"annotations":{"io.containerd.image.name":"localhost/%s:1"}}`,
					d.kinds[top], top, len(index), name))))
		}
		seen := map[string]bool{}
		for rest := []string{top}; err == nil && len(rest) > 0; rest = rest[1:] {
			body := d.blobs[rest[0]]
			if seen[rest[0]] {
				continue
			}
			seen[rest[0]] = true
			err = add("blobs/sha256/"+strings.TrimPrefix(rest[0], "sha256:"), body)
			for digest := range d.blobs {
				if bytes.Contains(body[:min(len(body), 1<<16)], []byte(digest)) {
					rest = append(rest, digest)
				}
			}
		}
		if err != nil {
			return err
		}
		return out.Close()
	})
}

// TestImageBombs checks that the agent survives images that are large in memory. It pulls three images at once and imports one from an
// archive. With ISLET_TEST_LONG it pulls and imports all images. The agent's memory limit is 96 MiB above its own usage.
func TestImageBombs(t *testing.T) {
	t.Parallel()
	short, long := os.Getenv("ISLET_TEST_LONG") == "", longNames(t)
	d := imageBombs(t, short, long)
	b := newBombed(t, "")
	serveInside(t, b.Machine, "127.0.0.1:5000", func(ln net.Listener) error { return http.Serve(ln, d) })
	names := []string{"headers", "config", "names"}
	if !short {
		names = slices.AppendSeq([]string{"headers", "endless"}, maps.Keys(d.tags))
	}
	for _, name := range names {
		text := strings.Replace(manifest(name, "", "sleep"), machine.Image, "127.0.0.1:5000/"+name+":1", 1)
		b.Write("manifests/"+name+".yaml", strings.Replace(text, "Never", "Always", 1))
	}
	for _, name := range names {
		b.Await("the image "+name+" to be tried", func() bool {
			b.checkAlive("the image " + name)
			out, _ := b.Try("describe", name+"-edge")
			for _, reason := range []string{"ErrImagePull", "ImagePullBackOff", "CreateContainerError", "CreateContainerConfigError", "RunContainerError", "CrashLoopBackOff", "StartError"} {
				if strings.Contains(out, reason) {
					return true
				}
			}
			return false
		})
		b.Remove("manifests/" + name + ".yaml")
		if _, asked := d.asked.Load(name); !asked {
			t.Errorf("the image %s was not pulled", name)
		}
	}
	archives := map[string][]byte{"longnames": long}
	if !short {
		archives["zeros"] = zeros(t)
		for name := range d.tags {
			if _, raw := archives[name]; !raw {
				archives[name] = d.archive(t, name)
			}
		}
	}
	for name, data := range archives {
		file := "bomb-" + name + ".tar.gz"
		b.Write("state/images/"+file, string(data))
		b.Await("the archive "+file+" to be read", func() bool {
			b.checkAlive("the archive " + file)
			return strings.Contains(b.AgentLog(1<<20), file)
		})
		b.Remove("state/images/" + file)
	}
	b.well()
}
