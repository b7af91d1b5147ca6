package image

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

const (
	// maxManifests is the maximum number of entries of an index, including the entries of nested
	// indexes.
	maxManifests = 1024
	// maxLayers is the maximum number of layers of an image. An overlayfs mount supports fewer than
	// 500.
	maxLayers = 500
	// maxWords is the maximum length of each list of strings, and of each map, in a config.
	maxWords = 16384
	// maxFeatures is the maximum number of os.features of a platform.
	maxFeatures = 64
	// maxWord is the maximum length of digests, media types and the fields of a platform, in bytes.
	maxWord = 255
	// maxUser is the maximum length of the user in a config, in bytes.
	maxUser = 4096
)

// A document is an index or a manifest, with only the fields that this package needs.
type document struct {
	SchemaVersion int         `json:"schemaVersion"`
	MediaType     string      `json:"mediaType"`
	Manifests     manifests   `json:"manifests"`
	Config        *descriptor `json:"config"`
	Layers        layerList   `json:"layers"`
}

func (d document) isIndex() bool { return len(d.Manifests) > 0 }

// A descriptor is an OCI descriptor without the fields that are large and not needed: urls, data,
// and all annotations except the image's names.
type descriptor struct {
	MediaType    string        `json:"mediaType"`
	Digest       digest.Digest `json:"digest"`
	Size         int64         `json:"size"`
	ArtifactType string        `json:"artifactType"`
	Platform     *platform     `json:"platform"`
	Annotations  struct {
		Image string `json:"io.containerd.image.name"`
		Ref   string `json:"org.opencontainers.image.ref.name"`
	} `json:"annotations"`
}

// A platform describes the operating system and architecture for which an image was built.
type platform struct {
	Architecture string   `json:"architecture"`
	OS           string   `json:"os"`
	OSVersion    string   `json:"os.version"`
	OSFeatures   features `json:"os.features"`
	Variant      string   `json:"variant"`
}

func (p *platform) toOCI() ocispec.Platform {
	return ocispec.Platform{Architecture: p.Architecture, OS: p.OS, OSVersion: p.OSVersion, OSFeatures: p.OSFeatures, Variant: p.Variant}
}

func (p *platform) check() error {
	return checkLength(append([]string{p.Architecture, p.OS, p.OSVersion, p.Variant}, p.OSFeatures...)...)
}

// toOCI converts the descriptor to containerd's type, without annotations.
func (d *descriptor) toOCI() ocispec.Descriptor {
	out := ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, ArtifactType: d.ArtifactType}
	if d.Platform != nil {
		p := d.Platform.toOCI()
		out.Platform = &p
	}
	return out
}

func (d *descriptor) check() error {
	if d.Size < 0 {
		return fmt.Errorf("descriptor of %.300q has %d bytes: %w", d.Digest, d.Size, errdefs.ErrInvalidArgument)
	}
	if d.Platform != nil {
		if err := d.Platform.check(); err != nil {
			return err
		}
	}
	return checkLength(d.MediaType, string(d.Digest), d.ArtifactType)
}

