// Delegate is a CNI plugin that, like flannel's, writes a configuration for another plugin and
// executes that plugin.
package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
)

func main() {
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Del: del, Check: none, GC: none, Status: status}, version.All, "a delegating test plugin")
}

type conf struct {
	Name       string         `json:"name"`
	CNIVersion string         `json:"cniVersion"`
	Delegate   map[string]any `json:"delegate"`
	Refuse     string         `json:"refuse"` // file whose existence makes STATUS fail
}

func read(args *skel.CmdArgs) (conf, []byte, error) {
	var c conf
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return c, nil, err
	}
	c.Delegate["name"], c.Delegate["cniVersion"] = c.Name, c.CNIVersion
	data, err := json.Marshal(c.Delegate)
	return c, data, err
}

func add(args *skel.CmdArgs) error {
	c, data, err := read(args)
	if err != nil {
		return err
	}
	result, err := invoke.DelegateAdd(context.Background(), c.Delegate["type"].(string), data, nil)
	if err != nil {
		return err
	}
	return result.Print()
}

func del(args *skel.CmdArgs) error {
	c, data, err := read(args)
	if err != nil {
		return err
	}
	return invoke.DelegateDel(context.Background(), c.Delegate["type"].(string), data, nil)
}

func none(*skel.CmdArgs) error { return nil }

func status(args *skel.CmdArgs) error {
	c, _, err := read(args)
	if err != nil {
		return err
	}
	if _, err := os.Stat(c.Refuse); err == nil {
		return os.ErrPermission
	}
	return nil
}
