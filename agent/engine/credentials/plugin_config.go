package credentials

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	configv1 "k8s.io/kubelet/config/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/keyring"
)

const (
	configGroup = "kubelet.config.k8s.io/"
	configKind  = "CredentialProviderConfig"
	pluginGroup = "credentialprovider.kubelet.k8s.io/"

	configLimit = 1 << 20 // maximum size of one file, in bytes
	configFiles = 100     // maximum number of files in a directory
)

// versions are the supported versions of the plugins' configuration and of their protocol. They differ only in their
// fields, which load checks.
var versions = []string{"v1", "v1beta1", "v1alpha1"}

// loadConfig reads the configuration of plugins at a path: a file, or a directory whose .json, .yaml and .yml files are read in
// the order of their names. The hash of the files is the same as in a kubelet.
func loadConfig(path string) (providers []configv1.CredentialProvider, hash string, err error) {
	files := []string{path}
	info, err := os.Stat(path)
	if err != nil {
		return nil, "", err
	}
	if info.IsDir() {
		if files, err = filesIn(path); err != nil {
			return nil, "", err
		}
	}
	sum := sha256.New()
	var errs []error
	for _, file := range files {
		data, err := readConfigFile(file)
		if err != nil {
			return nil, "", err
		}
		_ = binary.Write(sum, binary.BigEndian, uint64(len(data)))
		sum.Write(data)
		got, err := decodeConfig(data)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
		providers = append(providers, got...)
	}
	if len(errs) == 0 {
		errs = checkProviders(providers)
	}
	return providers, "sha256:" + hex.EncodeToString(sum.Sum(nil)), errors.Join(errs...)
}

func filesIn(dir string) (files []string, err error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, ext) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	switch {
	case len(files) == 0:
		return nil, fmt.Errorf("directory %s contains no .json, .yaml or .yml file", dir)
	case len(files) > configFiles:
		return nil, fmt.Errorf("directory %s contains %d files; the maximum is %d", dir, len(files), configFiles)
	}
	return files, nil
}

func readConfigFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, configLimit+1))
	if err == nil && len(data) > configLimit {
		err = fmt.Errorf("%s is larger than %d bytes", file, configLimit)
	}
	return data, err
}

// decodeConfig decodes the configuration strictly: an unknown or repeated field is an error, as in a kubelet.
func decodeConfig(data []byte) ([]configv1.CredentialProvider, error) {
	doc, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, err
	}
	var c configv1.CredentialProviderConfig
	strict, err := kjson.UnmarshalStrict(doc, &c)
	if err := errors.Join(append(strict, err)...); err != nil {
		return nil, err
	}
	version, ok := strings.CutPrefix(c.APIVersion, configGroup)
	if !ok || !slices.Contains(versions, version) || c.Kind != configKind {
		return nil, fmt.Errorf("kind and apiVersion must be %s and %sv1 (or v1beta1, v1alpha1), not %q and %q", configKind,
			configGroup, c.Kind, c.APIVersion)
	}
	for _, p := range c.Providers {
		if p.TokenAttributes != nil && version != "v1" {
			return nil, fmt.Errorf("providers[%s].tokenAttributes: unknown field: it needs apiVersion: %sv1", p.Name, configGroup)
		}
	}
	return c.Providers, nil
}

// checkProviders returns the errors with which a kubelet would reject the providers.
func checkProviders(all []configv1.CredentialProvider) (errs []error) {
	if len(all) == 0 {
		errs = append(errs, errors.New("providers: at least one is required"))
	}
	names := sets.New[string]()
	for i, p := range all {
		report := func(field, format string, args ...any) {
			errs = append(errs, fmt.Errorf("providers[%d].%s: "+format, append([]any{i, field}, args...)...))
		}
		switch {
		case p.Name == "":
			report("name", "it is required")
		case strings.ContainsAny(p.Name, "/ ") || p.Name == "." || p.Name == "..":
			report("name", "%q is not a valid file name in the directory of plugins: no '/', no space, not . or ..", p.Name)
		case names.Has(p.Name):
			report("name", "%q is a duplicate", p.Name)
		}
		names.Insert(p.Name)
		if version, ok := strings.CutPrefix(p.APIVersion, pluginGroup); !ok || !slices.Contains(versions, version) {
			report("apiVersion", "%q is not one of %s{%s}", p.APIVersion, pluginGroup, strings.Join(versions, ","))
		}
		if len(p.MatchImages) == 0 {
			report("matchImages", "at least one is required")
		}
		for _, m := range p.MatchImages {
			if !keyring.IsPlace(m) {
				report("matchImages", "%q is not of the form host[:port][/path]", m)
			}
		}
		switch d := p.DefaultCacheDuration; {
		case d == nil:
			report("defaultCacheDuration", "it is required")
		case d.Duration < 0:
			report("defaultCacheDuration", "%s is less than 0", d.Duration)
		}
		if p.TokenAttributes != nil {
			checkToken(&p, func(field, format string, args ...any) { report("tokenAttributes"+field, format, args...) })
		}
	}
	return errs
}

func checkToken(p *configv1.CredentialProvider, wrong func(field, format string, args ...any)) {
	t := p.TokenAttributes
	if p.APIVersion != pluginGroup+"v1" {
		wrong("", "tokens need apiVersion %sv1 of the plugin", pluginGroup)
	}
	if t.ServiceAccountTokenAudience == "" {
		wrong(".serviceAccountTokenAudience", "it is required")
	}
	if t.CacheType != configv1.ServiceAccountServiceAccountTokenCacheType && t.CacheType != configv1.TokenServiceAccountTokenCacheType {
		wrong(".cacheType", "%q is neither ServiceAccount nor Token", t.CacheType)
	}
	switch {
	case t.RequireServiceAccount == nil:
		wrong(".requireServiceAccount", "it is required")
	case !*t.RequireServiceAccount && len(t.RequiredServiceAccountAnnotationKeys) > 0:
		wrong(".requiredServiceAccountAnnotationKeys", "they need requireServiceAccount: true")
	}
	seen := sets.New[string]()
	for field, keys := range map[string][]string{
		".requiredServiceAccountAnnotationKeys": t.RequiredServiceAccountAnnotationKeys,
		".optionalServiceAccountAnnotationKeys": t.OptionalServiceAccountAnnotationKeys,
	} {
		for _, k := range keys {
			if msgs := validation.IsQualifiedName(strings.ToLower(k)); len(msgs) > 0 {
				wrong(field, "%q is not a valid annotation key: %s", k, strings.Join(msgs, "; "))
			}
			if seen.Has(k) {
				wrong(field, "%q is a duplicate", k)
			}
			seen.Insert(k)
		}
	}
}
