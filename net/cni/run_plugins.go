package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/islet-edge/islet/net/bridge"
	"github.com/islet-edge/islet/net/cni/plugin"
	"github.com/islet-edge/islet/net/netns"
	api "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// pluginTime is the timeout of one command but GC and STATUS, for all plugins of a list together.
	pluginTime = 2 * time.Minute
	// maxAddresses is the maximum number of addresses in a result.
	maxAddresses = 16
)

// pluginNetwork sets up the network of sandboxes with the CNI plugins of the active configuration.
type pluginNetwork struct {
	confs       configDir
	cni         *libcni.CNIConfig
	exec        *plugin.Exec
	pluginDirs  []string // binDirs, and the directory of the links
	binDirs     []string
	attachments attachmentStore
	names       namedNamespaces
	status      statusCache
	log         *slog.Logger
}

func newPlugins(cfg Config) *pluginNetwork {
	exec := &plugin.Exec{Host: cfg.Host}
	paths := append(cfg.BinDirs[:len(cfg.BinDirs):len(cfg.BinDirs)], linksDir(cfg.DataDir))
	p := &pluginNetwork{
		confs: configDir{dir: cfg.ConfDir, useOthers: cfg.Mode == CNIOnly, skipUnusable: cfg.Standalone && cfg.Mode == Auto},
		cni:   libcni.NewCNIConfigWithCacheDir(paths, filepath.Join(cfg.DataDir, "cache"), exec),
		exec:  exec, pluginDirs: paths, binDirs: cfg.BinDirs,
		attachments: attachmentStore{dir: filepath.Join(cfg.DataDir, "attachments")},
		names:       namedNamespaces{dir: cmp.Or(cfg.NamedDir, namedDir)}, log: cfg.Log,
	}
	p.confs.checkPlugins = p.checkPlugins
	return p
}

// setUpSandbox adds a sandbox to the network. Before that, it stores the request. After a crash or a change of the configuration, teardown
// can therefore still remove the sandbox.
func (p *pluginNetwork) setUpSandbox(
	ctx context.Context, list *libcni.NetworkConfigList, id, path string, cfg *api.PodSandboxConfig,
) (addrs []netip.Addr, err error) {
	defer recoverPanic(&err)
	previous, err := p.attachments.read(id)
	if err != nil {
		return nil, err
	}
	// Earlier versions passed the path of the runtime's pin to the plugins.
	if previous != nil && (previous.NetNS == path || previous.NetNS == p.names.path(id) && p.names.has(id, path)) {
		if list, err := previous.configList(); err == nil {
			if result, err := p.cni.GetNetworkListCachedResult(list, previous.runtimeConf()); err == nil && result != nil {
				return parseAddresses(result)
			}
		}
	}
	if previous != nil { // the previous setup is incomplete, or was for another namespace
		if err := p.tearDownSandbox(ctx, id, ""); err != nil { // the namespace at path may be another one
			return nil, err
		}
	}
	if err := bridge.SetLoopbackUp(netns.At(path)); err != nil {
		return nil, err
	}
	a, err := newAttachment(list, id, p.names.path(id), cfg)
	if err != nil {
		return nil, err
	}
	a.Installed = p.installedTypes(list)
	if err := p.attachments.write(a); err != nil {
		return nil, err
	}
	if err := p.names.bind(id, path); err != nil { // plugins without a daemon in a container work with the other path
		p.log.Warn("the daemons of network plugins may not find the network namespace of a pod", "sandbox", id, "error", err)
		a.NetNS = path
		if err := p.attachments.write(a); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, pluginTime)
	defer cancel()
	result, err := p.cni.AddNetworkList(ctx, list, a.runtimeConf())
	if err != nil {
		return nil, fmt.Errorf("CNI network %s: %w", list.Name, err)
	}
	return parseAddresses(result)
}

