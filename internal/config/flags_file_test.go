package config

import (
	"strings"
	"testing"
)

// TestFlagsFile checks that the flags of the file come before those of the command line, and that a mistake names the file.
func TestFlagsFile(t *testing.T) {
	dir := writeFiles(t, map[string]string{"flags": "# of this node\n\n--hostname-override=kiosk-1\r\n  --node-labels=a=b\n--kubeconfig=/etc/islet/kubeconfig\n--max-pods=7\n",
		"kubelet.yaml": "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 31\n"})
	state := "--state-dir=" + t.TempDir()
	c, _, err := load([]string{state, "--max-pods=9", "--node-labels=c=d"}, nil, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Node.Name != "kiosk-1" || c.Kubeconfig != "/etc/islet/kubeconfig" || c.Kubelet.MaxPods != 9 || len(c.Node.Labels) != 2 ||
		c.Files()[0] != dir+"/flags" {
		t.Errorf("name %q, kubeconfig %q, maxPods %d, labels %v, files %v", c.Node.Name, c.Kubeconfig, c.Kubelet.MaxPods, c.Node.Labels, c.Files())
	}
	if c, _, err = load([]string{state, "--hostname-override=other"}, nil, dir, nil); err != nil || c.Node.Name != "other" || c.Kubelet.MaxPods != 7 {
		t.Errorf("%v", err)
	}
	for text, want := range map[string]string{
		"node-ip=1\n": "/flags: line 1 is not a flag", "--nod-ip=1": "/flags: unknown flag", "--version": "/flags: it may not", "--max-pods=x": "/flags: ",
		"--node-ip=1\n--help": "/flags: it may not",
	} {
		dir := writeFiles(t, map[string]string{"flags": text})
		if _, _, err := load([]string{"--hostname-override=n", state}, nil, dir, nil); err == nil || !strings.Contains(err.Error(), dir+want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, _, err := load([]string{"--hostname-override=n", state}, nil, writeFiles(t, map[string]string{"flags/x": ""}), nil); err == nil {
		t.Error("a directory has the place of the file")
	}
}

// TestSetFields checks that fields are added to a file or replace its fields, and that mistakes and bombs are errors.
func TestSetFields(t *testing.T) {
	text := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nclusterDNS: [10.0.0.1, 10.0.0.2]\nmaxPods: 5\nauthentication: {anonymous: {enabled: false}}\n"
	out, had, err := SetFields("k.yaml", []byte(text), false, map[string]any{
		"clusterDNS": []string{"10.0.0.3"}, "authentication.x509.clientCAFile": "/ca", "maxPods": 5, "podCIDR": "10.1.0.0/24",
	})
	if err != nil || strings.Join(had, " ") != "clusterDNS maxPods" {
		t.Errorf("%q, %v", had, err)
	}
	c, mistakes, _ := Check("k.yaml", out)
	if len(mistakes) > 0 || len(c.Kubelet.ClusterDNS) != 1 || c.Kubelet.Authentication.X509.ClientCAFile != "/ca" || c.Kubelet.MaxPods != 5 ||
		*c.Kubelet.Authentication.Anonymous.Enabled || c.Node.Name != "node" {
		t.Errorf("%v: %s", mistakes, out)
	}
	if out, had, err = SetFields("e.yaml", nil, true, map[string]any{"bridgeName": "own0"}); err != nil || len(had) > 0 || EdgeFields(out).BridgeName != "own0" {
		t.Errorf("%s, %q, %v", out, had, err)
	}
	if _, _, err = SetFields("e.yaml", []byte(text), true, nil); err == nil || !strings.Contains(err.Error(), "e.yaml:1: apiVersion") {
		t.Errorf("got %v", err)
	}
	if _, _, err = SetFields("e.yaml", []byte("a: ["+strings.Repeat("{},", 300_000)+"]"), true, nil); err == nil {
		t.Error("a bomb was decoded")
	}
}

// TestLocateWith checks that the flags of a file which is not on the disk come before those of the command line.
func TestLocateWith(t *testing.T) {
	dirs, name, err := LocateWith([]string{"--state-dir=/given"}, []byte("--state-dir=/listed\n--hostname-override=listed\n"))
	if err != nil || dirs.State != "/given" || name != "listed" {
		t.Errorf("%v, %q, %v", dirs, name, err)
	}
	if dirs, _, err := LocateWith(nil, nil); err != nil || dirs.State != "/var/lib/islet" {
		t.Errorf("%v, %v", dirs, err)
	}
	if _, _, err := LocateWith(nil, []byte("--unknown=1")); err == nil {
		t.Error("a wrong flag is accepted")
	}
}
