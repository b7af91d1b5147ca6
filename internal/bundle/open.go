package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A Bundle is a bundle whose contents manifest and contents are read. Its files, images and layers are not read yet.
type Bundle struct {
	Contents  *Contents
	ID        digest.Digest // of the contents manifest; it does not depend on the signatures
	Files     []File        // as in the contents manifest
	Signature *Signature    // nil: nobody has signed it

	layout   Layout
	manifest ocispec.Descriptor
	config   ocispec.Descriptor
}

// A File is a file of a bundle.
type File struct {
	Name string
	ocispec.Descriptor
}

// Open reads a bundle up to its contents. With a policy, it verifies the signatures before it reads the contents. If policy is nil, anyone
// may have written the bundle. The caller keeps the layout open while it uses the bundle, and closes it.
func Open(l Layout, policy *Policy) (*Bundle, error) {
	root, err := readRoot(l)
	if err != nil {
		return nil, err
	}
	b := &Bundle{layout: l}
	if b.manifest, err = root.one(ArtifactContents); err != nil {
		return nil, err
	}
	b.ID = b.manifest.Digest
	if err := b.readSignature(root); err != nil {
		return nil, fmt.Errorf("signatures: %w", err)
	}
	if err := policy.verify(b.Signature); err != nil {
		return nil, err
	}
	if err := b.readContents(); err != nil {
		return nil, fmt.Errorf("contents: %w", err)
	}
	if b.Signature != nil {
		return b, b.Signature.covers(b.Contents)
	}
	return b, nil
}

// rootIndex is the root of a bundle. Nothing in it is trusted.
type rootIndex ocispec.Index

func readRoot(l Layout) (*rootIndex, error) {
	version, err := readFile(l, ocispec.ImageLayoutFile, maxSmall)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("it is not a bundle: it has no file %s: islet bundle build makes bundles of source directories",
			ocispec.ImageLayoutFile)
	}
	if err != nil {
		return nil, fmt.Errorf("it is not a bundle: %w", err)
	}
	var layout ocispec.ImageLayout
	if err := decode(version, &layout); err != nil || layout.Version != ocispec.ImageLayoutVersion {
		return nil, fmt.Errorf("it is not a bundle: it has no OCI layout of version %s", ocispec.ImageLayoutVersion)
	}
	text, err := readFile(l, ocispec.ImageIndexFile, maxSmall)
	if err != nil {
		return nil, err
	}
	var index ocispec.Index
	if err := decode(text, &index); err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	if len(index.Manifests) != 1 || index.Manifests[0].MediaType != ocispec.MediaTypeImageIndex {
		return nil, fmt.Errorf("it is not a bundle: index.json has %d entries instead of one index", len(index.Manifests))
	}
	if text, err = ReadBlob(l, index.Manifests[0], MaxDocument); err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	var root rootIndex
	if err := decode(text, &root); err != nil {
		return nil, fmt.Errorf("root: %w", err)
	}
	if v := root.Annotations[AnnotationVersion]; v != rootVersion {
		return nil, fmt.Errorf("it is not a bundle of version %s: its annotation %s is %.100q", rootVersion, AnnotationVersion, v)
	}
	return &root, nil
}

// all returns the manifests with an artifact type.
func (r *rootIndex) all(artifact string) (out []ocispec.Descriptor) {
	for _, d := range r.Manifests {
		if d.Annotations[AnnotationPart] == artifact && d.MediaType == ocispec.MediaTypeImageManifest {
			out = append(out, d)
		}
	}
	return out
}

func (r *rootIndex) one(artifact string) (ocispec.Descriptor, error) {
	all := r.all(artifact)
	if len(all) != 1 {
		return ocispec.Descriptor{}, fmt.Errorf("the root has %d manifests of type %s instead of one", len(all), artifact)
	}
	return all[0], nil
}

// readManifest reads a manifest that islet has written.
func readManifest(l Layout, desc ocispec.Descriptor, artifact string) (*ocispec.Manifest, error) {
	text, err := ReadBlob(l, desc, MaxDocument)
	if err != nil {
		return nil, err
	}
	return parseManifest(text, artifact)
}

func parseManifest(text []byte, artifact string) (*ocispec.Manifest, error) {
	m := &ocispec.Manifest{}
	if err := decodeExactly(text, m); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	if m.SchemaVersion != 2 || m.MediaType != ocispec.MediaTypeImageManifest || m.ArtifactType != artifact {
		return nil, fmt.Errorf("the manifest is not one of type %s", artifact)
	}
	return m, nil
}

