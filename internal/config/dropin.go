package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"path/filepath"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

// These identify a KubeletConfiguration document.
const (
	kubeletAPIVersion = "kubelet.config.k8s.io/v1beta1"
	kubeletKind       = "KubeletConfiguration"
)

// loadKubelet returns the KubeletConfiguration. It reads the sent configuration or, if there is none, the
// configuration file. Then it merges the drop-in files into this configuration. Drop-in files are JSON merge patches:
// maps are merged, lists are replaced (KEP-3983). loadKubelet also returns every document, for the notices.
func loadKubelet(own *ownFiles, file, dir string, sent *SentConfiguration) (kubelet.KubeletConfiguration, []document, error) {
	var c kubelet.KubeletConfiguration
	var docs []document
	if file != "" {
		doc, err := readDocument(own, file, kubeletAPIVersion, kubeletKind, &c)
		if err != nil {
			return c, nil, err
		}
		makeAbsolute(kubeletPaths(&c), filepath.Dir(doc.file))
		docs = append(docs, doc)
	}
	if sent != nil && len(sent.Kubelet) > 0 {
		ours := c
		c = kubelet.KubeletConfiguration{}
		doc, err := sent.decodeOver(sent.Kubelet, kubeletAPIVersion, kubeletKind, ours, &c, "")
		if err != nil {
			return c, nil, err
		}
		docs = []document{doc}
	}
	setKubeletDefaults(&c)
	if dir == "" {
		return c, docs, nil
	}
	drops, err := readDropins(own, dir)
	if err != nil {
		return c, nil, err
	}
	merged, err := json.Marshal(&c)
	if err != nil {
		return c, nil, err
	}
	for _, d := range drops {
		if merged, err = mergePatch(merged, d.json); err != nil {
			return c, nil, fmt.Errorf("merge %s: %w", d.file, err)
		}
	}
	c = kubelet.KubeletConfiguration{}
	if err := json.Unmarshal(merged, &c); err != nil {
		return c, nil, fmt.Errorf("merge the files of %s: %w", dir, err)
	}
	setKubeletDefaults(&c)
	return c, append(docs, drops...), nil
}

// readDropins decodes the *.conf files below dir in lexical order. It decodes each file strictly,
// so that a mistake is reported with its file and line. If the disk fails for the directory, it
// decodes the copies of the files.
func readDropins(own *ownFiles, dir string) ([]document, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var docs []document
	read := func(path string) error {
		var c kubelet.KubeletConfiguration
		doc, err := readDocument(own, path, kubeletAPIVersion, kubeletKind, &c)
		switch {
		case err == nil:
			docs = append(docs, doc)
		case own.canOmit(err):
			return nil
		}
		return err
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if names, ok := own.filesAtLastStart(path, err); ok {
			for _, name := range names {
				if err := read(name); err != nil {
					return err
				}
			}
			return fs.SkipDir
		}
		if err != nil || e.IsDir() || filepath.Ext(path) != ".conf" {
			return err
		}
		return read(path)
	})
	if err != nil {
		return nil, fmt.Errorf("read drop-in directory: %w", err)
	}
	return docs, nil
}

// mergePatch applies an RFC 7386 merge patch to a JSON object.
func mergePatch(target, patch []byte) ([]byte, error) {
	t, err := decodeTree(target)
	if err != nil {
		return nil, err
	}
	p, err := decodeTree(patch)
	if err != nil {
		return nil, err
	}
	return json.Marshal(mergeTrees(t, p))
}

func decodeTree(data []byte) (tree any, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return tree, d.Decode(&tree)
}

func mergeTrees(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(t, k)
			continue
		}
		t[k] = mergeTrees(t[k], v)
	}
	return t
}

// kubeletPaths returns the fields whose relative paths are relative to the directory of the file.
func kubeletPaths(c *kubelet.KubeletConfiguration) []*string {
	p := []*string{&c.StaticPodPath, &c.Authentication.X509.ClientCAFile, &c.TLSCertFile,
		&c.TLSPrivateKeyFile, &c.VolumePluginDir, &c.PodLogsDir}
	if c.ResolverConfig != nil {
		p = append(p, c.ResolverConfig)
	}
	return p
}

func makeAbsolute(paths []*string, dir string) {
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}
