package config

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	kubelet "k8s.io/kubelet/config/v1beta1"
)

func TestDecodeErrorsNameFileLineAndField(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"unknown":            {kubeletHead + "maxPods: 1\nfoo: 2\n", []string{"f:4: foo: unknown field"}},
		"wrong case":         {kubeletHead + "maxpods: 1\n", []string{"f:3: maxpods: unknown field"}},
		"nested unknown":     {kubeletHead + "authentication:\n  anonymous:\n    enabled: true\n  webhook:\n    enable: true\n", []string{"f:7: authentication.webhook.enable: unknown field"}},
		"top level is meant": {kubeletHead + "authentication:\n  anonymous:\n    enabled: true\nenabled: true\n", []string{"f:6: enabled: unknown field"}},
		"in a list":          {kubeletHead + "registerWithTaints:\n- key: a\n  effect: NoExecute\n- key: b\n  efect: x\n", []string{"f:7: registerWithTaints[1].efect: unknown field"}},
		"duplicate":          {kubeletHead + "port: 1\nmaxPods: 2\nport: 3\n", []string{"f:5: port: duplicate field"}},
		"wrong type":         {kubeletHead + "port: abc\n", []string{"f:3: port: must be a whole number, not string"}},
		"wrong type inside":  {kubeletHead + "authentication:\n  anonymous:\n    enabled: 1\n", []string{"f:5: authentication.anonymous.enabled: must be true or false, not number"}},
		"duration":           {kubeletHead + "authentication:\n  webhook:\n    cacheTTL: 5\n", []string{"f:5: authentication.webhook.cacheTTL: must be a string (in quotes), not number"}},
		"all of them":        {kubeletHead + "port: abc\nfoo: 1\nmaxPods: [1]\n", []string{"f:3: port", "f:5: maxPods[0]"}},
		"not YAML":           {kubeletHead + "\tport: 1\n", []string{"f:3: found a tab character"}},
		"JSON":               {"{\n \"apiVersion\": \"kubelet.config.k8s.io/v1beta1\",\n \"kind\": \"KubeletConfiguration\",\n \"prt\": 1\n}", []string{"f:4: prt: unknown field"}},
		"other version":      {"apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n", []string{"f:1: apiVersion: want kubelet.config.k8s.io/v1beta1, have \"kubelet.config.k8s.io/v1\""}},
		"other kind":         {"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: Pod\n", []string{"f:2: kind: want KubeletConfiguration, have \"Pod\""}},
		"no version":         {"port: 1\n", []string{"f: apiVersion: want kubelet.config.k8s.io/v1beta1, have nothing"}},
		"empty":              {"", []string{"f: want a document with apiVersion"}},
		"a list":             {"- a\n", []string{"f: want a document with apiVersion"}},
		"two documents":      {kubeletHead + "---\n" + kubeletHead, []string{"f:3: a second document"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode("f", []byte(c.text), kubeletAPIVersion, kubeletKind, &kubelet.KubeletConfiguration{})
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
			var at *FileError
			if !errors.As(err, &at) || at.File != "f" {
				t.Errorf("%v must be a FileError", err)
			}
		})
	}
}

func TestDocumentSeparatorsThatSeparateNothing(t *testing.T) {
	text := "# comment\n---\n" + kubeletHead + "...\n---\n# end\n"
	if _, err := decode("f", []byte(strings.ReplaceAll(text, "...\n", "")), kubeletAPIVersion, kubeletKind, &kubelet.KubeletConfiguration{}); err != nil {
		t.Error(err)
	}
}