func (b *Bundle) readSignature(root *rootIndex) error {
	if len(root.all(ArtifactSignature)) == 0 {
		return nil
	}
	desc, err := root.one(ArtifactSignature)
	if err != nil {
		return err
	}
	m, err := readManifest(b.layout, desc, ArtifactSignature)
	if err != nil {
		return err
	}
	if len(m.Layers) != 1 || m.Layers[0].MediaType != MediaSignature {
		return errors.New("the manifest has not exactly one text")
	}
	text, err := ReadBlob(b.layout, m.Layers[0], maxSmall)
	if err != nil {
		return err
	}
	if b.Signature, err = parseSignature(text); err != nil {
		return err
	}
	if b.Signature.id != b.ID {
		return fmt.Errorf("they are for the contents %s, the bundle has %s", b.Signature.id, b.ID)
	}
	return nil
}

func (b *Bundle) readContents() error {
	m, err := readManifest(b.layout, b.manifest, ArtifactContents)
	if err != nil {
		return err
	}
	b.config = m.Config
	if m.Config.MediaType != MediaContents {
		return fmt.Errorf("the config is not of type %s", MediaContents)
	}
	text, err := ReadBlob(b.layout, m.Config, MaxDocument)
	if err != nil {
		return err
	}
	if b.Contents, err = decodeContents(text); err != nil {
		return fmt.Errorf("contents.json: %w", err)
	}
	b.Files, err = readFiles(m.Layers)
	return err
}

// readFiles returns the files of a contents manifest.
func readFiles(layers []ocispec.Descriptor) ([]File, error) {
	if len(layers) == 0 || len(layers) > MaxFiles {
		return nil, fmt.Errorf("%d files, and from 1 to %d are allowed", len(layers), MaxFiles)
	}
	var files []File
	seen, total := map[string]string{}, int64(0) // names by their lower case
	for _, d := range layers {
		f := File{d.Annotations[ocispec.AnnotationTitle], d}
		if err := checkFileName(f.Name, d.MediaType); err != nil {
			return nil, err
		}
		switch other := seen[strings.ToLower(f.Name)]; other {
		case "":
			seen[strings.ToLower(f.Name)] = f.Name
		case f.Name:
			return nil, fmt.Errorf("the file %s is there twice", f.Name)
		default:
			return nil, fmt.Errorf("the names of the files %s and %s differ only in case: rename one", other, f.Name)
		}
		if err := checkDescriptor(d.Digest, d.Size, maxOf(d.MediaType)); err != nil {
			return nil, fmt.Errorf("file %s: %w", f.Name, err)
		}
		if d.MediaType != MediaProgram {
			total += d.Size
		}
		files = append(files, f)
	}
	if total > maxFileBytes {
		return nil, fmt.Errorf("the files have %d bytes, and at most %d are allowed", total, maxFileBytes)
	}
	return files, nil
}

// checkFileName returns an error unless a file of a media type may have a name.
func checkFileName(name, mediaType string) error {
	var suffixes []string
	switch mediaType {
	case MediaManifest:
		suffixes = []string{".yaml", ".yml", ".json"}
	case MediaSealed:
		suffixes = []string{SealedSuffix}
	case MediaKubelet:
		suffixes = []string{KubeletFile}
	case MediaEdge:
		suffixes = []string{EdgeFile}
	case MediaProgram:
		suffixes = []string{".tar.gz"}
	case MediaRelease:
		suffixes = []string{".tar.gz.release"}
	default:
		return fmt.Errorf("the file %.100q has the unknown type %.100q", name, mediaType)
	}
	if !fileForm.matches(name) || path.Base(name) != name {
		return fmt.Errorf("%.200q is not a file name: 1 to 100 letters, digits, dots, dashes and underscores, which begin with a "+
			"letter or digit", name)
	}
	for _, s := range suffixes {
		whole := mediaType == MediaKubelet || mediaType == MediaEdge
		if whole && name == s || !whole && strings.HasSuffix(name, s) && len(name) > len(s) {
			return nil
		}
	}
	return fmt.Errorf("the file %s does not end with %s", name, strings.Join(suffixes, ", "))
}

// Names of files with a meaning.
const (
	SealedSuffix = ".sealed.yaml"
	KubeletFile  = "kubelet.yaml"
	EdgeFile     = "edge.yaml"
)

// ReadFile reads a file of the bundle.
func (b *Bundle) ReadFile(f File) ([]byte, error) {
	data, err := ReadBlob(b.layout, f.Descriptor, maxOf(f.MediaType))
	if err != nil {
		return nil, fmt.Errorf("file %s: %w", f.Name, err)
	}
	return data, nil
}

// ReadManifest reads the contents manifest, for ParseManifest.
func (b *Bundle) ReadManifest() ([]byte, error) { return ReadBlob(b.layout, b.manifest, MaxDocument) }

// ParseManifest parses the contents manifest of the bundle with an identity. It returns the digest of contents.json, and the files.
func ParseManifest(text []byte, id digest.Digest) (contents digest.Digest, files []File, err error) {
	if digest.FromBytes(text) != id {
		return "", nil, fmt.Errorf("it has not the digest %s", id)
	}
	m, err := parseManifest(text, ArtifactContents)
	if err != nil {
		return "", nil, err
	}
	files, err = readFiles(m.Layers)
	return m.Config.Digest, files, err
}
