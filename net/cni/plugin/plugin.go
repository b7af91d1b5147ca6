package plugin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/islet-edge/islet/net/netns"
)

// table is the nftables table of the plugins.
const table = "islet_cni"

// Request is one call of a plugin.
type Request struct {
	Command string // ADD, DEL, CHECK, GC, STATUS
	Args    *skel.CmdArgs
	Host    netns.NS    // the node's side
	Exec    invoke.Exec // runs the IPAM plugin of another one
}

// actions of a plugin type. A nil one has nothing to do.
type actions struct {
	fields string // of the configuration, beyond those that all types have; * is any
	add    func(context.Context, *call) (*current.Result, error)
	del    func(context.Context, *call) error
	check  func(context.Context, *call) error
	gc     func(context.Context, *call) error
	status func(context.Context, *call) error
}

// call is a request with the configuration that all types have in common.
type call struct {
	*Request
	conf types.PluginConf
}

func find(kind string) (actions, bool) {
	switch kind {
	case "bridge":
		return bridgeActions(), true
	case "host-local":
		return hostLocalActions(), true
	case "loopback":
		return loopbackActions(), true
	case "portmap":
		return portmapActions(), true
	}
	return actions{}, false
}

// Types returns the names of the built-in types.
func Types() []string { return []string{"bridge", "host-local", "loopback", "portmap"} }

// Has says whether a type is built in.
func Has(kind string) bool { return slices.Contains(Types(), kind) }

// versions are those of the CNI specification that the plugins speak.
func versions() version.PluginInfo { return version.VersionsStartingFrom("0.3.0") }

// Run carries out a request and returns the result of ADD in the version of the
// configuration. A panic becomes an error: what is asked for comes from outside.
func Run(ctx context.Context, kind string, r *Request) (result types.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = types.NewError(types.ErrInternal, fmt.Sprintf("plugin %s panicked: %v", kind, p), string(debug.Stack()))
		}
	}()
	does, ok := find(kind)
	if !ok {
		return nil, fmt.Errorf("plugin type %q is not built in", kind)
	}
	c, err := decode(kind, r)
	if err != nil {
		return nil, err
	}
	if r.Command != "DEL" && r.Command != "GC" { // what was refused can be removed all the same
		if err := unsupported(kind, does.fields, r.Args.StdinData); err != nil {
			return nil, err
		}
	}
	do := map[string]func(context.Context, *call) error{"DEL": does.del, "CHECK": does.check, "GC": does.gc, "STATUS": does.status}
	if r.Command == "ADD" {
		added, err := does.add(ctx, c)
		if err != nil {
			return nil, err
		}
		return added.GetAsVersion(c.conf.CNIVersion)
	}
	f, ok := do[r.Command]
	if !ok {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("unknown CNI_COMMAND %q", r.Command), "")
	}
	if f == nil {
		return nil, nil
	}
	return nil, f(ctx, c)
}

// commonFields may be in the configuration of every type.
const commonFields = "cniVersion name type args capabilities runtimeConfig prevResult dns ipam disableCheck disableGC loadOnlyInlinedPlugins"

func decode(kind string, r *Request) (*call, error) {
	c := &call{Request: r}
	if err := json.Unmarshal(r.Args.StdinData, &c.conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "configuration of "+kind+": "+err.Error(), "")
	}
	if c.conf.CNIVersion == "" {
		c.conf.CNIVersion = "0.3.0"
	}
	if incompatible := (&version.Reconciler{}).CheckRaw(c.conf.CNIVersion, versions().SupportedVersions()); incompatible != nil {
		return nil, types.NewError(types.ErrIncompatibleCNIVersion, incompatible.Error(), incompatible.Details())
	}
	return c, nil
}

// Validate returns an error that names a field of a built-in type's configuration
// that is not supported. Other types are not looked at.
func Validate(kind string, conf []byte) error {
	does, ok := find(kind)
	if !ok {
		return nil
	}
	return unsupported(kind, does.fields, conf)
}

func unsupported(kind, fields string, conf []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(conf, &all); err != nil {
		return types.NewError(types.ErrDecodingFailure, "configuration of "+kind+": "+err.Error(), "")
	}
	known := strings.Fields(commonFields + " " + fields)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if fields != "*" && !slices.Contains(known, key) && !strings.Contains(key, "/") && !asksForNothing(all[key]) {
			return types.NewError(types.ErrUnsupportedField, fmt.Sprintf("%s: field %q is not supported by the built-in plugin", kind, key), "")
		}
	}
	return nil
}

func asksForNothing(value json.RawMessage) bool {
	return slices.Contains([]string{"null", "false", "0", `""`, "[]", "{}"}, string(value))
}

// previous returns the result of the plugin before, or nil.
func (c *call) previous() (*current.Result, error) {
	if c.conf.RawPrevResult == nil {
		return nil, nil
	}
	if err := version.ParsePrevResult(&c.conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "prevResult: "+err.Error(), "")
	}
	result, err := current.NewResultFromResult(c.conf.PrevResult)
	if err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "prevResult: "+err.Error(), "")
	}
	return result, nil
}

// label names an attachment in nftables, and its network by the first part.
func label(network, container, ifname string) string {
	n, a := sha256.Sum256([]byte(network)), sha256.Sum256([]byte(container+"\x00"+ifname))
	return hex.EncodeToString(n[:8]) + "." + hex.EncodeToString(a[:16])
}

// mine says whether a label in nftables is that of this attachment.
func (c *call) mine(l string) bool { return l == c.label() }

func (c *call) label() string { return label(c.conf.Name, c.Args.ContainerID, c.Args.IfName) }

// stale returns what says of a label whether GC has to remove it: those of this
// network that are not valid any more.
func (c *call) stale() func(l string) bool {
	valid := map[string]bool{}
	for _, a := range c.conf.ValidAttachments {
		valid[label(c.conf.Name, a.ContainerID, a.IfName)] = true
	}
	network, _, _ := strings.Cut(label(c.conf.Name, "", ""), ".")
	return func(l string) bool { return strings.HasPrefix(l, network+".") && !valid[l] }
}