// tearDownSandbox removes a sandbox from the network. It uses the stored configuration with which the sandbox was added. It succeeds if the
// sandbox was never set up. The path leads to the runtime's pin of the namespace, or is "". It is used if the name of the namespace is
// gone: plugins such as host-device return a device from the namespace to the node.
func (p *pluginNetwork) tearDownSandbox(ctx context.Context, id, path string) (err error) {
	defer recoverPanic(&err)
	a, err := p.attachments.read(id)
	if err != nil || a == nil {
		return err
	}
	list, err := a.configList()
	if err != nil {
		return err
	}
	if err := p.checkInstalled(a); err != nil {
		return fmt.Errorf("CNI network %s: %w", list.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, pluginTime)
	defer cancel()
	rt := a.runtimeConf()
	rt.NetNS = p.namespaceForDelete(a, path)
	if err := p.cni.DelNetworkList(ctx, list, rt); err != nil {
		return fmt.Errorf("CNI network %s: %w", list.Name, err)
	}
	if a.NetNS == p.names.path(id) {
		if err := p.names.unbind(id); err != nil {
			return err
		}
	}
	return p.attachments.remove(id)
}

// installedTypes returns the built-in types of a list in whose place an installed plugin runs.
func (p *pluginNetwork) installedTypes(list *libcni.NetworkConfigList) (types []string) {
	for _, conf := range list.Plugins {
		kind := conf.Network.Type
		if plugin.Validate(kind, conf.Bytes) == nil {
			continue
		}
		if _, err := plugin.FindInstalled(kind, p.binDirs); err == nil {
			types = append(types, kind)
		}
	}
	return types
}

// checkInstalled returns an error if an installed plugin that was run for an attachment is missing.
func (p *pluginNetwork) checkInstalled(a *attachment) error {
	for _, kind := range a.Installed {
		if _, err := plugin.FindInstalled(kind, p.binDirs); err != nil {
			return err
		}
	}
	return nil
}

// needsInstalled reports whether an attachment cannot be removed because an installed plugin is missing.
func (p *pluginNetwork) needsInstalled(id string) bool {
	a, err := p.attachments.read(id)
	return err == nil && a != nil && p.checkInstalled(a) != nil
}

// namespaceForDelete returns the path of the namespace for the command DEL, or "" if the namespace is gone with all its interfaces.
func (p *pluginNetwork) namespaceForDelete(a *attachment, path string) string {
	if isNamespace(a.NetNS) {
		return a.NetNS
	}
	if !isNamespace(path) {
		return ""
	}
	if a.NetNS != p.names.path(a.ID) {
		return path
	}
	if err := p.names.bind(a.ID, path); err != nil { // another program has removed the name
		p.log.Warn("the daemons of network plugins may not find the network namespace of a pod", "sandbox", a.ID, "error", err)
		return path
	}
	return a.NetNS
}

// collectGarbage runs the command GC of the plugins that support it (CNI 1.1.0 and later). It passes the attachments that are not ended. No
// other command may run meanwhile.
func (p *pluginNetwork) collectGarbage(ctx context.Context, ended func(id string) bool) (err error) {
	defer recoverPanic(&err)
	list, err := p.confs.currentList()
	if err != nil || list == nil || !atLeast11(list) || p.checkPlugins(list) != nil {
		return nil // another caller reports the error
	}
	ids, err := p.attachments.listIDs()
	if err != nil {
		return err
	}
	valid := []types.GCAttachment{}
	for _, id := range ids {
		if !ended(id) || p.needsInstalled(id) { // libcni runs DEL for the others
			valid = append(valid, types.GCAttachment{ContainerID: id, IfName: Interface})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, gcTime)
	defer cancel()
	return p.cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid})
}

// checkPlugins returns an error if a plugin of the list is missing or does not support its configuration.
func (p *pluginNetwork) checkPlugins(list *libcni.NetworkConfigList) (err error) {
	defer recoverPanic(&err)
	for _, conf := range list.Plugins {
		if _, err := p.exec.FindInPath(conf.Network.Type, p.pluginDirs); err != nil {
			return fmt.Errorf("CNI network %s: %w", list.Name, err)
		}
	}
	return checkFields(list, p.binDirs)
}

// checkFields returns an error if a built-in plugin does not support its configuration, and no program of this name is installed in its
// place. Production nodes with such a configuration have the program, for example bridge for a VLAN.
func checkFields(list *libcni.NetworkConfigList, binDirs []string) error {
	for _, conf := range list.Plugins {
		err := plugin.Validate(conf.Network.Type, conf.Bytes)
		if err == nil {
			continue
		}
		if _, missing := plugin.FindInstalled(conf.Network.Type, binDirs); missing != nil {
			return fmt.Errorf("CNI network %s: %w, and no plugin %s is installed in %v", list.Name, err, conf.Network.Type, binDirs)
		}
	}
	return nil
}

// checkReady returns the reason why a list cannot be used now, or nil.
func (p *pluginNetwork) checkReady(ctx context.Context, list *libcni.NetworkConfigList) (err error) {
	defer recoverPanic(&err)
	if err := p.checkPlugins(list); err != nil {
		return err
	}
	if !atLeast11(list) {
		return nil
	}
	return p.status.get(ctx, list, func() (err error) {
		defer recoverPanic(&err)
		ctx, cancel := context.WithTimeout(context.Background(), statusTime)
		defer cancel()
		if err := p.cni.GetStatusNetworkList(ctx, list); err != nil {
			return fmt.Errorf("CNI network %s: %w", list.Name, err)
		}
		return nil
	})
}

func atLeast11(list *libcni.NetworkConfigList) bool {
	ok, err := version.GreaterThanOrEqualTo(list.CNIVersion, "1.1.0")
	return ok && err == nil
}

// recoverPanic converts a panic to an error. A configuration or the result of a plugin may cause a panic in the library.
func recoverPanic(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("CNI: panic: %v\n%s", r, debug.Stack())
	}
}

// parseAddresses returns the addresses of the pod's interface in a result. The result is not trusted.
func parseAddresses(result types.Result) (addrs []netip.Addr, err error) {
	defer recoverPanic(&err)
	r, err := current.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("result of the CNI plugins: %w", err)
	}
	for _, ip := range r.IPs {
		if ip == nil {
			continue
		}
		if at := ip.Interface; at != nil {
			if *at < 0 || *at >= len(r.Interfaces) || r.Interfaces[*at] == nil {
				return nil, fmt.Errorf("result of the CNI plugins: no interface %d", *at)
			}
			if i := r.Interfaces[*at]; i.Sandbox == "" || i.Name != Interface {
				continue
			}
		}
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		addr = addr.Unmap()
		if !ok || addr.IsUnspecified() || addr.IsLoopback() || addr.IsMulticast() {
			return nil, fmt.Errorf("result of the CNI plugins: %q is not an address for a pod", ip.Address.IP)
		}
		addrs = append(addrs, addr)
		if len(addrs) > maxAddresses {
			return nil, fmt.Errorf("result of the CNI plugins: more than %d addresses", maxAddresses)
		}
	}
	if len(addrs) == 0 {
		return nil, errors.New("result of the CNI plugins: no address for " + Interface)
	}
	return addrs, nil
}
