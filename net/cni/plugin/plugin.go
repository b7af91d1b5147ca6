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

// tableName is the nftables table of the plugins.
const tableName = "islet_cni"

// Request is one call of a plugin.
type Request struct {
	Command string // ADD, DEL, CHECK, GC, STATUS
	Args    *skel.CmdArgs
	Host    netns.NS    // the node's network namespace
	Exec    invoke.Exec // runs the IPAM plugin
}

// pluginActions contains the functions of a plugin type, one for each CNI command. If a function is nil, the command does nothing and
// succeeds.
type pluginActions struct {
	fields string // names of the configuration fields that only this type allows; * allows all fields
	add    func(context.Context, *pluginCall) (*current.Result, error)
	del    func(context.Context, *pluginCall) error
	check  func(context.Context, *pluginCall) error
	gc     func(context.Context, *pluginCall) error
	status func(context.Context, *pluginCall) error
}

// pluginCall is a request, together with the decoded configuration fields that all types have.
type pluginCall struct {
	*Request
	conf types.PluginConf
}

func actionsOf(kind string) (pluginActions, bool) {
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
	return pluginActions{}, false
}

// Types returns the names of the built-in types.
func Types() []string { return []string{"bridge", "host-local", "loopback", "portmap"} }

// IsBuiltIn reports whether a type is built in.
func IsBuiltIn(kind string) bool { return slices.Contains(Types(), kind) }

// supportedVersions returns the supported versions of the CNI specification.
func supportedVersions() version.PluginInfo { return version.VersionsStartingFrom("0.3.0") }

// Run executes a request. For ADD it returns the result in the configuration's CNI version. It
// converts a panic to an error, because the request is not trusted.
func Run(ctx context.Context, kind string, r *Request) (result types.Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = types.NewError(types.ErrInternal, fmt.Sprintf("plugin %s panicked: %v", kind, p), string(debug.Stack()))
		}
	}()
	does, ok := actionsOf(kind)
	if !ok {
		return nil, fmt.Errorf("plugin type %q is not built in", kind)
	}
	c, err := decodeCall(kind, r)
	if err != nil {
		return nil, err
	}
	if r.Command != "DEL" && r.Command != "GC" { // DEL and GC must also work for a configuration that a newer version rejects
		if err := checkFields(kind, does.fields, r.Args.StdinData); err != nil {
			return nil, err
		}
	}
	do := map[string]func(context.Context, *pluginCall) error{
		"DEL": does.del, "CHECK": does.check, "GC": does.gc, "STATUS": does.status,
	}
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

// commonFields are the allowed fields of every type.
const commonFields = "cniVersion name type args capabilities runtimeConfig prevResult dns ipam " +
	"disableCheck disableGC loadOnlyInlinedPlugins"

func decodeCall(kind string, r *Request) (*pluginCall, error) {
	c := &pluginCall{Request: r}
	if err := json.Unmarshal(r.Args.StdinData, &c.conf); err != nil {
		return nil, types.NewError(types.ErrDecodingFailure, "configuration of "+kind+": "+err.Error(), "")
	}
	if c.conf.CNIVersion == "" {
		c.conf.CNIVersion = "0.3.0"
	}
	incompatible := (&version.Reconciler{}).CheckRaw(c.conf.CNIVersion, supportedVersions().SupportedVersions())
	if incompatible != nil {
		return nil, types.NewError(types.ErrIncompatibleCNIVersion, incompatible.Error(), incompatible.Details())
	}
	return c, nil
}

// Validate returns an error that names an unsupported field in the configuration of a built-in type. It accepts every configuration of
// the other types.
func Validate(kind string, conf []byte) error {
	does, ok := actionsOf(kind)
	if !ok {
		return nil
	}
	return checkFields(kind, does.fields, conf)
}

func checkFields(kind, fields string, conf []byte) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(conf, &values); err != nil {
		return types.NewError(types.ErrDecodingFailure, "configuration of "+kind+": "+err.Error(), "")
	}
	supported := strings.Fields(commonFields + " " + fields)
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if fields != "*" && !slices.Contains(supported, key) && !strings.Contains(key, "/") && !isEmpty(values[key]) {
			return types.NewError(types.ErrUnsupportedField,
				fmt.Sprintf("%s: field %q is not supported by the built-in plugin", kind, key), "")
		}
	}
	return nil
}

func isEmpty(value json.RawMessage) bool {
	return slices.Contains([]string{"null", "false", "0", `""`, "[]", "{}"}, string(value))
}

// previousResult returns the result of the previous plugin in the chain, or nil.
func (c *pluginCall) previousResult() (*current.Result, error) {
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

// attachmentLabel returns the text that identifies an attachment in the comments of nftables entries. The first part of the text
// identifies the network.
func attachmentLabel(network, container, ifname string) string {
	n, a := sha256.Sum256([]byte(network)), sha256.Sum256([]byte(container+"\x00"+ifname))
	return hex.EncodeToString(n[:8]) + "." + hex.EncodeToString(a[:16])
}

// isOwn reports whether the given label belongs to this attachment.
func (c *pluginCall) isOwn(l string) bool { return l == c.label() }

func (c *pluginCall) label() string {
	return attachmentLabel(c.conf.Name, c.Args.ContainerID, c.Args.IfName)
}

// staleLabels returns a function that reports whether the command GC must remove the entries with a given label. These are the labels of
// this network whose attachment is not valid any more.
func (c *pluginCall) staleLabels() func(l string) bool {
	valid := map[string]bool{}
	for _, a := range c.conf.ValidAttachments {
		valid[attachmentLabel(c.conf.Name, a.ContainerID, a.IfName)] = true
	}
	network, _, _ := strings.Cut(attachmentLabel(c.conf.Name, "", ""), ".")
	return func(l string) bool { return strings.HasPrefix(l, network+".") && !valid[l] }
}
