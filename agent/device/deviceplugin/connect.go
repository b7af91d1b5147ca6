package deviceplugin

import (
	"context"
	"fmt"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// connect connects to the plugin at a socket and makes it the plugin of a resource. It replaces the current plugin.
func (p *Plugins) connect(ctx context.Context, resource, socket string, options *api.DevicePluginOptions) error {
	x, err := p.dial(ctx, resource, socket, options)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	previous := p.current[resource]
	if previous == nil && len(p.current) >= maxPlugins || p.ctx.Err() != nil {
		x.close()
		return fmt.Errorf("this node already has %d device plugins, the maximum", len(p.current))
	}
	if x.link, err = p.c.Devices.Connect(ctx, resource, x); err != nil {
		x.close()
		return err
	}
	if previous != nil {
		previous.stop(nil)
	}
	p.current[resource] = x
	var life context.Context
	life, x.stop = context.WithCancelCause(p.ctx)
	p.c.Counter.Registered(resource)
	p.c.Log.Info("device plugin registered", "resource", resource, "socket", socket)
	p.group.Go(func() { p.watchPlugin(life, x) })
	return nil
}

// watchPlugin watches a plugin until its stream ends or the plugin is stopped. Then it disconnects the plugin.
func (p *Plugins) watchPlugin(ctx context.Context, x *plugin) {
	err := x.watch(ctx)
	if why := context.Cause(ctx); why != nil && why != ctx.Err() {
		p.c.Log.Warn("device plugin is disconnected", "resource", x.resource, "socket", x.socket, "error", why)
	} else if why == nil {
		p.c.Log.Warn("device plugin has closed its connection", "resource", x.resource, "socket", x.socket, "error", err)
	}
	x.stop(nil)
	x.close()
	if p.ctx.Err() == nil { // when the agent exits, the plugin may keep running
		x.link.Close()
	}
	p.mu.Lock()
	if p.current[x.resource] == x {
		delete(p.current, x.resource)
	}
	p.mu.Unlock()
}