// checkLength returns an error if one of the words is longer than maxWord.
func checkLength(words ...string) error {
	for _, w := range words {
		if len(w) > maxWord {
			return fmt.Errorf("%.40q... has %d bytes, more than %d: %w", w, len(w), maxWord, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// A configDocument is an image config, with only the fields that containers need.
type configDocument struct {
	platform
	Config struct {
		User       string
		Env        limitedWords
		Entrypoint limitedWords
		Cmd        limitedWords
		Volumes    volumes
		WorkingDir string
		StopSignal string
	} `json:"config"`
	RootFS struct {
		Type    string  `json:"type"`
		DiffIDs digests `json:"diff_ids"`
	} `json:"rootfs"`
}

// toOCI converts the config to containerd's type. It returns an error if a field is too long.
func (c *configDocument) toOCI() (ocispec.Image, error) {
	if err := c.check(); err != nil {
		return ocispec.Image{}, err
	}
	if len(c.Config.User) > maxUser {
		return ocispec.Image{}, fmt.Errorf("the user has %d bytes, more than %d: %w",
			len(c.Config.User), maxUser, errdefs.ErrInvalidArgument)
	}
	return ocispec.Image{
		Platform: c.platform.toOCI(),
		Config: ocispec.ImageConfig{
			User: c.Config.User, Env: c.Config.Env, Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd,
			Volumes: c.Config.Volumes, WorkingDir: c.Config.WorkingDir, StopSignal: c.Config.StopSignal,
		},
		RootFS: ocispec.RootFS{Type: c.RootFS.Type, DiffIDs: c.RootFS.DiffIDs},
	}, nil
}

// Lists with a maximum number of entries. They are decoded one entry after another.
type (
	manifests    []descriptor
	layerList    []descriptor
	digests      []digest.Digest
	limitedWords []string
	features     []string
	volumes      map[string]struct{}
)

// UnmarshalJSON implements json.Unmarshaler.
func (l *manifests) UnmarshalJSON(b []byte) (err error) {
	*l, err = decodeList(b, "manifests", maxManifests, (*descriptor).check)
	return err
}

// UnmarshalJSON implements json.Unmarshaler. The list may also have entries that are not file
// system layers, such as attestations.
func (l *layerList) UnmarshalJSON(b []byte) (err error) {
	*l, err = decodeList(b, "layers", 2*maxLayers, (*descriptor).check)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *digests) UnmarshalJSON(b []byte) (err error) {
	*l, err = decodeList(b, "diff_ids", maxLayers, func(d *digest.Digest) error { return checkLength(string(*d)) })
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *limitedWords) UnmarshalJSON(b []byte) (err error) {
	*l, err = decodeList[string](b, "list", maxWords, nil)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *features) UnmarshalJSON(b []byte) (err error) {
	*l, err = decodeList[string](b, "os.features", maxFeatures, nil)
	return err
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *volumes) UnmarshalJSON(b []byte) error {
	*v = nil
	dec := json.NewDecoder(bytes.NewReader(b))
	if opened, err := openDelim(dec, "Volumes", '{'); err != nil || !opened {
		return err
	}
	out := volumes{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return err
		}
		if err := dec.Decode(&ignoredValue{}); err != nil {
			return err
		}
		if len(out) == maxWords {
			return tooMany("Volumes", maxWords)
		}
		if path, ok := key.(string); ok {
			out[path] = struct{}{}
		}
	}
	*v = out
	return nil
}

// decodeList decodes a JSON array of at most maxEntries entries. The value null is an empty array. The optional check is called for each
// entry.
func decodeList[T any](b []byte, what string, maxEntries int, check func(*T) error) ([]T, error) {
	dec := json.NewDecoder(bytes.NewReader(b))
	if opened, err := openDelim(dec, what, '['); err != nil || !opened {
		return nil, err
	}
	out := []T{}
	for dec.More() {
		if len(out) == maxEntries {
			return nil, tooMany(what, maxEntries)
		}
		var entry T
		if err := dec.Decode(&entry); err != nil {
			return nil, err
		}
		if check != nil {
			if err := check(&entry); err != nil {
				return nil, err
			}
		}
		out = append(out, entry)
	}
	return out, nil
}

// openDelim reads the opening delimiter of an array or object. If the value is null, openDelim returns false.
func openDelim(dec *json.Decoder, what string, delim json.Delim) (bool, error) {
	t, err := dec.Token()
	if err != nil || t == nil {
		return false, err
	}
	if t != delim {
		return false, fmt.Errorf("%s does not begin with %s: %w", what, delim, errdefs.ErrInvalidArgument)
	}
	return true, nil
}

func tooMany(what string, most int) error {
	return fmt.Errorf("%s has more than %d entries: %w", what, most, errdefs.ErrInvalidArgument)
}

// An ignoredValue is a JSON value that is discarded.
type ignoredValue struct{}

// UnmarshalJSON implements json.Unmarshaler.
func (*ignoredValue) UnmarshalJSON([]byte) error { return nil }
