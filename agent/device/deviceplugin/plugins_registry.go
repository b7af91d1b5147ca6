package deviceplugin

import (
	"context"

	"github.com/islet-edge/islet/agent/plugin/plugins"
)

// Validate implements plugins.Handler, for plugins that register in plugins_registry.
func (p *Plugins) Validate(x plugins.Plugin) error { return checkRegistration(x.Name, x.Versions) }

// Register implements plugins.Handler.
func (p *Plugins) Register(ctx context.Context, x plugins.Plugin) error {
	return p.connect(ctx, x.Name, x.Endpoint, nil)
}

// Deregister implements plugins.Handler. It disconnects the plugin at the endpoint.
func (p *Plugins) Deregister(x plugins.Plugin) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := p.current[x.Name]; now != nil && now.socket == x.Endpoint {
		now.stop(nil)
	}
}
