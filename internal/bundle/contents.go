package bundle

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/islet-edge/islet/internal/inputweight"
	"github.com/islet-edge/islet/internal/pattern"
)

// Contents is the config of the contents manifest: what a bundle is, for whom it is, and its images.
type Contents struct {
	Name      string   `json:"name"`
	Number    int64    `json:"number"`            // only grows under this name
	Expires   string   `json:"expires,omitempty"` // RFC 3339, in UTC
	For       *Target  `json:"for,omitempty"`     // nil: for all nodes
	Platforms []string `json:"platforms,omitempty"`
	Images    []Image  `json:"images,omitempty"` // sorted by name
	Size      int64    `json:"size"`             // bytes of all blobs that the contents manifest reaches, without itself
}

// A Target selects nodes.
type Target struct {
	Names  []string          `json:"names,omitempty"`  // one of them is the node's name
	Labels map[string]string `json:"labels,omitempty"` // the node has all of them
}

// An Image is an image of a bundle under one name.
type Image struct {
	Name      string          `json:"name"`      // complete, such as docker.io/library/nginx:1.29
	Digest    digest.Digest   `json:"digest"`    // of the index or manifest that had this name when the bundle was built
	Manifests []ImageManifest `json:"manifests"` // one for each platform of the bundle, sorted by platform
}

// An ImageManifest is the manifest of an image for one platform.
type ImageManifest struct {
	Platform  string        `json:"platform"` // such as linux/arm/v7
	MediaType string        `json:"mediaType"`
	Digest    digest.Digest `json:"digest"`
	Size      int64         `json:"size"`
}

// A form is a regular expression and a maximum length in bytes. The expressions have no large repetitions, because compiling those needs
// much memory.
type form struct {
	pattern func() *regexp.Regexp
	most    int
}

func (f form) matches(s string) bool { return len(s) <= f.most && f.pattern().MatchString(s) }

var (
	nameForm     = form{pattern.New(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`), 63}
	nodeForm     = form{pattern.New(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`), 253}
	labelForm    = form{pattern.New(`^[A-Za-z0-9./_-]+$`), 317}
	valueForm    = form{pattern.New(`^[A-Za-z0-9._-]*$`), 63}
	platformForm = form{pattern.New(`^[a-z0-9]{1,20}/[a-z0-9_]{1,20}(/[a-z0-9]{1,20})?$`), 62}
	imageForm    = form{pattern.New(`^[A-Za-z0-9][A-Za-z0-9._:/@\[\]-]*$`), 512}
	fileForm     = form{pattern.New(`^[A-Za-z0-9][A-Za-z0-9._-]*$`), 100}
)

const (
	maxNumber    = 1 << 53 // JSON of other programs has no larger integers
	maxNodes     = 1000
	maxLabels    = 100
	maxPlatforms = 16
)

// Encode returns contents.json. Validate does not allow two encodings of the same contents.
func (c *Contents) Encode() ([]byte, error) { return json.Marshal(c) }

// decodeContents decodes contents.json. The text must be equal to the result of Encode.
func decodeContents(data []byte) (*Contents, error) {
	c := &Contents{}
	if err := decodeExactly(data, c); err != nil {
		return nil, err
	}
	return c, c.Validate()
}

// decodeExactly decodes a document that islet has written. It rejects every text that encoding/json would not write for the same value. So
// a field that is unknown, missing or there twice, and a field whose name has another case, are errors.
func decodeExactly(data []byte, into any) error {
	if err := decode(data, into); err != nil {
		return err
	}
	again, err := json.Marshal(into)
	if err == nil && !bytes.Equal(again, data) {
		err = errors.New("it has fields that this version of islet does not know, or is written in another way")
	}
	return err
}

