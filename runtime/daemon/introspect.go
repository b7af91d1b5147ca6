package daemon

import (
	"context"

	"github.com/containerd/containerd/api/services/introspection/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/v2/plugins"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
)

// introspectionService implements containerd's introspection service. Before containerd's client
// unpacks an image, it requests the platforms of the snapshotter from this service.
type introspectionService struct{ snapshotter string }

func (s introspectionService) Plugins(context.Context, ...string) (*introspection.PluginsResponse, error) {
	p := platforms.DefaultSpec()
	return &introspection.PluginsResponse{Plugins: []*introspection.Plugin{{
		Type: string(plugins.SnapshotPlugin), ID: s.snapshotter,
		Platforms: []*types.Platform{{OS: p.OS, Architecture: p.Architecture, Variant: p.Variant}},
	}}}, nil
}

func (introspectionService) Server(context.Context) (*introspection.ServerResponse, error) {
	return &introspection.ServerResponse{}, nil
}

func (introspectionService) PluginInfo(context.Context, string, string, any) (*introspection.PluginInfoResponse, error) {
	return nil, errdefs.ErrNotImplemented
}