// TestEdgeVersions checks that documents of the version before are read like those of the present version, from a file of the node and as
// a sent configuration, and that other versions and kinds are rejected.
func TestEdgeVersions(t *testing.T) {
	for version, want := range map[string]string{
		"islet.dev/v1beta1": "", "islet.dev/v1alpha1": "", "islet.dev/v1": "apiVersion: want islet.dev/v1beta1, have \"islet.dev/v1\"",
		"v1alpha1": "apiVersion: want islet.dev/v1beta1",
	} {
		text := "apiVersion: " + version + "\nkind: EdgeConfiguration\nshimPods: 4\n"
		dir := writeFiles(t, map[string]string{"edge.yaml": text})
		c, _, err := Load([]string{"--edge-config=" + filepath.Join(dir, "edge.yaml")})
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", version, err)
			}
		} else if err != nil || c.Edge.ShimPods != 4 || c.Edge.APIVersion != EdgeAPIVersion {
			t.Errorf("%s: %v, %+v", version, err, c)
		} else if got := c.VersionWarnings(); len(got) > 0 != (version == earlierEdgeAPIVersion) ||
			len(got) > 0 && (len(got) != 1 || !strings.HasPrefix(got[0], filepath.Join(dir, "edge.yaml")+": ")) {
			t.Errorf("%s: warnings %q", version, got)
		}
		if e := EdgeFields([]byte(text)); (e.ShimPods == 4) != (want == "") {
			t.Errorf("%s: %+v", version, e)
		}
	}
	c, _, err := LoadWith(nil, func(Dirs) (*SentConfiguration, error) {
		return &SentConfiguration{Name: "ConfigMap a/b", Edge: []byte("apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n")}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.VersionWarnings(); len(got) != 1 || !strings.HasPrefix(got[0], "ConfigMap a/b: ") {
		t.Errorf("a sent configuration: warnings %q", got)
	}
	if _, err := decode("f", []byte("apiVersion: islet.dev/v1alpha1\nkind: KubeletConfiguration\n"), kubeletAPIVersion, kubeletKind,
		&kubelet.KubeletConfiguration{}); err == nil {
		t.Error("a KubeletConfiguration may have the version of an EdgeConfiguration")
	}
}

func TestEdgeConfiguration(t *testing.T) {
	dir := writeFiles(t, map[string]string{"edge.yaml": "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\nshimPods: 4\ncniConfDir: net\ncniBinDirs: [bin, /opt]\nociRuntime: runc\nruntimeHandlers: [{name: gvisor, ociRuntime: /bin/runsc}, {name: kata, shim: containerd-shim-kata-v2, shimConfig: /etc/kata.toml}]\n"})
	c, _ := mustLoad(t, "--edge-config="+filepath.Join(dir, "edge.yaml"), "--cni-conf-dir=/flag", "--state-dir=/s")
	e := c.Edge
	if e.ShimPods != 4 || e.OCIRuntime != "runc" || e.BridgeName != "islet0" || e.ImagesDir != "/s/images" ||
		!slices.Equal(e.RuntimeHandlers, []RuntimeHandler{{Name: "gvisor", OCIRuntime: "/bin/runsc"}, {Name: "kata", Shim: "containerd-shim-kata-v2", ShimConfig: "/etc/kata.toml"}}) {
		t.Errorf("got %+v", e)
	}
	if e.CNIConfDir != "/flag" || e.CNIBinDirs[0] != filepath.Join(dir, "bin") || e.CNIBinDirs[1] != "/opt" {
		t.Errorf("got %+v", e)
	}
	for text, want := range map[string]string{
		"networkPlugin: none": "EdgeConfiguration.networkPlugin: Unsupported value: \"none\"",
		"shimPods: -1":        "EdgeConfiguration.shimPods: Invalid value: -1",
		"shimPods: 1.5":       "edge.yaml:3: shimPods: must be a whole number, not 1.5",
		"bridgeName: a/b":     "EdgeConfiguration.bridgeName: Invalid value",
		"ociRuntime: ./runc":  "EdgeConfiguration.ociRuntime: Invalid value",
		"runtimeHandlers: [{name: A_b, ociRuntime: runsc}]":                      "runtimeHandlers[0].name: Invalid value",
		"runtimeHandlers: [{name: a}]":                                           "runtimeHandlers[0].ociRuntime: Required value",
		"runtimeHandlers: [{name: a, ociRuntime: x}, {name: a, ociRuntime: z}]":  "runtimeHandlers[1].name: Duplicate value",
		"runtimeHandlers: [{name: a, ociRuntime: /bin/containerd-shim-kata-v2}]": "set shim instead",
		"runtimeHandlers: [{name: a, ociRuntime: io.containerd.runsc.v1}]":       "is a runtime type of containerd",
		"runtimeHandlers: [{name: a, shim: io.containerd.runsc.v1}]":             "runtimeHandlers[0].shim: Invalid value",
		"runtimeHandlers: [{name: a, shim: bin/containerd-shim-kata-v2}]":        "must be a name or an absolute path",
		"runtimeHandlers: [{name: a, shim: x, shimConfig: kata.toml}]":           "runtimeHandlers[0].shimConfig: Invalid value",
		"runtimeHandlers: [{name: a, ociRuntime: x, shimConfig: /kata.toml}]":    "must be an absolute path, and needs shim",
		"runtimeHandlers: [{name: a, ociRuntime: bin/runsc}]":                    "must be a name or an absolute path",
		"runtimeHandlers: [{name: a, ociRuntime: x, shim: z}]":                   "a handler has one program",
		"runtimeHandlers: [{name: a, ociRuntime: x, shims: z}]":                  "edge.yaml:3: runtimeHandlers[0].shims: unknown field",
		"shimpods: 1":              "edge.yaml:3: shimpods: unknown field",
		"shimPods: 1\nshimPods: 2": "edge.yaml:4: shimPods: duplicate field",
	} {
		dir := writeFiles(t, map[string]string{"edge.yaml": "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n" + text})
		if _, _, err := Load([]string{"--edge-config=" + filepath.Join(dir, "edge.yaml")}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// FuzzKubeletConfiguration checks that no text makes decoding, defaulting or validation panic. Defaulting a second time must change
// nothing.
func FuzzKubeletConfiguration(f *testing.F) {
	f.Add(kubeletHead + "port: 1\n")
	f.Add(kubeletHead + "authentication: {webhook: {cacheTTL: 5}}\nevictionHard: {memory.available: 1%}\n")
	f.Add(kubeletHead + "logging: {options: {json: {infoBufferSize: 1Ki}}, flushFrequency: 5}\n")
	f.Add(kubeletHead + "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\nuserNamespaces: {idsPerPod: 1}\n")
	f.Add(kubeletHead + "tracing: {endpoint: a, samplingRatePerMillion: -1}\nfeatureGates: {KubeletCrashLoopBackOffMax: false}\n")
	f.Fuzz(func(t *testing.T, text string) {
		s := settings{Edge: defaultEdge(), Flags: defaultOptions()}
		doc, err := decode("f", []byte(text), kubeletAPIVersion, kubeletKind, &s.KubeletConfiguration)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error must say something")
			}
			return
		}
		makeAbsolute(kubeletPaths(&s.KubeletConfiguration), "/etc")
		setKubeletDefaults(&s.KubeletConfiguration)
		once := s.KubeletConfiguration.DeepCopy()
		setKubeletDefaults(&s.KubeletConfiguration)
		if !equalJSON(t, once, &s.KubeletConfiguration) {
			t.Error("setting defaults twice must change nothing")
		}
		c, errs := deriveConfig(&s)
		_ = append(errs, validate(&s)...)
		listNotices(c, newFlagSet(&s), []document{{file: "f", json: doc}})
	})
}

// FuzzEdgeConfiguration checks that no text causes a panic. A valid configuration must have all defaults.
func FuzzEdgeConfiguration(f *testing.F) {
	head := "apiVersion: islet.dev/v1alpha1\nkind: EdgeConfiguration\n"
	f.Add(head + "shimPods: 1\ncniBinDirs: [a]\n")
	f.Add(head + "bridgeName: ..\nociRuntime: /x\ncriSocket: /y\n")
	f.Add(`{"apiVersion":"islet.dev/v1alpha1","kind":"EdgeConfiguration","imagesDir":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		s := settings{KubeletConfiguration: defaultKubelet(), Flags: defaultOptions()}
		if _, err := decode("f", []byte(text), EdgeAPIVersion, EdgeKind, &s.Edge); err != nil {
			return
		}
		makeAbsolute(s.Edge.pathFields(), "/etc")
		setEdgeDefaults(&s.Edge)
		if e := s.Edge; e.ShimPods == 0 || e.BridgeName == "" || e.CNIConfDir == "" || len(e.CNIBinDirs) == 0 {
			t.Errorf("a default is missing: %+v", e)
		}
		c := checker{k: &s.KubeletConfiguration, edge: &s.Edge, opts: &s.Flags}
		c.checkEdge()
	})
}

// FuzzFlags checks that no command line makes parsing, derivation or validation panic.
func FuzzFlags(f *testing.F) {
	f.Add("--reserved-memory=0:memory=1Gi;1:x=1\n--register-with-taints=a=b:c\n--eviction-hard=a<1,b=2")
	f.Add("--manifest-url-header=a:b\n-v=4\n--node-ip=::1,1.1.1.1\n--pod-cidr=::/0\n--feature-gates=a=true")
	f.Add("--cluster-dns=,\n--max-pods\n-1\n--version=raw\n--unknwon")
	f.Fuzz(func(t *testing.T, line string) {
		s := settings{KubeletConfiguration: defaultKubelet(), Edge: defaultEdge(), Flags: defaultOptions()}
		fs := newFlagSet(&s)
		if err := fs.parse(strings.Split(line, "\n")); err != nil {
			return
		}
		c, errs := deriveConfig(&s)
		_ = append(errs, validate(&s)...)
		listNotices(c, fs, nil)
	})
}