// decode decodes JSON after a check of its memory.
func decode(data []byte, into any) error {
	if err := inputweight.JSON(data, into, maxWeight); err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// Validate returns the first error of the contents.
func (c *Contents) Validate() error {
	switch {
	case !nameForm.matches(c.Name):
		return fmt.Errorf("name: %.80q is not 1 to 63 lower case letters, digits and dashes", c.Name)
	case c.Number < 1 || c.Number > maxNumber:
		return fmt.Errorf("number: %d is not from 1 to %d", c.Number, int64(maxNumber))
	case c.Size < 0:
		return errors.New("size: it is negative")
	}
	if c.Expires != "" {
		if t, err := time.Parse(time.RFC3339, c.Expires); err != nil || FormatTime(t) != c.Expires {
			return fmt.Errorf("expires: %.80q is not a time such as 2027-01-31T00:00:00Z", c.Expires)
		}
	}
	if err := c.For.validate(); err != nil {
		return fmt.Errorf("for: %w", err)
	}
	if len(c.Platforms) > maxPlatforms {
		return fmt.Errorf("platforms: more than %d", maxPlatforms)
	}
	if err := checkList(c.Platforms, platformForm); err != nil {
		return fmt.Errorf("platforms: %w", err)
	}
	return c.validateImages()
}

// FormatTime returns the text of a time in a bundle.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

func (t *Target) validate() error {
	if t == nil {
		return nil
	}
	switch {
	case len(t.Names) == 0 && len(t.Labels) == 0:
		return errors.New("it selects nothing")
	case len(t.Names) > maxNodes || len(t.Labels) > maxLabels:
		return fmt.Errorf("more than %d names or %d labels", maxNodes, maxLabels)
	}
	for k, v := range t.Labels {
		if !labelForm.matches(k) || !valueForm.matches(v) {
			return fmt.Errorf("%.80q: %.80q is not a label", k, v)
		}
	}
	return checkList(t.Names, nodeForm)
}

// Matches reports whether a node is selected.
func (t *Target) Matches(name string, labels map[string]string) bool {
	if t == nil {
		return true
	}
	for k, v := range t.Labels {
		if has, ok := labels[k]; !ok || has != v {
			return false
		}
	}
	return len(t.Names) == 0 || slices.Contains(t.Names, name)
}

// checkList returns an error if a list is not sorted, has duplicates, or has an element that does not match a form.
func checkList(list []string, f form) error {
	for i, s := range list {
		if !f.matches(s) {
			return fmt.Errorf("%.80q is not valid", s)
		}
		if i > 0 && list[i-1] >= s {
			return fmt.Errorf("%.80q is there twice, or the list is not sorted", s)
		}
	}
	return nil
}

func (c *Contents) validateImages() error {
	count := 0
	for i, img := range c.Images {
		switch {
		case !imageForm.matches(img.Name):
			return fmt.Errorf("images: %.80q is not an image name", img.Name)
		case i > 0 && cmp.Compare(c.Images[i-1].Name, img.Name) >= 0:
			return fmt.Errorf("images: %.80q is there twice, or the list is not sorted", img.Name)
		case len(img.Manifests) == 0:
			return fmt.Errorf("images: %s has no manifest", img.Name)
		case len(img.Manifests) != len(c.Platforms):
			return fmt.Errorf("images: %s has %d platforms, the bundle has %d", img.Name, len(img.Manifests), len(c.Platforms))
		}
		if err := CheckDigest(img.Digest); err != nil {
			return fmt.Errorf("images: %s: %w", img.Name, err)
		}
		for j, m := range img.Manifests {
			if m.Platform != c.Platforms[j] || !IsImageManifest(m.MediaType) {
				return fmt.Errorf("images: %s: manifest %d is not one for %s", img.Name, j+1, c.Platforms[j])
			}
			if err := checkDescriptor(m.Digest, m.Size, MaxDocument); err != nil {
				return fmt.Errorf("images: %s: %w", img.Name, err)
			}
		}
		if count += len(img.Manifests); count > MaxManifests {
			return fmt.Errorf("images: more than %d manifests", MaxManifests)
		}
	}
	return nil
}

// CheckDigest returns an error unless d is a SHA-256. Other algorithms are not allowed, because each needs its own review. The methods of a
// digest that is not valid panic.
func CheckDigest(d digest.Digest) error {
	if d.Validate() != nil || d.Algorithm() != digest.SHA256 {
		return fmt.Errorf("%.100q is not a digest of SHA-256", string(d))
	}
	return nil
}

func checkDescriptor(d digest.Digest, size, limit int64) error {
	if err := CheckDigest(d); err != nil {
		return err
	}
	if size < 0 || size > limit {
		return fmt.Errorf("%s has %d bytes, and at most %d are allowed", d, size, limit)
	}
	return nil
}
