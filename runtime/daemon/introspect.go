package daemon

import (
	"context"

	"github.com/containerd/containerd/api/services/introspection/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
)

// self implements the introspection service. containerd's client asks it for a snapshotter's
// platforms before it unpacks.
type self struct{ snapshotter string }

func (s self) Plugins(context.Context, ...string) (*introspection.PluginsResponse, error) {
	p := platforms.DefaultSpec()
	return &introspection.PluginsResponse{Plugins: []*introspection.Plugin{{
		Type: string(plugins.SnapshotPlugin), ID: s.snapshotter,
		Platforms: []*types.Platform{{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}},
	}}}, nil
}

func (self) Server(context.Context) (*introspection.ServerResponse, error) {
	return &introspection.ServerResponse{}, nil
}

func (self) PluginInfo(context.Context, string, string, any) (*introspection.PluginInfoResponse, error) {
	return nil, errdefs.ErrNotImplemented
}
