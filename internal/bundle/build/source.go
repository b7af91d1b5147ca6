package build

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/bundle"
	"github.com/islet-edge/islet/internal/finding"
	"github.com/islet-edge/islet/internal/inputweight"
)

// Names in a source directory.
const (
	DescriptionFile = "bundle.yaml"
	manifestsDir    = "manifests"
	imagesDir       = "images"
	programsDir     = "islet"
)

const (
	apiVersion = "islet.dev/v1alpha1"
	kind       = "Bundle"
)

// A Description is the file bundle.yaml.
type Description struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Name       string         `json:"name"`
	Number     int64          `json:"number,omitempty"`
	Expires    *time.Time     `json:"expires,omitempty"`
	For        *bundle.Target `json:"for,omitempty"`
	// Platforms are the platforms of the nodes. Without them, the bundle has the platforms that all of its images have.
	Platforms []string `json:"platforms,omitempty"`
	// Images are images that no pod names.
	Images []string `json:"images,omitempty"`
	// Archives are the names of images in archives without names, by the file's name in images/.
	Archives map[string]string `json:"archives,omitempty"`
}

// source is what a source directory contains, apart from images.
type source struct {
	description Description
	manifests   []finding.File // without sealed files
	sealed      []finding.File
	files       []bundle.Part // all files
}

const maxWeight = 32 << 20

func readSource(dir string) (*source, error) {
	s := &source{}
	text, err := readFile(filepath.Join(dir, DescriptionFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no %s: write one with apiVersion %s, kind %s, name and number",
			dir, DescriptionFile, apiVersion, kind)
	}
	if err != nil {
		return nil, err
	}
	if err := s.describe(text); err != nil {
		return nil, fmt.Errorf("%s: %w", DescriptionFile, err)
	}
	if err := s.readManifests(dir); err != nil {
		return nil, err
	}
	for name, mediaType := range map[string]string{bundle.KubeletFile: bundle.MediaKubelet, bundle.EdgeFile: bundle.MediaEdge} {
		text, err := readFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, bundle.NewFile(name, mediaType, text))
	}
	return s, s.readPrograms(filepath.Join(dir, programsDir))
}

func (s *source) describe(text []byte) error {
	if err := inputweight.YAML(text, maxWeight); err != nil {
		return err
	}
	if err := yaml.UnmarshalStrict(text, &s.description); err != nil {
		return err
	}
	if s.description.APIVersion != apiVersion || s.description.Kind != kind {
		return fmt.Errorf("apiVersion and kind must be %s and %s", apiVersion, kind)
	}
	return nil
}

// readFile reads a file of at most bundle.MaxFile bytes.
func readFile(name string) ([]byte, error) {
	f, err := bundle.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, bundle.MaxFile+1))
	if err == nil && len(data) > bundle.MaxFile {
		err = fmt.Errorf("%s has more than %d bytes", name, bundle.MaxFile)
	}
	return data, err
}

// list returns the names of the entries of a directory that do not begin with a dot. A directory that does not exist has none.
func list(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, err
}

func (s *source) readManifests(dir string) error {
	names, err := list(filepath.Join(dir, manifestsDir))
	if err != nil {
		return err
	}
	if len(names) > bundle.MaxFiles {
		return fmt.Errorf("%s has more than %d files", manifestsDir, bundle.MaxFiles)
	}
	for _, name := range names {
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
			return fmt.Errorf("%s/%s: a manifest ends with .yaml, .yml or .json: remove the file, or rename it", manifestsDir, name)
		}
		text, err := readFile(filepath.Join(dir, manifestsDir, name))
		if err != nil {
			return err
		}
		file := finding.File{Name: filepath.Join(dir, manifestsDir, name), Data: text}
		if strings.HasSuffix(name, bundle.SealedSuffix) {
			s.sealed = append(s.sealed, file)
			s.files = append(s.files, bundle.NewFile(name, bundle.MediaSealed, text))
			continue
		}
		s.manifests = append(s.manifests, file)
		s.files = append(s.files, bundle.NewFile(name, bundle.MediaManifest, text))
	}
	if len(names) == 0 {
		return fmt.Errorf("%s has no manifests in %s/", dir, manifestsDir)
	}
	return nil
}

// readPrograms adds the archives of islet and their releases.
func (s *source) readPrograms(dir string) error {
	names, err := list(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		file := filepath.Join(dir, name)
		switch {
		case strings.HasSuffix(name, ".tar.gz.release"):
			text, err := readFile(file)
			if err != nil {
				return err
			}
			s.files = append(s.files, bundle.NewFile(name, bundle.MediaRelease, text))
		case strings.HasSuffix(name, ".tar.gz"):
			if !slices.Contains(names, name+".release") {
				return fmt.Errorf("%s/%s has no %s.release: an archive of islet must be signed", programsDir, name, name)
			}
			part, err := filePart(file, bundle.MediaProgram)
			if err != nil {
				return err
			}
			part.Annotations = bundle.NewFile(name, "", nil).Annotations
			s.files = append(s.files, part)
		default:
			return fmt.Errorf("%s/%s: only archives (.tar.gz) and their releases (.tar.gz.release) are allowed here", programsDir, name)
		}
	}
	return nil
}
