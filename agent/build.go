package agent

import "context"

// open opens every part of the agent, in the order of their needs. A part embeds those that were opened
// before it, so it can use no other; what it needs of a later one it calls through base.late.
func open(ctx context.Context, b *base) (*serving, error) {
	e, err := openFeatures(ctx, b)
	if err != nil {
		return nil, err
	}
	// The workers call all of the above, and what measures pods ends some of them.
	w, err := openWorkers(e)
	if err != nil {
		return nil, err
	}
	// Looked at once everything is connected: from here on pods may start, if the runtime answers by now.
	if err := w.lookOnce(ctx); err != nil {
		return nil, err
	}
	// The servers come last: nobody calls a part that is not there.
	return openServers(ctx, w)
}

// openFeatures opens what a pod needs until it is gone. A cleanup needs no more.
func openFeatures(ctx context.Context, b *base) (*featured, error) {
	// The directories come first: nothing may be read or written before they belong to this process alone.
	d, err := openDisk(ctx, b)
	if err != nil {
		return nil, err
	}
	// The node: what it is, what is wanted of it as it was stored, its way to the API server, and its events,
	// which all others report to.
	n, err := openNode(ctx, d)
	if err != nil {
		return nil, err
	}
	// The container runtime comes after the wanted pods: it reports changes of them at once.
	r, err := openRuntime(ctx, n)
	if err != nil {
		return nil, err
	}
	// The pods: their sources, the decisions about them and their statuses, which name containers of the runtime.
	p, err := openPods(ctx, r)
	if err != nil {
		return nil, err
	}
	// The cluster: it sends those statuses, and gets pods and objects from the API server.
	c, err := openCluster(ctx, p)
	if err != nil {
		return nil, err
	}
	// The features: devices and volumes find their claims in the cluster.
	return newFeatures(ctx, c)
}
