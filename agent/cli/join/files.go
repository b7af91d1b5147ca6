package join

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/islet-edge/islet/internal/config"
	"github.com/islet-edge/islet/internal/k3s"
	"github.com/islet-edge/islet/internal/regular"
)

// maxConfig is the maximum size of a configuration file in bytes.
const maxConfig = 1 << 20

// A configFile is a configuration file of the agent, before and after.
type configFile struct {
	k3s.File
	fields []string // that change
}

// contents returns the files without the names of their fields.
func contents(files []configFile) (all []k3s.File) {
	for _, f := range files {
		all = append(all, f.File)
	}
	return all
}

// A setting is the value of a field.
type setting struct {
	path  string // the keys, with dots between them
	value any
	// isDefault is set if a value that the file already has stays. The path is then a single key.
	isDefault bool
}

// configFiles returns those files of the agent's configuration that the settings of the cluster change. All other fields and comments stay.
// It returns an error if the agent could not start on this machine with them.
func (o *options) configFiles(d k3s.Directory, s *k3s.Settings) ([]configFile, error) {
	var dns []any
	for _, ip := range s.ClusterDNS {
		dns = append(dns, ip.String())
	}
	serving := d.PairFile(k3s.ForServing)
	const version, kind = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	kubelet, err := readConfig(filepath.Join(o.configDir, "kubelet.yaml"), version, kind, []setting{
		{path: "clusterDNS", value: dns},
		{path: "clusterDomain", value: s.ClusterDomain},
		{path: "rotateCertificates", value: false}, // the agent renews the certificates at the supervisor
		{path: "serverTLSBootstrap", value: false},
		{path: "tlsCertFile", value: serving},
		{path: "tlsPrivateKeyFile", value: serving},
		{path: "authentication.x509.clientCAFile", value: d.ClientCA()},
		{path: "failSwapOn", value: false, isDefault: true}, // as k3s starts its kubelet
	})
	if err == nil {
		err = o.checkHost(kubelet)
	}
	if err != nil {
		return nil, err
	}
	edge, err := readConfig(filepath.Join(o.configDir, "edge.yaml"), config.EdgeAPIVersion, config.EdgeKind, []setting{
		{path: "k3s.directory", value: string(d)},
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc([]configFile{*kubelet, *edge}, func(f configFile) bool { return len(f.fields) == 0 }), nil
}

// readConfig reads a configuration file and sets fields in it. It returns an error if the agent would not accept the result.
func readConfig(path, version, kind string, settings []setting) (*configFile, error) {
	f := &configFile{File: k3s.File{Path: path, Mode: 0o644}}
	old, err := regular.Read(path, maxConfig)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Lstat(path); err == nil {
			return nil, fmt.Errorf("%s is a link to a file that does not exist", path)
		}
		old = fmt.Appendf(nil, "apiVersion: %s\nkind: %s\n", version, kind)
	case err != nil:
		return nil, err
	default:
		f.Old = old
		if info, err := os.Stat(path); err == nil {
			f.Mode = info.Mode().Perm()
		}
	}
	if f.New, f.fields, err = setFields(old, settings); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, mistakes, _ := config.Check(path, f.New); len(mistakes) > 0 {
		return nil, &mistakes[0]
	}
	return f, nil
}

// setFields sets fields in a YAML text, and returns their names. It replaces only the top-level blocks that change.
func setFields(text []byte, settings []setting) (_ []byte, changed []string, _ error) {
	have, want := map[string]any{}, map[string]any{}
	if err := errors.Join(yaml.Unmarshal(text, &have), yaml.Unmarshal(text, &want)); err != nil {
		return nil, nil, err
	}
	for _, s := range settings {
		if s.isDefault && have[s.path] != nil {
			continue
		}
		if err := set(want, s.path, s.value); err != nil {
			return nil, nil, err
		}
	}
	out := string(text)
	for _, s := range settings {
		key, _, _ := strings.Cut(s.path, ".")
		if reflect.DeepEqual(have[key], want[key]) {
			continue
		}
		if !slices.Contains(changed, s.path) {
			changed = append(changed, s.path)
		}
		block, err := yaml.Marshal(map[string]any{key: want[key]})
		if err != nil {
			return nil, nil, err
		}
		out = replaceBlock(out, key, string(block))
	}
	got := map[string]any{}
	if err := yaml.Unmarshal([]byte(out), &got); err != nil || !reflect.DeepEqual(got, want) {
		var lines []string
		for _, s := range settings {
			lines = append(lines, fmt.Sprintf("%s: %v", s.path, s.value))
		}
		return nil, nil, errors.New("the form of the file is unusual, so set these fields in it and repeat the command: " +
			strings.Join(lines, "; "))
	}
	return []byte(out), changed, nil
}

// set sets a field of a tree.
func set(tree map[string]any, path string, value any) error {
	keys := strings.Split(path, ".")
	last := len(keys) - 1
	for _, key := range keys[:last] {
		switch below := tree[key].(type) {
		case nil:
			next := map[string]any{}
			tree[key], tree = next, next
		case map[string]any:
			tree = below
		default:
			return fmt.Errorf("%s has no fields", key)
		}
	}
	tree[keys[last]] = value
	return nil
}

// replaceBlock replaces the lines of a top-level key. If the text has no such key, the block is appended.
func replaceBlock(text, key, block string) string {
	lines := strings.SplitAfter(text, "\n")
	begin := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, key+":") })
	if begin < 0 {
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		return text + block
	}
	end := begin + 1
	for end < len(lines) && lines[end] != "" && strings.ContainsAny(lines[end][:1], " \t-") && !strings.HasPrefix(lines[end], "---") {
		end++
	}
	return strings.Join(lines[:begin], "") + block + strings.Join(lines[end:], "")
}
