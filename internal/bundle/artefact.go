package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/islet-edge/islet/internal/sorting"
)

// A Part is a blob with its bytes.
type Part struct {
	ocispec.Descriptor
	Open func() (io.ReadCloser, error)
}

// NewPart returns a part for a document.
func NewPart(mediaType string, data []byte) Part {
	return Part{
		ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(data), Size: int64(len(data))},
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
	}
}

// NewFile returns a part for a file of a bundle.
func NewFile(name, mediaType string, data []byte) Part {
	p := NewPart(mediaType, data)
	p.Annotations = map[string]string{ocispec.AnnotationTitle: name}
	return p
}

// BlobPart returns a part for a blob of a layout.
func BlobPart(l Layout, desc ocispec.Descriptor) Part {
	return Part{desc, func() (io.ReadCloser, error) { return openBlob(l, desc) }}
}

// An Artefact is a bundle that is written.
type Artefact struct {
	Contents *Contents
	ID       digest.Digest
	// Progress is called during WriteTar and WriteDir with the number of bytes of blobs that are written, and the total number. If Progress
	// returns an error, the write ends with this error. It may be nil.
	Progress func(done, total int64) error

	manifest  Part
	signature []Part // none, or manifest, empty config, text
	rest      []Part // in the order of Bundle.Blobs
}

// Assemble returns a bundle without signatures. It sorts the files by name and sets c.Size. The blobs are the images' blobs, in the order
// of Bundle.Blobs; a blob may be there several times. A bundle that no reader would accept because of its limits is an error.
func Assemble(c *Contents, files, blobs []Part) (*Artefact, error) {
	sorting.By(files, func(a, b Part) int {
		return bytes.Compare([]byte(a.Annotations[ocispec.AnnotationTitle]), []byte(b.Annotations[ocispec.AnnotationTitle]))
	})
	var layers []ocispec.Descriptor
	for _, f := range files {
		layers = append(layers, f.Descriptor)
	}
	if _, err := readFiles(layers); err != nil {
		return nil, err
	}
	if err := checkLayers(blobs); err != nil {
		return nil, err
	}
	config, err := fixSize(c, files, blobs)
	if err != nil {
		return nil, err
	}
	a := &Artefact{Contents: c, rest: unique(slices.Concat([]Part{config}, files, blobs))}
	if len(a.rest) > MaxBlobs {
		return nil, fmt.Errorf("more than %d blobs", MaxBlobs)
	}
	text, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: ArtifactContents,
		Config: config.Descriptor, Layers: layers,
	})
	if err == nil {
		err = checkDocument("the contents manifest", text, &ocispec.Manifest{})
	}
	if err != nil {
		return nil, err
	}
	a.manifest = NewPart(ocispec.MediaTypeImageManifest, text)
	a.ID = a.manifest.Digest
	return a, nil
}

// fixSize sets the size of the contents, which includes the size of contents.json itself, and returns contents.json.
func fixSize(c *Contents, files, blobs []Part) (Part, error) {
	others := int64(0)
	for _, p := range unique(slices.Concat(files, blobs)) {
		others += p.Size
	}
	c.Size = others
	for {
		text, err := c.Encode()
		if err != nil {
			return Part{}, err
		}
		if size := others + int64(len(text)); size == c.Size {
			if err := checkDocument("contents.json", text, &Contents{}); err != nil {
				return Part{}, err
			}
			return NewPart(MediaContents, text), c.Validate()
		} else {
			c.Size = size // a larger number may have more digits, so this ends after a few rounds
		}
	}
}

// checkDocument returns an error if a document that is written is beyond the limits of a reader.
func checkDocument(name string, text []byte, into any) error {
	if len(text) > MaxDocument {
		return fmt.Errorf("%s has %d bytes, and at most %d are allowed", name, len(text), MaxDocument)
	}
	if err := decodeExactly(text, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// checkLayers returns an error if the images have more layers than a reader allows.
func checkLayers(blobs []Part) error {
	count := 0
	for _, p := range blobs {
		if isLayer(p.MediaType) {
			count++
		}
	}
	if count > maxAllLayers {
		return fmt.Errorf("the images have more than %d layers", maxAllLayers)
	}
	return nil
}

// unique returns the parts without those whose digest was there before.
func unique(parts []Part) (out []Part) {
	seen := map[digest.Digest]bool{}
	for _, p := range parts {
		if !seen[p.Digest] {
			seen[p.Digest] = true
			out = append(out, p)
		}
	}
	return out
}

// Artefact returns the bundle, with its signatures, as one that can be written again.
func (b *Bundle) Artefact(ctx context.Context) (*Artefact, error) {
	blobs, err := b.Blobs(ctx)
	if err != nil {
		return nil, err
	}
	a := &Artefact{Contents: b.Contents, ID: b.ID, manifest: BlobPart(b.layout, strip(b.manifest))}
	for _, d := range blobs {
		a.rest = append(a.rest, BlobPart(b.layout, d))
	}
	if b.Signature != nil {
		return a, a.SetSignature(b.Signature)
	}
	return a, nil
}

// SetSignature replaces the signatures.
func (a *Artefact) SetSignature(s *Signature) error {
	if s.id != a.ID {
		return fmt.Errorf("the signatures are for %s, the contents are %s", s.id, a.ID)
	}
	text := NewPart(MediaSignature, s.Text.Bytes())
	if text.Size > maxSmall {
		return fmt.Errorf("the signatures have %d bytes, and at most %d are allowed", text.Size, maxSmall)
	}
	empty := NewPart(ocispec.MediaTypeEmptyJSON, []byte("{}"))
	subject := strip(a.manifest.Descriptor)
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: ArtifactSignature,
		Config: empty.Descriptor, Layers: []ocispec.Descriptor{text.Descriptor}, Subject: &subject,
	})
	if err != nil {
		return err
	}
	part := NewPart(ocispec.MediaTypeImageManifest, manifest)
	a.signature = []Part{part, empty, text}
	return nil
}

// annotate returns the descriptor of a part of the bundle for the root.
func annotate(d ocispec.Descriptor, artifact string) ocispec.Descriptor {
	d = strip(d)
	d.Annotations = map[string]string{AnnotationPart: artifact}
	return d
}

// layout returns index.json and all blobs, in the order in which they are written.
func (a *Artefact) layout() (index []byte, parts []Part, err error) {
	root := ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		Manifests:   []ocispec.Descriptor{annotate(a.manifest.Descriptor, ArtifactContents)},
		Annotations: map[string]string{AnnotationVersion: rootVersion},
	}
	if len(a.signature) > 0 {
		root.Manifests = append(root.Manifests, annotate(a.signature[0].Descriptor, ArtifactSignature))
	}
	seen := map[digest.Digest]bool{}
	for _, img := range a.Contents.Images {
		for _, m := range img.Manifests {
			if seen[m.Digest] {
				continue
			}
			seen[m.Digest] = true
			p, err := ParsePlatform(m.Platform)
			if err != nil {
				return nil, nil, err
			}
			root.Manifests = append(root.Manifests,
				ocispec.Descriptor{MediaType: m.MediaType, Digest: m.Digest, Size: m.Size, Platform: p})
		}
	}
	text, err := json.Marshal(root)
	if err == nil {
		err = checkDocument("the root", text, &ocispec.Index{})
	}
	if err != nil {
		return nil, nil, err
	}
	part := NewPart(ocispec.MediaTypeImageIndex, text)
	index, err = json.Marshal(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{part.Descriptor},
	})
	return index, unique(slices.Concat([]Part{part}, a.signature, []Part{a.manifest}, a.rest)), err
}
