package config

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// TestDefaultFiles checks that the files of the default directory are read where they exist, that a flag overrides its
// file, and that Files names every file that was read.
func TestDefaultFiles(t *testing.T) {
	const kubelet, edge = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 31\n", edgeDocHead + "bridgeName: own0\n"
	both := writeFiles(t, map[string]string{"kubelet.yaml": kubelet, "edge.yaml": edge, "drop/10.conf": strings.Replace(kubelet, "31", "33", 1)})
	other := writeFiles(t, map[string]string{"k.yaml": strings.Replace(kubelet, "31", "32", 1), "e.yaml": strings.Replace(edge, "own0", "other0", 1)})
	onlyEdge := writeFiles(t, map[string]string{"edge.yaml": edge})
	for name, tt := range map[string]struct {
		dir   string
		args  []string
		pods  int32
		name  string
		files []string
	}{
		"neither":          {t.TempDir(), nil, 110, "islet0", nil},
		"no directory":     {t.TempDir() + "/none", nil, 110, "islet0", nil},
		"one":              {onlyEdge, nil, 110, "own0", []string{onlyEdge + "/edge.yaml"}},
		"both":             {both, nil, 31, "own0", []string{both + "/kubelet.yaml", both + "/edge.yaml"}},
		"a flag on top":    {both, []string{"--max-pods=5"}, 5, "own0", []string{both + "/kubelet.yaml", both + "/edge.yaml"}},
		"another file":     {both, []string{"--config=" + other + "/k.yaml"}, 32, "own0", []string{other + "/k.yaml", both + "/edge.yaml"}},
		"other files":      {both, []string{"--edge-config", other + "/e.yaml", "--config=" + other + "/k.yaml"}, 32, "other0", []string{other + "/k.yaml", other + "/e.yaml"}},
		"none, explicitly": {both, []string{"--config=", "--edge-config="}, 110, "islet0", nil},
		"drop-ins":         {both, []string{"--config-dir=" + both + "/drop"}, 33, "own0", []string{both + "/kubelet.yaml", both + "/drop/10.conf", both + "/edge.yaml"}},
	} {
		c, _, err := load(append([]string{"--hostname-override=n", "--state-dir=" + t.TempDir()}, tt.args...), nil, tt.dir, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if c.Kubelet.MaxPods != tt.pods || c.Edge.BridgeName != tt.name || !slices.Equal(c.Files(), tt.files) {
			t.Errorf("%s: maxPods %d, bridge %s, files %q", name, c.Kubelet.MaxPods, c.Edge.BridgeName, c.Files())
		}
		if want := tt.files != nil && tt.files[0] == tt.dir+"/kubelet.yaml"; want != slices.Contains(c.Flags(),
			"config="+tt.dir+"/kubelet.yaml") {
			t.Errorf("%s: flags %q", name, c.Flags())
		}
	}
	broken := writeFiles(t, map[string]string{"edge.yaml": edge + "bridgName: x\n"})
	if _, _, err := load([]string{"--hostname-override=n"}, nil, broken, nil); err == nil || !strings.Contains(err.Error(), broken+"/edge.yaml:4: bridgName") {
		t.Errorf("a mistake in a default file: %v", err)
	}
	dangling := t.TempDir()
	if err := os.Symlink("missing", dangling+"/kubelet.yaml"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := load([]string{"--hostname-override=n"}, nil, dangling, nil); err == nil || !strings.Contains(err.Error(), dangling+"/kubelet.yaml") {
		t.Errorf("a link to a missing file: %v", err)
	}
}
