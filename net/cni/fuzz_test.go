package cni

import (
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/islet-edge/islet/net/cni/plugin"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func FuzzConflist(f *testing.F) {
	w := &world{dir: "/d"}
	f.Add([]byte(w.chained("1.0.0")), true)
	f.Add([]byte(`{"cniVersion": "0.3.1", "name": "x", "type": "bridge", "ipam": {"type": "host-local", "subnet": "10.0.0.0/8"}}`), false)
	f.Add([]byte(`{"name": "x", "cniVersions": ["1.1.0", 3], "plugins": [null]}`), true)
	f.Add([]byte(`{"name": "x", "plugins": [{"type": "a"}], "disableGC": "yes"}`), true)
	f.Fuzz(func(t *testing.T, data []byte, isList bool) {
		list, err := parseConfig(data, isList, "/nowhere")
		if err != nil {
			return
		}
		for _, p := range list.Plugins {
			_ = plugin.Validate(p.Network.Type, p.Bytes)
		}
		a, err := newAttachment(list, "id", "/ns", &api.PodSandboxConfig{})
		if err != nil {
			t.Fatal(err)
		}
		again, err := a.configList()
		if err != nil {
			t.Fatalf("kept configuration cannot be read: %v", err)
		}
		if len(again.Plugins) != len(list.Plugins) || again.Name != list.Name {
			t.Errorf("kept %d plugins of %s, had %d of %s", len(again.Plugins), again.Name, len(list.Plugins), list.Name)
		}
	})
}

func FuzzResult(f *testing.F) {
	f.Add("1.0.0", []byte(`{"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/x"}], "ips": [{"interface": 0, "address": "10.0.0.2/24"}]}`))
	f.Add("1.1.0", []byte(`{"cniVersion": "1.1.0", "interfaces": [null], "ips": [null, {"interface": -1, "address": "::/0"}, {"interface": 9}]}`))
	f.Add("0.3.1", []byte(`{"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "224.0.0.1/4"}]}`))
	f.Add("0.4.0", []byte(`{"cniVersion": "0.4.0", "interfaces": [null], "ips": [null, {}], "routes": [null]}`))
	f.Add("0.2.0", []byte(`{"ip4": {"ip": "10.0.0.2/24"}}`))
	f.Fuzz(func(t *testing.T, version string, data []byte) {
		result, err := create.Create(version, data)
		if err != nil {
			return
		}
		for _, other := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
			_ = func() (err error) {
				defer recoverPanic(&err) // the library panics on a null in a list
				_, err = result.GetAsVersion(other)
				return err
			}()
		}
		addrs, err := parseAddresses(result)
		if err == nil && (len(addrs) == 0 || len(addrs) > maxAddresses) {
			t.Errorf("%d addresses", len(addrs))
		}
		for _, a := range addrs {
			if !a.IsValid() || a.IsMulticast() || a.IsUnspecified() || a.Is4In6() {
				t.Errorf("address %s is accepted", a)
			}
		}
	})
}
