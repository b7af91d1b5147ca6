package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// subnetEnv is the file in which flanneld writes the node's addresses for its plugin. It does not
// survive a reboot.
const subnetEnv = "/run/flannel/subnet.env"

// runFlanneld does the work of flannel's DaemonSet on a node, with the backend host-gw. It adds
// routes to the subnets of other nodes (SUBNET=ADDRESS), and writes the node's subnet and the CNI
// configuration. Only the CNI configuration survives a reboot.
func runFlanneld(ctx context.Context, confDir, subnet string, peers ...string) error {
	for _, p := range peers {
		if err := addRoute(p); err != nil {
			return fmt.Errorf("route %s: %w", p, err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(subnetEnv), 0o755); err != nil {
		return err
	}
	env := fmt.Sprintf("FLANNEL_NETWORK=10.42.0.0/16\nFLANNEL_SUBNET=%s\nFLANNEL_MTU=1500\nFLANNEL_IPMASQ=true\n", subnet)
	if err := os.WriteFile(subnetEnv, []byte(env), 0o644); err != nil {
		return err
	}
	conf := fmt.Sprintf(`{
  "name": "cbr0",
  "cniVersion": "0.3.1",
  "plugins": [
    {"type": "flannel", "dataDir": %q, "delegate": {"hairpinMode": true, "isDefaultGateway": true}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, filepath.Join(confDir, "../flannel-state"))
	if err := os.WriteFile(filepath.Join(confDir, "10-flannel.conflist"), []byte(conf), 0o644); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// runFlannel is flannel's CNI plugin. It generates a configuration for the bridge plugin from the
// subnet, and stores it for the pod's DEL.
func runFlannel() error {
	in, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var conf struct {
		Name, CNIVersion, DataDir string
		Delegate                  map[string]any
	}
	if err := json.Unmarshal(in, &conf); err != nil {
		return err
	}
	conf.DataDir = cmp.Or(conf.DataDir, "/var/lib/cni/flannel")
	kept := filepath.Join(conf.DataDir, os.Getenv("CNI_CONTAINERID"))
	switch os.Getenv("CNI_COMMAND") {
	case "VERSION":
		_, err := fmt.Println(`{"cniVersion": "1.0.0", "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0"]}`)
		return err
	case "DEL":
		b, err := os.ReadFile(kept)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, delegate(b), os.Remove(kept))
	}
	env, err := os.ReadFile(subnetEnv)
	if err != nil {
		return err
	}
	_, after, _ := strings.Cut(string(env), "FLANNEL_SUBNET=")
	subnet, _, _ := strings.Cut(after, "\n")
	d := conf.Delegate
	d["name"], d["cniVersion"], d["type"], d["ipMasq"] = conf.Name, conf.CNIVersion, "bridge", false
	d["ipam"] = map[string]any{"type": "host-local", "ranges": [][]any{{map[string]any{"subnet": subnet}}},
		"dataDir": conf.DataDir + "-ipam"}
	b, err := json.Marshal(d)
	if err == nil {
		err = errors.Join(os.MkdirAll(conf.DataDir, 0o755), os.WriteFile(kept, b, 0o600))
	}
	if err != nil {
		return err
	}
	return delegate(b)
}

func delegate(conf []byte) error {
	for _, dir := range filepath.SplitList(os.Getenv("CNI_PATH")) {
		plugin := filepath.Join(dir, "bridge")
		if _, err := os.Stat(plugin); err != nil {
			continue
		}
		cmd := exec.Command(plugin)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(string(conf)), os.Stdout, os.Stderr
		return cmd.Run()
	}
	return errors.New("no bridge plugin in " + os.Getenv("CNI_PATH"))
}
